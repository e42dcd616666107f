"""Lets XLA:CPU compute a position once that a loop of tiles rounds, for an index as well as for a weight.

before:  %i = floor(%c)                   %w = %c - %i      gather(%image, convert %i) * (1 - %w)
after:   %d = %c / (min(%counter + iota, 0) + 1)
         %i = floor(%d)                   %w = %d - %i

Note [Why a rounded position is divided by one]

XLA:CPU recomputes cheap ops in each kernel that reads them, and LLVM contracts a multiplication and an addition in one
kernel but not, or another one of two, in the next. The same `c` may therefore be 3.0000000 where its floor becomes the
index, and 2.9999998 where the weight is computed: then the weight belongs to another index, and an interpolation takes
the neighbour's value. This depends on the shapes of the kernels, so it can happen in tiles where it did not before.

XLA:CPU computes an expensive op such as a division only once if several kernels read it. The divisor is one, which no
simplifier sees because it is computed from the loop's counter, so no number changes. Barriers do not help: they are
removed before the kernels are formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import walk
from exla_opt.ops.rounding import is_index_and_weight, rounds
from exla_opt.ops.traits import Trait, has_trait


def compute_rounded_once(loop: ir.Operation) -> None:
    """Divide by one what a loop of tiles, or the tile after it, rounds for an index and for a weight. In place.

    loop: marked, with its counter, an i32, as its first carry and result.
    """
    body = loop.regions[1].blocks[0]
    _divide_by_one(list(walk(body)), body.arguments[0])
    _divide_by_one(list(_tile_after(loop)), loop.results[0])


def _tile_after(loop: ir.Operation) -> Iterator[ir.Operation]:
    """The ops of the last, shorter tile: they are computed from the loop's final counter, but not from its results."""
    ended = set(loop.results[1:])
    seen: set[ir.Operation] = set()
    queue = [use.owner for use in loop.results[0].uses]
    while queue:
        op = queue.pop().operation
        if op in seen or op.block != loop.block or any(operand in ended for operand in op.operands):
            continue
        seen.add(op)
        yield op
        queue += [use.owner for result in op.results for use in result.uses]


def _divide_by_one(ops: list[ir.Operation], counter: ir.Value) -> None:
    """Let readers of a position that these ops compute and round read its quotient by one, if it is used both ways."""
    known = set(ops)
    for op in ops:
        position = op.operands[0] if rounds(op) else None
        made = position and defining_op(position)
        if made is None or made not in known or has_trait(made, Trait.EXPENSIVE):
            continue
        if is_index_and_weight(op.results[0]):
            _read_quotient(made, op.operands[0], counter)


def _read_quotient(made: ir.Operation, position: ir.Value, counter: ir.Value) -> None:
    readers = [(use.owner.operation, use.operand_number) for use in position.uses]
    with ir.InsertionPoint.after(made), made.location:
        quotient = stablehlo.divide(position, _ones(counter, build.tensor_of(position)))
    for reader, operand in readers:
        reader.operands[operand] = quotient


def _ones(counter: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    """Ones that XLA cannot know, as many as elements: instead of by a broadcast it multiplies by its inverse."""
    integer = build.tensor_of(counter).element_type
    number = stablehlo.iota(ir.RankedTensorType.get([prod(kind.shape)], integer), 0)
    place = stablehlo.add(build.broadcast(counter, kind.shape), build.reshaped(number, kind.shape))
    one = stablehlo.add(stablehlo.minimum(place, build.splat(place.type, 0)), build.splat(place.type, 1))
    return build.convert(one, kind.element_type)
