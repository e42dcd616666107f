"""Every call into the parts of jax and jaxlib that promise nothing to anybody, and nothing else.

When a new jaxlib changes one of them, this is the file to adapt, with `exla_opt/ir/context.py`, which takes the
dialects that jax registers from `jaxlib.mlir._mlir_libs._jax_mlir_ext` and must not load jax. Used here, and why:

- `jax.extend.backend.get_backend`: the PJRT client, which compiles StableHLO as it is; `jax.jit` takes functions.
- `jaxlib.xla_client.CompileOptions`, `DeviceList`: flags of XLA for one compile.
- `jax.experimental.topologies` and the client of its devices: compiles for a GPU that is not here.
- the executable's `hlo_modules`: what of a GPU's time is estimated from.
- `jaxlib.lapack._lapack.initialize`: else a module that calls LAPACK, in a process where jax has traced none, calls a
  null pointer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
from jax.experimental import topologies
from jax.extend import backend
from jaxlib import lapack, xla_client
from jaxlib.mlir import ir

# What XLA and PJRT raise: (almost) every fault of the module, and every lack of memory.
XlaError = jax.errors.JaxRuntimeError
# What a compile raises when XLA refuses the module.
COMPILE_ERRORS = (XlaError, ValueError)

# Flags of XLA for one compile, as (name, value).
Flags = Sequence[tuple[str, object]]


@cache
def client(platform: str) -> Any:
    """The PJRT client of this machine's `platform`, cpu or cuda. Raises RuntimeError when there is none."""
    lapack._lapack.initialize()
    return backend.get_backend(platform)


def compile_here(platform: str, module: str | bytes, flags: Flags) -> tuple[Any, Any]:
    """Compile for the first device of this machine's `platform`; the executable and the device.

    module: text, bytecode or portable artifact. Raises what `client` raises, and COMPILE_ERRORS.
    """
    here = client(platform)
    device = here.local_devices()[0]
    return here.compile_and_load(module, [device], _options(flags)), device


def compile_for(device: Any, module: ir.Module, flags: Flags) -> Any:
    """Compile for a device of `described_device`; what comes out can be read, not run. Raises COMPILE_ERRORS."""
    return device.client.compile(module, xla_client.DeviceList((device,)), _options(flags))


@cache
def described_device(description: str) -> Any:
    """The device that stands for the GPU of a GpuTargetConfigProto, given as text.

    Raises NotImplementedError without jax's CUDA plugin and XlaError when XLA cannot take the description.
    """
    return topologies.get_topology_desc(platform="cuda", target_config=description, topology="1x1x1").devices[0]


def own_description() -> str:
    """The GPU that is here as a GpuTargetConfigProto, as text. Raises RuntimeError when there is none."""
    gpus = client("cuda").local_devices()
    return str(xla_client.get_topology_for_devices(gpus[:1]).target_config)


def statistics(executable: Any) -> Any:
    """The bytes that were planned: `argument_size_in_bytes`, and the same of output, alias and temp."""
    return executable.get_compiled_memory_stats()


def optimised_hlo(executable: Any) -> str:
    """The text of the HLO that was compiled to kernels, of a program for one device; scheduled for a GPU."""
    return str(executable.hlo_modules()[0].to_string())


def execute(executable: Any, buffers: Sequence[Any]) -> list[Any]:
    """Start a run on buffers of the device that `compile_here` compiled for; its results. Raises XlaError."""
    return [shards[0] for shards in executable.execute_sharded(buffers).disassemble_into_single_device_arrays()]


def _options(flags: Flags) -> Any:
    options = xla_client.CompileOptions()
    options.env_option_overrides = list(flags)
    return options
