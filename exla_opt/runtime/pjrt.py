"""Every call into the parts of jax and jaxlib that promise nothing to anybody, and nothing else.

When a new jaxlib changes one of them, this is the file to adapt, with `exla_opt/ir/context.py`, which takes the
dialects that jax registers from `jaxlib.mlir._mlir_libs._jax_mlir_ext` and must not load jax. Used here, and why:

- `jax.extend.backend.get_backend`: the PJRT client, which compiles StableHLO as it is; `jax.jit` takes functions.
- `jaxlib.xla_client.CompileOptions`, `DeviceList`: flags of XLA for one compile.
- `jax.experimental.topologies` and the client of its devices: compiles for a GPU or TPU that is not here.
- the executable's `hlo_modules`: what of a GPU's time is estimated from.
- `xla_client.DeviceAssignment` and the executable build options: programs for several devices; the executable's
  shardings and `GSPMDSharding`: which part of an argument or result each of them has.
- `jax.extend.core`: a traced function called with its constants as arguments, and weak types.
- what a `jax.stages.Lowered` keeps: the same one with another module.
- `jaxlib.lapack._lapack.initialize`: else a module that calls LAPACK, in a process where jax has traced none, calls a
  null pointer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax._src.sharding_impls import GSPMDSharding
from jax.experimental import topologies
from jax.extend import backend
from jax.extend.core import jaxpr_as_fun, primitives
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


def ask_for_cpus(count: int) -> None:
    """Let this machine's CPU be `count` devices, from the first use of jax on; later it stays as it is."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # in use already
        return


def compile_here(
    platform: str, module: str | bytes, flags: Flags, partitions: int = 1, *, by_shardy: bool = True
) -> tuple[Any, Sequence[Any]]:
    """Compile for the first devices of this machine's `platform`, one a partition; the executable and the devices.

    module: text, bytecode or portable artifact. by_shardy: not by GSPMD, the partitioner before.
    Raises what `client` raises, COMPILE_ERRORS, and TooFewDevices.
    """
    here = client(platform)
    devices = here.local_devices()[:partitions]
    if len(devices) < partitions:
        raise TooFewDevices(len(devices))
    return here.compile_and_load(module, devices, _options(flags, partitions, by_shardy)), devices


class TooFewDevices(RuntimeError):
    """The program is for more devices than there are; the first argument is how many there are."""


def compile_for(devices: Sequence[Any], module: ir.Module, flags: Flags, *, by_shardy: bool = True) -> Any:
    """Compile for `described_devices`, one a partition; what comes out can be read, not run. Raises COMPILE_ERRORS."""
    options = _options(flags, len(devices), by_shardy)
    return devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)


@cache
def described_devices(description: str, count: int = 1) -> Sequence[Any]:
    """The devices that stand for so many GPUs of a GpuTargetConfigProto, given as text, in one host.

    Raises NotImplementedError without jax's CUDA plugin and XlaError when XLA cannot take the description.
    """
    topology = f"1x1x{count}"
    found: Sequence[Any] = topologies.get_topology_desc(
        platform="cuda", target_config=description, topology=topology
    ).devices
    return found[:count]


def tpu_devices(topology: str, chip_config: str) -> Sequence[Any]:
    """The TPUs of a topology by libtpu's name for it. chip_config: how a chip's cores are used; "" for as usual.

    Needs libtpu and its variables in the environment (`tpus.py`). Raises XlaError, RuntimeError or NotImplementedError.
    """
    more = {"chip_config_name": chip_config} if chip_config else {}
    found: Sequence[Any] = topologies.get_topology_desc(platform="tpu", topology_name=topology, **more).devices
    return found


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


def spread_over(executable: Any, arrays: Sequence[Any], devices: Sequence[Any]) -> list[Any]:
    """Arrays of this machine's memory on the devices of a program, each as the program wants it."""
    wanted = [GSPMDSharding(devices, each) for each in executable.get_parameter_shardings()]
    return [jax.device_put(array, one) for array, one in zip(arrays, wanted, strict=True)]


def execute_on_all(
    executable: Any, buffers: Sequence[Any], devices: Sequence[Any], shapes: Sequence[Sequence[int]]
) -> list[Any]:
    """Start a run of a program for several devices; its results, of `shapes`, put together. Raises XlaError."""
    shards = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    found = [GSPMDSharding(devices, each) for each in executable.get_output_shardings()]
    return [
        jax.make_array_from_single_device_arrays(tuple(shape), one, parts)
        for shape, one, parts in zip(shapes, found, shards, strict=True)
    ]


def with_constants_as_arguments(closed: Any) -> Any:
    """What `jax.make_jaxpr` traced as a function of its constants, then of its arguments; it returns a list."""
    jaxpr = closed.jaxpr
    opened = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    return jaxpr_as_fun(closed.replace(jaxpr=opened, consts=[]))


def as_weak(value: Any) -> Any:
    """A tracer's value with the weak type of a Python scalar."""
    return primitives.convert_element_type_p.bind(value, new_dtype=value.dtype, weak_type=True, sharding=None)


def lowered_with(lowered: jax.stages.Lowered, module: ir.Module) -> jax.stages.Lowered:
    """What jax lowered, with another module of the same signature."""
    new, computation = copy.copy(lowered), copy.copy(lowered._lowering)
    computation._hlo, computation._executable = module, None  # type: ignore[attr-defined]
    new._lowering = computation
    return new


def _options(flags: Flags, partitions: int, by_shardy: bool) -> Any:
    options = xla_client.CompileOptions()
    options.env_option_overrides = list(flags)
    if partitions > 1:
        options.num_partitions = partitions
        built = options.executable_build_options
        built.num_partitions = partitions
        built.use_spmd_partitioning = True
        built.use_shardy_partitioner = by_shardy
        assignment = np.arange(partitions).reshape(1, partitions)
        options.device_assignment = built.device_assignment = xla_client.DeviceAssignment.create(assignment)
    return options
