"""Matrix products as Triton computes them, split into parts if kernels would be too few, and as cuBLAS does.

The number of parts is the choice of XLA's SplitkRewriter, with its weights for Hopper: the products of all parts take
the maximum of arithmetic and memory traffic, and summing the parts costs a kernel and its bytes. For cuBLAS, rows,
columns and terms of unbatched 16-bit floats are padded to multiples of eight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isqrt, prod

from exla_opt.ops.traits import Trait, traits_of

from ..block import Block, Operation

_CORES, _TILE = 132, 128
_PER_FLOP, _PER_BYTE, _PER_SUMMED_BYTE, _LAUNCH = 100.0, 0.194136, 193.1384, 4.36e7
_NUMBERS = tuple(1 << power for power in range(12))
# Rows of parts are aligned to this many bytes.
_ALIGNED = 16
# Parts are 32-bit floats if their sum is narrower; products of 32-bit integers are not split.
_PART_DTYPE, _PART_BYTES = "f32", 4
_SIDES = ("left", "right")
# The existing copies, by their source and length.
_Padded = dict[tuple[int, int], int]
_PADDED, _MULTIPLE = frozenset({"bf16", "f16"}), 8
_NEVER_SPLIT = frozenset({"i32", "ui32", "si32"})


@dataclass(frozen=True, slots=True)
class _Product:
    """The lengths of a product of matrices, and the bytes of one element of each side, of a part and of the result."""

    batch: int
    rows: int
    columns: int
    terms: int
    sides: tuple[int, int]
    part: int
    out: int

    def cost(self, parts: int) -> float:
        """XLA's cost of the product in this many parts."""
        terms, batch = -(-self.terms // parts), self.batch * parts
        rows, columns = min(self.rows, _TILE), min(self.columns, _TILE)
        tiles = batch * -(-self.rows // _TILE) * -(-self.columns // _TILE)
        waves = max(1.0, tiles * rows * columns / (_CORES * _TILE**2))
        compute = 2 * rows * columns * terms * waves * _PER_FLOP
        found = self.rows * self.columns
        read = self.batch * self.terms * (self.rows * self.sides[0] + self.columns * self.sides[1])
        written = found * batch * (self.part if parts > 1 else self.out)
        cost = max(compute, (read + written) * _PER_BYTE)
        if parts == 1:
            return cost
        return cost + _LAUNCH + found * (batch * self.part + self.batch * self.out) * _PER_SUMMED_BYTE

    def parts(self) -> int:
        """The cheapest number of parts."""
        return min(_NUMBERS, key=self.cost)

    def padded(self, parts: int) -> int:
        """The number of terms in all parts together, zero padding included."""
        step = max(parts * _ALIGNED // min(_ALIGNED, *self.sides), 1)
        return -(-self.terms // step) * step


def with_parts(block: Block) -> Block:
    """A copy of a block, and of those inside it, in which matrix products are sums of parts if that pays."""

    def split(made: Block, op: Operation, found: _Product, padded: _Padded) -> bool:
        parts = found.parts()
        if parts > 1:
            _split(made, op, found, parts, padded)
        return parts > 1

    return _rewritten(block, split)


def with_padding(block: Block) -> Block:
    """A copy of a block, and of those inside it, in which narrow floats are padded to the lengths that cuBLAS needs."""

    def pad(made: Block, op: Operation, found: _Product, padded: _Padded) -> bool:
        is_narrow = all(made.dtypes[value] in _PADDED for value in op.operands[:2]) and not op.shared
        if not is_narrow or not (found.rows % _MULTIPLE or found.columns % _MULTIPLE or found.terms % _MULTIPLE):
            return False
        _pad(made, op, found, padded)
        return True

    return _rewritten(block, pad)


def _rewritten(block: Block, rewrite: Callable[[Block, Operation, _Product, _Padded], bool]) -> Block:
    """A copy of a block, and of those inside it. rewrite: appends the rewritten product, or returns False."""
    made = block.copied()
    made.ops = []
    producer = {value: op for op in block.ops for value in op.results}
    padded: _Padded = {}
    for given in block.ops:
        bodies = tuple(_rewritten(body, rewrite) for body in given.bodies)
        op = replace(given, bodies=bodies) if bodies else given
        found = _product_of(block, op, producer)
        if found is None or not rewrite(made, op, found, padded):
            made.ops.append(op)
    return made


def _pad(made: Block, op: Operation, found: _Product, padded: _Padded) -> None:
    """Append the op with padded operands, and the slice of its result without padding."""
    [result] = op.results
    rows, columns, terms = (-(-size // _MULTIPLE) * _MULTIPLE for size in (found.rows, found.columns, found.terms))
    count, whole = found.batch * found.rows * found.columns, found.batch * rows * columns
    lengths = [found.batch * rows * terms, found.batch * columns * terms, *[whole] * len(op.operands[2:])]
    operands: list[int] = []
    for operand, length in zip(op.operands, lengths, strict=True):
        own, value = prod(made.shapes[operand]), operand
        is_padded = own != length and (len(operands) < len(_SIDES) or own == count)
        if is_padded and (value, length) not in padded:
            size = made.sizes[value] // own * length
            padded[value, length] = _fresh(made, result, (length,), size, made.dtypes[value])
            made.ops.append(Operation("pad", traits_of("stablehlo.pad"), (value,), (padded[value, length],)))
        operands.append(padded[value, length] if is_padded else value)
    if whole == count:
        made.ops.append(replace(op, operands=tuple(operands)))
        return
    larger = _fresh(made, result, (found.batch, rows, columns), whole * found.out, made.dtypes[result])
    made.ops.append(replace(op, operands=tuple(operands), results=(larger,), shared=(0,)))
    made.ops.append(Operation("slice", traits_of("stablehlo.slice"), (larger,), (result,)))


def _product_of(block: Block, op: Operation, producer: dict[int, Operation]) -> _Product | None:
    """The lengths of a matrix product; None for any other op."""
    if op.name != "dot_general" or any(block.dtypes[value] in _NEVER_SPLIT for value in op.operands[:2]):
        return None
    [result] = op.results
    shape = block.shapes[result]
    left, right, out = (prod(block.shapes[value]) for value in (*op.operands[:2], result))
    batch = prod(shape[dim] for dim in op.shared if dim < len(shape))
    if not left * right * out * batch:
        return None
    terms = isqrt(left * right // (out * batch)) or 1
    rows, columns = max(left // (batch * terms), 1), max(right // (batch * terms), 1)
    one, other = (_bytes_read(block, value, producer) for value in op.operands[:2])
    own = block.sizes[result] // out
    return _Product(batch, rows, columns, terms, (one, other), max(own, _PART_BYTES), own)


def _bytes_read(block: Block, value: int, producer: dict[int, Operation]) -> int:
    """The bytes per element of a tensor, or of its source through ops of one operand."""
    while (op := producer.get(value)) is not None and Trait.POINTWISE in op.traits and len(op.operands) == 1:
        [value] = op.operands
    return max(block.sizes[value] // max(prod(block.shapes[value]), 1), 1)


def _split(made: Block, op: Operation, found: _Product, parts: int, padded: _Padded) -> None:
    """Append the op in parts, with padded operands, and the sum of the parts."""
    [result] = op.results
    terms = found.padded(parts)
    operands = []
    for operand in op.operands[:2]:
        value = operand
        if terms != found.terms:
            if (value, terms) not in padded:
                size = made.sizes[value] * terms // found.terms
                shape = (prod(made.shapes[value]) // found.terms * terms,)
                padded[value, terms] = _fresh(made, result, shape, size, made.dtypes[value])
                made.ops.append(
                    Operation("pad", traits_of("stablehlo.pad"), (value,), (padded[value, terms],), together=terms)
                )
            value = padded[value, terms]
        operands.append(value)
    own = made.shapes[result]
    count = prod(own)
    dtype = made.dtypes[result] if found.out >= _PART_BYTES else _PART_DTYPE
    several = _fresh(made, result, (parts, *own), parts * count * found.part, dtype)
    made.ops.append(replace(op, operands=tuple(operands), results=(several,), shared=tuple(range(len(op.shared) + 1))))
    rest = op.operands[2:]
    total = _fresh(made, result, own, count * found.part, dtype) if rest else result
    reduce = traits_of("stablehlo.reduce")
    made.ops.append(Operation("reduce", reduce, (several,), (total,), lengths=(parts,), together=count))
    if rest:
        made.ops.append(Operation("add", traits_of("stablehlo.add"), (total, *rest), (result,)))


def _fresh(made: Block, like: int, shape: tuple[int, ...], size: int, dtype: str) -> int:
    value = made.add_tensor(shape, size, dtype)
    if like in made.values:
        made.values[value] = made.values[like]
    return value
