"""A module becomes a program that runs, through the PJRT client that jax brings."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from exla_opt.ir.diagnostics import InputError
from exla_opt.runtime import pjrt
from exla_opt.runtime.inputs import Array

Device = Literal["cpu", "cuda"]

# XLA:CPU's YNN fusions keep entire tensors in scratch memory that no statistic counts. Without them the sizes are
# true; with them, as every user has it, the times are.
_WITHOUT_YNN = [("xla_cpu_experimental_ynn_fusion_type", "")]
# XLA:CPU plans memory before LLVM makes code, so that the sizes are true at any level of LLVM's, in half the time.
_UNOPTIMISED = [("xla_backend_optimization_level", "0")]


@dataclass(frozen=True)
class Program:
    """A compiled module: PJRT's executable and the device that it was compiled for."""

    executable: Any
    device: Any


def check_device(device: Device) -> None:
    """Raise InputError when this machine has no such device."""
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

    `count_all_memory` leaves out XLA:CPU's uncounted scratch memory: such a program is for reading memory
    statistics, not for timing. Without `optimise` LLVM leaves a CPU's code as it is: the same memory, to be read and
    not to be run. Raises InputError when there is no such device and when XLA refuses the module.
    """
    check_device(device)
    flags = [*(_WITHOUT_YNN if count_all_memory else ()), *(() if optimise else _UNOPTIMISED)]
    try:
        return Program(*pjrt.compile_here(device, module, flags if device == "cpu" else ()))
    except pjrt.COMPILE_ERRORS as error:
        raise InputError(f"XLA cannot compile this module: {first_line(error)}") from None


def run_program(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """Run once on `arrays`, one for each argument, and return the results, one for each result.

    The arrays stay as they are even where the module donates its arguments. Raises InputError when the run
    fails, as it does when memory runs out.
    """
    return _run(program, arrays)[0]


def time_programs(programs: Sequence[Program], arrays: Sequence[Array], repeats: int) -> list[float]:
    """The median seconds of a run of each program on `arrays`, over `repeats` >= 1 runs.

    Each program should have run once before, for its first run is slower. They take turns, so that a disturbance
    of the machine hits all of them. Transfers are not counted. Raises InputError when a run fails.
    """
    seconds: list[list[float]] = [[] for _ in programs]
    for _ in range(repeats):
        for times, program in zip(seconds, programs, strict=True):
            times.append(_run(program, arrays)[1])
    return [statistics.median(times) for times in seconds]


def _run(program: Program, arrays: Sequence[Array]) -> tuple[list[Array], float]:
    try:
        # Fresh buffers each time: a donated one is gone after the run. Without x64, jax would halve wide dtypes.
        with jax.enable_x64(True):
            buffers = [jax.device_put(array, program.device) for array in arrays]
        jax.block_until_ready(buffers)
        start = time.perf_counter()
        results = pjrt.execute(program.executable, buffers)
        jax.block_until_ready(results)
        seconds = time.perf_counter() - start
        return [np.asarray(result) for result in results], seconds
    except (pjrt.XlaError, MemoryError) as error:
        raise InputError(f"the run failed: {first_line(error) or 'out of memory'}") from None


_CUDA_HELP = "pip install 'jax[cuda13]' on a machine with an NVIDIA driver, or use --device cpu"


def first_line(error: BaseException) -> str:
    """What jax or XLA says, without the rest of its report and without a full stop."""
    return str(error).strip().partition("\n")[0].rstrip(".")
