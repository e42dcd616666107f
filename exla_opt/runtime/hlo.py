"""A reader of XLA's optimised HLO: computations and their instructions in scheduled order, from the text.

jaxlib exposes shapes of instructions only as text. Only what a time estimate needs is parsed: shapes without layouts,
operands by name, and the rest of the line as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

# `%name (parameters) -> shape {` or `ENTRY %name (...) -> shape {`.
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_START = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_OPERAND = re.compile(r"%([\w.\-]+)")
_COMMENT = re.compile(r"/\*.*?\*/")
# The op names of the program may contain anything, even text that looks like an attribute.
_METADATA = re.compile(r", metadata=\{(?:[^\"{}]|\"(?:[^\"\\]|\\.)*\")*\}")
_PARENTHESIS = re.compile(r"[()]")
_WIDTH = re.compile(r"[a-z]+(\d+)")
# The element types whose width their name does not give.
_BITS = {"pred": 8, "token": 0, "opaque": 0}


class HloError(ValueError):
    """The text is not optimised HLO as XLA prints it; the message says where."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One array: its element type as HLO spells it, as in `bf16`, and its dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements it has; 1 for a scalar."""
        return prod(self.dims)

    @property
    def bytes(self) -> float:
        """Bytes of all elements; an element narrower than a byte counts its part of one."""
        return self.elements * bits_of(self.dtype) / 8


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation.

    shapes: of the result; for a tuple, of its elements, nested ones flattened. operands: names. number: of a parameter,
    else 0. attributes: the text after the operands, without metadata.
    """

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    number: int
    attributes: str

    @property
    def shape(self) -> Shape:
        """The shape of the result, or of the first element of a tuple."""
        return self.shapes[0] if self.shapes else _NOTHING

    @property
    def bytes(self) -> float:
        """Bytes of all results together."""
        return sum(shape.bytes for shape in self.shapes)


_NOTHING = Shape("token", ())


@dataclass(frozen=True, slots=True)
class Computation:
    """Instructions in execution order, by name. root: the name of the instruction whose result is returned."""

    instructions: dict[str, Instruction]
    root: str


@dataclass(frozen=True, slots=True)
class Module:
    """Computations by name. entry: the name of the one that is the program."""

    computations: dict[str, Computation]
    entry: str


def bits_of(dtype: str) -> int:
    """The width of an element type as HLO spells it: 16 for `bf16`, 8 for `f8e4m3fn`, 0 for a token."""
    if dtype in _BITS:
        return _BITS[dtype]
    found = _WIDTH.match(dtype)
    return int(found[1]) if found else 0


def parse_hlo(text: str) -> Module:
    """Read the text of an HLO module, as `HloModule.to_string()` prints it. Linear in its length.

    Raises HloError when there is no entry computation or a line of one cannot be read.
    """
    computations: dict[str, Computation] = {}
    entry, name, root = "", "", ""
    instructions: dict[str, Instruction] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if name and line.startswith("}"):
            computations[name] = Computation(instructions, root or next(reversed(instructions), ""))
            name = ""
        elif name:
            is_root, instruction = _read_instruction(line, number)
            instructions[instruction.name] = instruction
            root = instruction.name if is_root else root
        elif head := _HEAD.match(line):
            name, root, instructions = head[2], "", {}
            entry = name if head[1] else entry
    if not entry or entry not in computations:
        raise HloError("no entry computation")
    return Module(computations, entry)


def attribute(instruction: Instruction, name: str) -> str:
    """The computation that an attribute names, as in `calls=%fused`; "" without that attribute."""
    found = re.search(rf"\b{name}=%?([\w.\-]+)", instruction.attributes)
    return found[1] if found else ""


def _read_instruction(line: str, number: int) -> tuple[bool, Instruction]:
    start = _START.match(line)
    if start is None:
        raise HloError(f"line {number} is no instruction")
    line = _COMMENT.sub("", line) if "/*" in line else line
    begin = start.end()
    end = _closing(line, begin) + 1 if line.startswith("(", begin) else line.find(" ", begin)
    opcode = _OPCODE.match(line, end) if end > 0 else None
    if opcode is None:
        raise HloError(f"line {number} has no opcode")
    close = _closing(line, opcode.end() - 1)
    shapes = tuple(
        Shape(dtype, tuple(int(size.removeprefix("<=")) for size in dims.split(",") if size))
        for dtype, dims in _SHAPE.findall(line, begin, end)
    )
    operands = () if opcode[1] == "constant" else tuple(_OPERAND.findall(line, opcode.end(), close))
    number = int(line[opcode.end() : close]) if opcode[1] == "parameter" else 0
    attributes = _METADATA.sub("", line[close + 1 :])
    return bool(start[1]), Instruction(start[2], opcode[1], shapes, operands, number, attributes)


def _closing(line: str, begin: int) -> int:
    """The position of the parenthesis that closes the one at `begin`; the end of the line if there is none."""
    depth = 0
    for found in _PARENTHESIS.finditer(line, begin):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    return len(line)
