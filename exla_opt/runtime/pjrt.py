"""Every call into parts of jax and jaxlib without a stability guarantee, and nothing else.

When a new jaxlib changes one of them, adapt this file, and `exla_opt/ir/context.py`, which takes the dialects that jax
registers from `jaxlib.mlir._mlir_libs._jax_mlir_ext` and must not load jax. Used here, and why:

- `jax.extend.backend.get_backend`: the PJRT client, which compiles StableHLO directly; `jax.jit` takes functions.
- `jaxlib.xla_client.CompileOptions`, `DeviceList`: flags of XLA for one compile.
- `jax.experimental.topologies` and the client of its devices: compiles for a GPU or TPU that is not here.
- the executable's `hlo_modules`: the source of the estimate of a GPU's time.
- `xla_client.DeviceAssignment` and the executable build options: programs for several devices; the executable's
  shardings and `GSPMDSharding`: the shard of each argument and result on each device.
- `jax.extend.source_info_util`: which files are not the user's.
- `jax.extend.core`: a traced function called with its constants as arguments, and weak types; `NamedAxisEffect`: the
  axes of enclosing functions that it communicates along; `get_intermediate_shardings`: the devices that it names.
- the internals of a `jax.stages.Lowered`: to copy it with another module.
- the abstract evaluation and the lowering of `jax.export`'s primitive: to call an exported function without committing
  its results to a device.
- `jaxlib.lapack._lapack.initialize`: else a module that calls LAPACK, in a process where jax has traced none, calls a
  null pointer.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.core import NamedAxisEffect
from jax._src.dispatch import apply_primitive, get_intermediate_shardings
from jax._src.export._export import _call_exported_abstract_eval, _call_exported_lowering
from jax._src.sharding_impls import GSPMDSharding
from jax.experimental import topologies
from jax.extend import backend, source_info_util
from jax.extend.core import Primitive, jaxpr_as_fun, primitives
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import lapack, xla_client
from jaxlib.mlir import ir

# Exceptions of XLA and PJRT: (almost) every fault of the module, and every lack of memory.
XlaError = jax.errors.JaxRuntimeError
# What a compile raises when XLA refuses the module.
COMPILE_ERRORS = (XlaError, ValueError)

# What `jax.export` calls an exported function with. Of a primitive of that name, `jax.jit` commits all results to their
# device, so that a step that is called with its own results would be compiled a second time.
_SLICED = Primitive("sliced_call")
_SLICED.multiple_results = True
_SLICED.def_effectful_abstract_eval(_call_exported_abstract_eval)
_SLICED.def_impl(partial(apply_primitive, _SLICED))
mlir.register_lowering(_SLICED, _call_exported_lowering)

# Flags of XLA for one compile, as (name, value).
Flags = Sequence[tuple[str, object]]


@cache
def client(platform: str) -> Any:
    """The PJRT client of this machine's `platform`, cpu or cuda. Raises RuntimeError when there is none."""
    lapack._lapack.initialize()
    try:
        return backend.get_backend(platform)
    except AssertionError:  # jax asserts that it found a device, and with JAX_PLATFORMS=cuda there may be none
        platforms = os.environ.get("JAX_PLATFORMS", platform)
        raise RuntimeError(f"jax found no device of JAX_PLATFORMS={platforms}") from None


def ask_for_cpus(count: int) -> None:
    """Split this machine's CPU into `count` devices, before the first use of jax; later this has no effect."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # already in use
        return


def compile_here(
    platform: str,
    module: str | bytes,
    flags: Flags,
    partitions: int = 1,
    *,
    replicas: int = 1,
    by_shardy: bool = True,
    unspecified: Sequence[bool] = (),
) -> tuple[Any, Sequence[Any]]:
    """Compile for the first devices of this machine's `platform`, one a partition; the executable and the devices.

    module: text, bytecode or portable artifact. replicas: of all partitions, each on devices of its own. by_shardy:
    False uses GSPMD, the older partitioner. unspecified: of each result, whether the partitioner chooses its sharding;
    () if there is one device.
    Raises what `client` raises, COMPILE_ERRORS, and TooFewDevices.
    """
    here = client(platform)
    devices = here.local_devices()[: replicas * partitions]
    if len(devices) < replicas * partitions:
        raise TooFewDevices(len(devices))
    return here.compile_and_load(
        module, devices, _options(flags, replicas, partitions, by_shardy, unspecified)
    ), devices


class TooFewDevices(RuntimeError):
    """The program is for more devices than there are; the first argument is their number."""


def compile_for(
    devices: Sequence[Any],
    module: ir.Module,
    flags: Flags,
    *,
    replicas: int = 1,
    by_shardy: bool = True,
    unspecified: Sequence[bool] = (),
) -> Any:
    """Compile for `described_devices`, which the replicas share; the executable cannot run. Raises COMPILE_ERRORS.

    by_shardy, unspecified: as in `compile_here`.
    """
    options = _options(flags, replicas, len(devices) // replicas, by_shardy, unspecified)
    return devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)


@cache
def described_devices(description: str, count: int = 1) -> Sequence[Any]:
    """`count` devices in one host that stand for a GPU described by the text of a GpuTargetConfigProto.

    Raises NotImplementedError without jax's CUDA plugin and XlaError when XLA cannot take the description.
    """
    topology = f"1x1x{count}"
    found: Sequence[Any] = topologies.get_topology_desc(
        platform="cuda", target_config=description, topology=topology
    ).devices
    return found[:count]


def tpu_devices(topology: str, chip_config: str) -> Sequence[Any]:
    """The TPUs of a topology by libtpu's name for it. chip_config: how a chip's cores are used; "" for the default.

    Needs libtpu and its variables in the environment (`tpus.py`). Raises XlaError, RuntimeError or NotImplementedError.
    """
    more = {"chip_config_name": chip_config} if chip_config else {}
    found: Sequence[Any] = topologies.get_topology_desc(platform="tpu", topology_name=topology, **more).devices
    return found


def own_description() -> str:
    """This machine's GPU as the text of a GpuTargetConfigProto. Raises RuntimeError when there is none."""
    gpus = client("cuda").local_devices()
    return str(xla_client.get_topology_for_devices(gpus[:1]).target_config)


def statistics(executable: Any) -> Any:
    """The planned bytes: `argument_size_in_bytes`, and the same of output, alias and temp."""
    return executable.get_compiled_memory_stats()


def optimised_hlo(executable: Any) -> str:
    """The text of the HLO from which kernels were compiled, of one device's program; scheduled for a GPU."""
    return str(executable.hlo_modules()[0].to_string())


def execute(executable: Any, buffers: Sequence[Any]) -> list[Any]:
    """Start a run on buffers of the device that `compile_here` compiled for; return its results. Raises XlaError."""
    return [shards[0] for shards in executable.execute_sharded(buffers).disassemble_into_single_device_arrays()]


def spread_over(executable: Any, arrays: Sequence[Any], devices: Sequence[Any]) -> list[Any]:
    """Put host arrays onto the devices of a program, each sharded as the program needs it."""
    wanted = [GSPMDSharding(devices, each) for each in executable.get_parameter_shardings()]
    return [jax.device_put(array, one) for array, one in zip(arrays, wanted, strict=True)]


def copy_to_all(arrays: Sequence[Any], devices: Sequence[Any]) -> list[Any]:
    """Put host arrays onto the devices of a program with replicas, all of each onto every device."""
    everywhere = NamedSharding(Mesh(np.asarray(devices), ("replicas",)), PartitionSpec())
    return [jax.device_put(array, everywhere) for array in arrays]


def execute_replicas(executable: Any, buffers: Sequence[Any]) -> list[Any]:
    """Start a run of a program with replicas; return its results, each as a list of the replicas'. Raises XlaError."""
    results: list[Any] = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    return results


def execute_on_all(
    executable: Any, buffers: Sequence[Any], devices: Sequence[Any], shapes: Sequence[Sequence[int]]
) -> list[Any]:
    """Start a run of a program for several devices; return its results, assembled to `shapes`. Raises XlaError."""
    shards = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    found = [GSPMDSharding(devices, each) for each in executable.get_output_shardings()]
    return [
        jax.make_array_from_single_device_arrays(tuple(shape), one, parts)
        for shape, one, parts in zip(shapes, found, shards, strict=True)
    ]


def with_constants_as_arguments(closed: Any, name: str) -> Any:
    """Turn a result of `jax.make_jaxpr` into a function of its constants, then its arguments; it returns a list.

    name: of the function, in the locations of its module.
    """
    jaxpr = closed.jaxpr
    opened = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    run = jaxpr_as_fun(closed.replace(jaxpr=opened, consts=[]))

    def named(*given: Any) -> Any:
        return run(*given)

    named.__name__ = named.__qualname__ = name
    return named


def leave_out_lines_of(folder: Path) -> None:
    """Let jax name no line of the files in a folder as the one that made an op."""
    source_info_util.register_exclusion(f"{folder}/")


def outer_axes(closed: Any) -> list[str]:
    """The named axes of enclosing functions (vmap, shard_map) that a result of `jax.make_jaxpr` communicates along."""
    return sorted(str(effect.name) for effect in closed.effects if isinstance(effect, NamedAxisEffect))


def on_devices_of(closed: Any, values: list[Any]) -> list[Any]:
    """Traced values, on the devices of the first mesh in a result of `jax.make_jaxpr`, with shardings that XLA chooses.

    The values themselves, if it names no mesh, or one without devices (of `jax.set_mesh`).
    """
    named = [one for one, _ in get_intermediate_shardings(closed.jaxpr) if isinstance(one, NamedSharding)]
    if not named:
        return values
    mesh = Mesh(named[0].mesh.devices, named[0].mesh.axis_names)
    free = [PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * value.ndim) for value in values]
    return [
        jax.lax.with_sharding_constraint(value, NamedSharding(mesh, one))
        for value, one in zip(values, free, strict=True)
    ]


def call_exported(exported: jax.export.Exported, given: Sequence[Any]) -> list[Any]:
    """The results of a function that was exported for one device, not committed to any. given: traced values."""
    return list(_SLICED.bind(*given, exported=exported))


def as_weak(value: Any) -> Any:
    """A traced value with the weak type of a Python scalar."""
    return primitives.convert_element_type_p.bind(value, new_dtype=value.dtype, weak_type=True, sharding=None)


def lowered_with(lowered: jax.stages.Lowered, module: ir.Module) -> jax.stages.Lowered:
    """A copy of a lowered function with another module of the same signature."""
    new, computation = copy.copy(lowered), copy.copy(lowered._lowering)
    computation._hlo, computation._executable = module, None  # type: ignore[attr-defined]
    new._lowering = computation
    return new


def _options(flags: Flags, replicas: int, partitions: int, by_shardy: bool, unspecified: Sequence[bool]) -> Any:
    options = xla_client.CompileOptions()
    options.env_option_overrides = list(flags)
    if replicas * partitions == 1:
        return options
    built = options.executable_build_options
    options.num_replicas = built.num_replicas = replicas
    options.num_partitions = built.num_partitions = partitions
    if partitions > 1:
        built.use_spmd_partitioning = True
        built.use_shardy_partitioner = by_shardy
        # As jax.jit does: without it GSPMD replicates these results, and gathers them for that.
        built.allow_spmd_sharding_propagation_to_output = list(unspecified)
    assignment = np.arange(replicas * partitions).reshape(replicas, partitions)
    options.device_assignment = built.device_assignment = xla_client.DeviceAssignment.create(assignment)
    return options
