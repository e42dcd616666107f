"""Compiles modules with jax's PJRT client, and runs and times them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.attributes import PARTITIONS, REPLICAS, devices_of, replicas_of
from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import PARSER_FILE, InputError
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import main_function
from exla_opt.runtime import pjrt
from exla_opt.runtime.inputs import Array
from exla_opt.sharding.gspmd import is_gspmd, unspecified_results

Device = Literal["cpu", "cuda"]

# XLA:CPU's YNN fusions keep entire tensors in scratch memory that no statistic counts. Sizes are correct without them,
# times with them, as every user has them.
_WITHOUT_YNN = [("xla_cpu_experimental_ynn_fusion_type", "")]
# XLA:CPU plans memory before LLVM generates code: LLVM's lowest level gives the same sizes in half the time.
_UNOPTIMISED = [("xla_backend_optimization_level", "0")]


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of devices that a module's tensors are sharded over, and the shapes of its results if there are
    several, which are needed to assemble them.

    by_shardy: its shardings are Shardy's, not GSPMD's. replicas: how many times it runs, each time on devices of its
    own. unspecified: of each result, whether it has no sharding.
    """

    partitions: int = 1
    by_shardy: bool = True
    shapes: tuple[tuple[int, ...], ...] = ()
    replicas: int = 1
    unspecified: tuple[bool, ...] = ()

    @property
    def devices(self) -> int:
        """The number of devices in all."""
        return self.replicas * self.partitions


@dataclass(frozen=True)
class Program:
    """A compiled module: PJRT's executable, the devices that it was compiled for, and how it is spread over them."""

    executable: Any
    devices: Sequence[Any]
    spread: Spread = field(default_factory=Spread)


def read_spread(module: str | bytes) -> Spread:
    """Read how a module is partitioned and replicated. Raises InputError when it cannot be read."""
    data = module.encode() if isinstance(module, str) else module
    if PARTITIONS.encode() not in data and REPLICAS.encode() not in data:
        return Spread()
    parsed = parse_module(PARSER_FILE, data, new_context()).module
    partitions, replicas = devices_of(parsed), replicas_of(parsed)
    if partitions == 1:
        return Spread(replicas=replicas)
    results = ir.FunctionType(ir.TypeAttr(main_function(parsed).attributes["function_type"]).value).results
    shapes = tuple(tuple(ir.RankedTensorType(kind).shape) for kind in results)
    return Spread(partitions, not is_gspmd(parsed), shapes, replicas, tuple(unspecified_results(parsed)))


def check_device(device: Device, count: int = 1) -> None:
    """Raise InputError if this machine lacks the device. Unless jax is in use, the CPU becomes `count` devices."""
    if device == "cpu" and count > 1:
        pjrt.ask_for_cpus(count)
    try:
        pjrt.client(device)
    except RuntimeError as error:
        if device == "cpu":
            raise
        raise InputError(
            f"no CUDA device can be used here ({first_line(error)})", file="--device=cuda", help=_CUDA_HELP
        ) from None


def compile_program(
    module: str | bytes, device: Device = "cpu", *, count_all_memory: bool = False, optimise: bool = True
) -> Program:
    """Compile a module given as text, MLIR bytecode or a portable artifact.

    `count_all_memory` leaves out XLA:CPU's uncounted scratch memory: such a program is for reading memory statistics,
    not for timing. Without `optimise`, LLVM does not optimise a CPU's code: the memory is the same, but the program is
    not meant to run. Raises InputError when there is no such device and when XLA refuses the module.
    """
    spread = read_spread(module)
    check_device(device, spread.devices)
    flags = [*(_WITHOUT_YNN if count_all_memory else ()), *(() if optimise else _UNOPTIMISED)]
    return _compile(module, device, spread, flags)


def compile_to_measure(module: str | bytes, device: Device) -> list[Program]:
    """Compile a module without LLVM's optimisations, for a CPU with YNN fusions and without them, both at once.

    Raises what `compile_program` raises; then too, both compiles have ended.
    """
    spread = read_spread(module)
    check_device(device, spread.devices)
    if device != "cpu":
        return [_compile(module, device, spread, ())]
    with ThreadPoolExecutor(2) as pool:
        ways = [[*_WITHOUT_YNN, *_UNOPTIMISED], _UNOPTIMISED]
        return list(pool.map(lambda flags: _compile(module, device, spread, flags), ways))


def _compile(module: str | bytes, device: Device, spread: Spread, flags: pjrt.Flags) -> Program:
    try:
        compiled, devices = pjrt.compile_here(
            device,
            module,
            flags if device == "cpu" else (),
            spread.partitions,
            replicas=spread.replicas,
            by_shardy=spread.by_shardy,
            unspecified=spread.unspecified,
        )
        return Program(compiled, devices, spread)
    except pjrt.TooFewDevices as error:
        here = f"this machine has {error.args[0]}" if device != "cpu" else "jax was started with fewer"
        raise InputError(f"the module is for {spread.devices} devices, and {here}") from None
    except pjrt.COMPILE_ERRORS as error:
        raise InputError(f"XLA cannot compile this module: {first_line(error)}") from None


def run_program(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """Run once on `arrays`, one for each argument, and return the results, one for each result.

    The arrays are unchanged even if the module donates its arguments. If it has replicas, all get the same arrays, and
    each result has all of theirs, along a first dimension. Raises InputError when the run fails, as it does when memory
    runs out, and for a module with replicas of several devices each.
    """
    return _run(program, arrays)[0]


def time_programs(programs: Sequence[Program], arrays: Sequence[Array], repeats: int) -> list[float]:
    """The median seconds of a run of each program on `arrays`, over `repeats` >= 1 runs.

    Each program should have run once before, as its first run is slower. They take turns, so that a disturbance of the
    machine affects all of them. Transfers are not counted. Raises InputError when a run fails.
    """
    seconds: list[list[float]] = [[] for _ in programs]
    for _ in range(repeats):
        for times, program in zip(seconds, programs, strict=True):
            times.append(_run(program, arrays)[1])
    return [statistics.median(times) for times in seconds]


def _run(program: Program, arrays: Sequence[Array]) -> tuple[list[Array], float]:
    spread = program.spread
    if spread.replicas > 1 and spread.partitions > 1:
        raise InputError(f"no module of {spread.replicas} replicas on {spread.partitions} devices each can be run here")
    try:
        # Fresh buffers each time: a run consumes donated ones. Without x64, jax would halve wide dtypes.
        with jax.enable_x64(True):
            if spread.devices == 1:
                buffers = [jax.device_put(array, program.devices[0]) for array in arrays]
            elif spread.replicas > 1:
                buffers = pjrt.copy_to_all(arrays, program.devices)
            else:
                buffers = pjrt.spread_over(program.executable, arrays, program.devices)
        jax.block_until_ready(buffers)
        start = time.perf_counter()
        if spread.devices == 1:
            results = pjrt.execute(program.executable, buffers)
        elif spread.replicas > 1:
            results = pjrt.execute_replicas(program.executable, buffers)
        else:
            results = pjrt.execute_on_all(program.executable, buffers, program.devices, spread.shapes)
        jax.block_until_ready(results)
        seconds = time.perf_counter() - start
        if spread.replicas > 1:
            return [np.stack([np.asarray(each) for each in result]) for result in results], seconds
        return [np.asarray(result) for result in results], seconds
    except (pjrt.XlaError, MemoryError) as error:
        raise InputError(f"the run failed: {first_line(error) or 'out of memory'}") from None


_CUDA_HELP = "pip install 'jax[cuda13]' on a machine with an NVIDIA driver, or use --device cpu"


def first_line(error: BaseException) -> str:
    """The first line of jax's or XLA's message, without a full stop."""
    return str(error).strip().partition("\n")[0].rstrip(".")
