"""The parts into which Triton splits the sum of a product of matrices that has few elements, so that all cores work.

Measured, not read off: each part is written as float32 and added up afterwards, and where the sum does not divide into
parts whose rows begin at 16 bytes, both operands are written once more, with padding.
"""

from __future__ import annotations

from math import isqrt, log2, prod

from .block import Block, Operation

# A block computes so many rows and columns; so many blocks keep all cores busy. A sum of n terms has about sqrt(n / 3)
# parts, and fewer with more blocks; a small one stays as it is, and where all cores work one that is not long.
_CORES, _LONG = 132, 2048
_TILE, _BLOCKS, _LEAST, _LEAST_WORK = 64, 528, 3, 256
_PART_BYTES, _ALIGNED = 4, 16
_SPLIT = frozenset({"f32", "bf16", "f16"})


def scratch_of_parts(block: Block, op: Operation, written: tuple[bool, ...]) -> int:
    """The bytes of a dot's parts and of its padded operands.

    written: for each operand whether a kernel of no library makes it, which writes it with the padding then.
    """
    [result] = op.results
    if op.operands[0] == op.operands[1] or block.dtypes[op.operands[0]] not in _SPLIT:
        return 0
    left, right, out = (prod(block.shapes[value]) for value in (*op.operands[:2], result))
    shape = block.shapes[result]
    shared = prod(shape[dim] for dim in op.shared if dim < len(shape))
    if not left * right * out * shared:
        return 0
    terms = isqrt(left * right // (out * shared)) or 1
    rows, columns = max(left // (shared * terms), 1), max(right // (shared * terms), 1)
    tiles = shared * -(-rows // _TILE) * -(-columns // _TILE)
    parts = min(_floor(_BLOCKS // tiles), 1 << round(log2(max(terms / (_LEAST * max(tiles / 4, 1)), 1)) / 2))
    if tiles * terms < _LEAST_WORK or (tiles >= _CORES and terms < _LONG):
        return 0
    if parts < 2:
        return 0
    size = block.sizes[op.operands[0]] // left
    needed = parts * out * _PART_BYTES
    if size and terms % (parts * (_ALIGNED // size)):
        needed += sum(block.sizes[value] for value, padded in zip(op.operands[:2], written, strict=True) if not padded)
    return needed


def _floor(count: int) -> int:
    """The largest power of two that is no larger."""
    return 1 << (count.bit_length() - 1) if count > 0 else 0
