"""The work of a kernel in optimised HLO: the bytes that it reads and writes, and the seconds of its arithmetic.

NOTE [What a fusion reads]: a fused computation may read only a part of a parameter. So we walk it backwards from its
results, and compute for each instruction how many elements of its operands it needs for the needed elements of its
result: a slice needs no more than itself, a reduce all of its rows. Elements that several uses need count once. An
in-place update reads and writes only its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exla_opt.memory.machine import Machine
from exla_opt.runtime.gpu_arithmetic import seconds_of_work
from exla_opt.runtime.hlo import Instruction, Module, attribute, bits_of

# These need as much of the first operand as is needed of them, and all of the others: indices and numbers.
_CUTS = frozenset("dynamic-slice gather slice".split())
# These need all of their operands, however little is needed of them.
_TAKE_ALL = frozenset(
    "cholesky concatenate convolution custom-call dot fft select-and-scatter sort triangular-solve".split()
)
_FUSIONS = frozenset(("fusion", "fusion-start"))
# Only the first result of these counts; the others are scratch space.
_ONE_RESULT = frozenset(("copy-start", "custom-call"))
_IN_PLACE = frozenset(("dynamic-update-slice", "scatter"))


@dataclass(frozen=True, slots=True)
class Kernel:
    """The work of one kernel.

    reads: the bytes read of each operand. written: bytes. work: the seconds of its arithmetic. loaded: the bytes that
    it loads from a cache again and again, for all elements of broadcasts. at_least: whether the time of some of it is
    unknown.
    """

    reads: tuple[float, ...]
    written: float
    work: float
    loaded: float = 0.0
    at_least: bool = False


@dataclass(slots=True)
class Kernels:
    """The kernels of a module; each fused computation is read once."""

    module: Module
    machine: Machine
    fused: dict[str, Kernel] = field(default_factory=dict)

    def of(self, instruction: Instruction, around: Mapping[str, Instruction]) -> Kernel:
        """The work of an instruction that is one kernel. around: the instructions of its computation, by name.

        Raises LookupError and ValueError if the HLO is inconsistent.
        """
        if instruction.opcode in _FUSIONS:
            return self.fusion(attribute(instruction, "calls"))
        operands = [around[name] for name in instruction.operands]
        amount = _written(instruction, around)
        reads = _taken(instruction, operands, amount)
        sizes = tuple(part * _element_bytes(each) for part, each in zip(reads, operands, strict=True))
        work, is_known = seconds_of_work(instruction, operands, amount, self.machine)
        return Kernel(sizes, amount * _element_bytes(instruction), work, at_least=not is_known)

    def fusion(self, name: str) -> Kernel:
        """The work of a fused computation: see NOTE [What a fusion reads]."""
        if name in self.fused:
            return self.fused[name]
        computation = self.module.computations[name]
        around = computation.instructions
        results = {each.name: each for each in _results(around[computation.root], around)}
        wanted = dict.fromkeys(around, 0.0)
        wanted.update({name: _written(each, around) for name, each in results.items()})
        work, loaded, is_known = 0.0, 0.0, True
        from_memory = _read_from_memory(around)
        for each in reversed(around.values()):
            if not wanted[each.name]:
                continue
            operands = [around[operand] for operand in each.operands]
            reads, seconds, known = self.inside(each, operands, wanted[each.name], each.name in results)
            for operand, read in zip(operands, reads, strict=True):
                wanted[operand.name] = max(wanted[operand.name], min(read, operand.shape.elements))
            work, is_known = work + seconds, is_known and known
            loaded += self.loaded(each, operands, wanted[each.name]) if each.name in from_memory else 0.0
        found = Kernel(
            tuple(wanted[each.name] * _element_bytes(each) for each in _parameters(around.values())),
            sum(_written(each, around) * _element_bytes(each) for each in results.values()),
            work,
            loaded,
            not is_known,
        )
        self.fused[name] = found
        return found

    def loaded(self, instruction: Instruction, operands: Sequence[Instruction], amount: float) -> float:
        """The bytes that `amount` elements of an instruction in a fusion load from a cache.

        An element of a broadcast is loaded by each element that is computed of it; a number is kept in a register.
        """
        if instruction.opcode == "fusion":
            part = min(amount / max(instruction.shape.elements, 1), 1.0)
            return part * self.fusion(attribute(instruction, "calls")).loaded
        if instruction.opcode != "broadcast" or operands[0].shape.elements == 1:
            return 0.0
        return amount * _element_bytes(operands[0])

    def inside(
        self, instruction: Instruction, operands: Sequence[Instruction], amount: float, is_result: bool
    ) -> tuple[list[float], float, bool]:
        """The elements of each operand that an instruction in a fusion needs for `amount` elements of its result, the
        seconds of its arithmetic, and whether they are known."""
        if instruction.opcode != "fusion":
            reads = _taken(instruction, operands, amount, is_result)
            return reads, *seconds_of_work(instruction, operands, amount, self.machine)
        inner = self.fusion(attribute(instruction, "calls"))
        part = min(amount / max(instruction.shape.elements, 1), 1.0)
        sizes = [max(_element_bytes(operand), 1 / 8) for operand in operands]
        reads = [part * read / size for read, size in zip(inner.reads, sizes, strict=True)]
        return reads, part * inner.work, not inner.at_least


def _read_from_memory(around: Mapping[str, Instruction]) -> set[str]:
    """The instructions of a fusion that depend on a tensor that is read; numbers and iotas are in registers."""
    read: set[str] = set()
    for each in around.values():
        if each.opcode == "parameter":
            if each.shape.elements > 1:
                read.add(each.name)
        elif any(name in read for name in each.operands):
            read.add(each.name)
    return read


def _parameters(instructions: Iterable[Instruction]) -> list[Instruction]:
    return sorted((each for each in instructions if each.opcode == "parameter"), key=lambda each: each.number)


def _element_bytes(instruction: Instruction) -> float:
    """The bytes of one element of all results together: a reduce of two tensors computes two in step."""
    shapes = instruction.shapes[:1] if instruction.opcode in _ONE_RESULT else instruction.shapes
    return sum(bits_of(shape.dtype) for shape in shapes) / 8


def _results(root: Instruction, around: Mapping[str, Instruction]) -> Iterable[Instruction]:
    """The results of a fusion: its root, or the root's elements if it is a tuple; in-place updates under views."""
    if root.opcode == "tuple":
        for name in root.operands:
            yield from _results(around[name], around)
        return
    inner = root
    while inner.opcode in ("bitcast", "get-tuple-element"):
        inner = around[inner.operands[0]]
    yield inner if inner.opcode in _IN_PLACE or root.opcode == "get-tuple-element" else root


def _written(instruction: Instruction, around: Mapping[str, Instruction]) -> float:
    """The number of elements of each result that a kernel writes."""
    if instruction.opcode not in _IN_PLACE:
        return instruction.shape.elements
    updates = around[instruction.operands[1 if instruction.opcode == "dynamic-update-slice" else -1]]
    return min(instruction.shape.elements, updates.shape.elements)


def _taken(
    instruction: Instruction, operands: Sequence[Instruction], amount: float, is_in_place: bool = True
) -> list[float]:
    """The elements of each operand that `amount` elements of the result need.

    is_in_place: whether an update overwrites its operand.
    """
    opcode = instruction.opcode
    all_of = [float(each.shape.elements) for each in operands]
    if opcode in _TAKE_ALL:
        return all_of
    if opcode in _CUTS:
        return [min(amount, all_of[0]), *all_of[1:]]
    if opcode == "dynamic-update-slice":
        return [0.0 if is_in_place else amount, *all_of[1:]]
    if opcode == "scatter":
        tables = len(instruction.shapes)
        return [min(amount, size) for size in all_of[:tables]] + all_of[tables:]
    if opcode in ("reduce", "reduce-window"):
        part = min(amount / max(instruction.shape.elements, 1), 1.0)
        return [part * size for size in all_of]
    return [min(amount, size) for size in all_of]
