"""Estimates from XLA's optimised HLO how long a GPU takes for a module, and what it moves and launches.

The HLO is what will run: kernels one after another, those of a loop's body as often as its known trip count says. A
kernel takes as long as its arithmetic or its traffic, whichever is more, plus a fixed cost: the roofline of
`exla_opt/memory/seconds.py` with the same figures of the machine, but on XLA's own kernels instead of predicted ones.
`docs/exla-run.md` gives its accuracy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from exla_opt.memory.machine import Machine
from exla_opt.memory.seconds import LAST_KERNELS
from exla_opt.runtime.gpu_kernels import Kernels
from exla_opt.runtime.hlo import Computation, HloError, Instruction, Module, attribute, parse_hlo

# These take no time: they rename a buffer, or a part of one.
_VIEWS = frozenset(
    "add-dependency async-done bitcast copy-done fusion-done get-tuple-element opt-barrier tuple".split()
)
_FREE = _VIEWS | frozenset("after-all constant domain get-dimension-size parameter partition-id replica-id".split())
# These run a computation once, in their place.
_CALLS = frozenset(("async-start", "call"))

_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_NAMES = re.compile(r"[\w.\-]+")


@dataclass(frozen=True, slots=True)
class GpuTime:
    """The estimated cost of one run on a GPU.

    seconds: of all kernels, one after another. traffic: bytes read from and written to its memory, without reads that
    hit the cache. launches: kernels started, those in loops once per trip. overhead: the part of `seconds` that is the
    fixed costs of kernels and loop trips. at_least: whether the time of some op is unknown, so that all figures are
    lower bounds.
    """

    seconds: float = 0.0
    traffic: float = 0.0
    launches: int = 0
    overhead: float = 0.0
    at_least: bool = False

    @property
    def overhead_share(self) -> float:
        """The overhead as a part of the seconds, from 0 to 1."""
        return self.overhead / self.seconds if self.seconds else 0.0

    def plus(self, other: GpuTime) -> GpuTime:
        """The cost of this and then the other."""
        return GpuTime(
            self.seconds + other.seconds,
            self.traffic + other.traffic,
            self.launches + other.launches,
            self.overhead + other.overhead,
            self.at_least or other.at_least,
        )

    def times(self, trips: int) -> GpuTime:
        """The cost of this many runs."""
        return GpuTime(
            trips * self.seconds, trips * self.traffic, trips * self.launches, trips * self.overhead, self.at_least
        )


def estimate(text: str, machine: Machine) -> GpuTime:
    """The time of one run of optimised and scheduled HLO on a GPU. Linear in the length of the text.

    Raises HloError when the text cannot be read.
    """
    module = parse_hlo(text)
    try:
        return _Estimator(module, Kernels(module, machine)).run(module.entry)
    except (LookupError, ValueError) as error:  # an unknown name, or a wrong number of operands
        raise HloError(f"the HLO contradicts itself: {error}") from None


@dataclass(slots=True)
class _Estimator:
    """Estimates the computations that run kernel by kernel: the entry, and the bodies of loops and branches."""

    module: Module
    kernels: Kernels
    times: dict[str, GpuTime] = field(default_factory=dict)

    def run(self, name: str) -> GpuTime:
        if name not in self.times:
            self.times[name] = self.run_all(self.module.computations[name])
        return self.times[name]

    def run_all(self, computation: Computation) -> GpuTime:
        total = GpuTime()
        written: dict[str, int] = {}  # by name, the number of the kernel that wrote it
        kernels = 0
        for instruction in computation.instructions.values():
            if instruction.opcode in _FREE:
                known = [written[name] for name in instruction.operands if name in written]
                if known and instruction.opcode in _VIEWS:
                    written[instruction.name] = max(known)
                continue
            inside = self.run_inside(instruction)
            if inside is not None:
                total = total.plus(inside)
                continue
            oldest = max(kernels - LAST_KERNELS, 0)
            recent = {name for name in instruction.operands if written.get(name, -1) >= oldest}
            total = total.plus(self.run_kernel(instruction, computation, recent))
            written[instruction.name] = kernels
            kernels += 1
        return total

    def run_inside(self, instruction: Instruction) -> GpuTime | None:
        """The cost of the computations that an instruction runs kernel by kernel; None if it is one kernel itself."""
        if instruction.opcode == "while":
            return self.run_loop(instruction)
        if instruction.opcode == "conditional":
            found = _BRANCHES.search(instruction.attributes)
            names = _NAMES.findall(found[1]) if found else []
            names += [attribute(instruction, each) for each in ("true_computation", "false_computation")]
            return max((self.run(name) for name in names if name), key=lambda time: time.seconds)
        if instruction.opcode in _CALLS:
            return self.run(attribute(instruction, "calls") or attribute(instruction, "to_apply"))
        return None

    def run_loop(self, instruction: Instruction) -> GpuTime:
        """The cost of all trips of a loop; of one trip with its condition if the trip count is unknown."""
        known = _TRIPS.search(instruction.attributes)
        trip = self.run(attribute(instruction, "body"))
        if known is None:
            trip = trip.plus(self.run(attribute(instruction, "condition")))
        cost = self.kernels.machine.seconds_per_trip
        trip = trip.plus(GpuTime(seconds=cost, overhead=cost, at_least=known is None))
        return trip.times(int(known[1]) if known else 1)

    def run_kernel(self, instruction: Instruction, computation: Computation, recent: set[str]) -> GpuTime:
        """The cost of one kernel. recent: the operands that the last kernels wrote."""
        machine = self.kernels.machine
        kernel = self.kernels.of(instruction, computation.instructions)
        reads: dict[str, float] = {}
        for name, size in zip(instruction.operands, kernel.reads, strict=True):
            reads[name] = max(reads.get(name, 0.0), size)
        far, near = kernel.written, 0.0
        for name, size in reads.items():
            if name in recent and computation.instructions[name].bytes < machine.cache_bytes:
                near += size
            else:
                far += size
        moving = far / machine.bytes_per_second + near / machine.cache_bytes_per_second
        loading = kernel.loaded / machine.cache_bytes_per_second
        fixed = machine.seconds_per_kernel
        return GpuTime(max(moving, loading, kernel.work) + fixed, far, 1, fixed, kernel.at_least)
