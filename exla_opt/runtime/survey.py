"""Finds the devices on which modules fit: their peaks on many devices, in bounded time.

XLA's memory plan for a GPU depends on its compute capability; the rest of the GPU matters only when memory is short and
XLA recomputes tensors. So each capability is compiled for once, with cuBLAS's matrix products, for its GPU with the
most memory, and again for each GPU of which the peak takes more than half. TPUs are compiled for in parallel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from exla_opt.ir.diagnostics import InputError
from exla_opt.runtime.gpus import GPUS, Generation
from exla_opt.runtime.target import NoSuchTarget, Target, TargetError, compiled_for_tpu, compiled_memory, parse_target
from exla_opt.runtime.tpus import LONGEST, TPUS

# Above this part of a GPU's memory, the plan may depend on the GPU.
_SHORT = 0.5
_GEMMS = ("cuBLAS",)


@dataclass(frozen=True, slots=True)
class Row:
    """One device.

    memory: its bytes; 0 if the target cannot be used. peaks: the bytes of each module; if None, `why` says why not.
    is_target: whether the target is at fault for that, not the module.
    """

    target: str
    memory: int
    peaks: tuple[int, ...] | None
    why: str = ""
    is_target: bool = False


@dataclass(slots=True)
class _Survey:
    modules: Sequence[bytes]
    deadline: float
    compiled: dict[Generation, tuple[str, tuple[int, ...]]]

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def peaks(self, target: Target) -> tuple[int, ...]:
        found = []
        for module in self.modules:
            if self.left() <= 0:
                raise TargetError(target.name, _OVER)
            if target.tpu is not None:
                found.append(compiled_for_tpu(module, target, min(self.left(), LONGEST)).memory.peak)
            else:
                found.append(compiled_memory(module, target, _GEMMS).memory.peak)
        return tuple(found)

    def gpu_peaks(self, target: Target) -> tuple[int, ...]:
        """The peaks on a known GPU: from the compile for its capability, unless memory is short."""
        kind = GPUS[target.name.partition(":")[2]].generation
        if kind in self.compiled:
            _, peaks = self.compiled[kind]
            if max(peaks) <= _SHORT * target.memory:
                return peaks
        found = self.peaks(target)
        self.compiled.setdefault(kind, (target.name, found))
        return found

    def row(self, name: str) -> Row:
        memory = 0
        try:
            target = parse_target(name)
            memory = target.memory
            is_known = name.partition(":")[2] in GPUS
            return Row(name, memory, self.gpu_peaks(target) if is_known else self.peaks(target))
        except TargetError as error:
            return Row(name, memory, None, error.message, is_target=True)
        except InputError as error:
            return Row(name, memory, None, error.message)


_OVER = "not compiled: out of time; name it alone"


def all_targets() -> list[str]:
    """The names of all targets that need not be in this machine, and its CPU."""
    return ["cpu", *(f"cuda:{name}" for name in GPUS), *(f"tpu:{name}" for name in TPUS)]


def survey(
    modules: Sequence[bytes], names: Sequence[str], seconds: float, tried: Callable[[str], None] = lambda name: None
) -> list[Row]:
    """Return a row for each target of `names`, in their order. modules: bytecode, text or portable artifacts.

    seconds: after these, no compile starts and a TPU's compile is stopped. tried: called with each target before it is
    compiled for. Raises InputError when a module cannot be read and, before anything is compiled, NoSuchTarget for an
    unknown name.
    """
    for name in names:
        _check_name(name)
    work = _Survey(modules, time.monotonic() + seconds, {})
    # The GPU with the most memory first: its figures hold for the others of its capability if memory is not short.
    here = sorted((name for name in names if not name.startswith("tpu:")), key=_order)
    rows: dict[str, Row] = {}
    with ThreadPoolExecutor(max_workers=1) as pool:
        elsewhere: dict[str, Future[Row]] = {name: pool.submit(work.row, name) for name in names if name not in here}
        for name in here:
            tried(name)
            rows[name] = work.row(name)
        rows |= {name: future.result() for name, future in elsewhere.items()}
    return [rows[name] for name in names]


def _check_name(name: str) -> None:
    try:
        parse_target(name)
    except NoSuchTarget:
        raise
    except TargetError:  # its row gives the reason
        pass


def _order(name: str) -> tuple[bool, int]:
    gpu = GPUS.get(name.partition(":")[2])
    return (gpu is not None, 0 if gpu is None else -gpu.memory)
