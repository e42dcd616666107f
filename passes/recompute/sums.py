"""Sums of several big tensors for a CPU, added up as soon as each is there.

before:  %t = add (add (add %a, %b), %c), %d
after:   %ab = add %a, %b
         %abc = while (%sum = %ab) { half by half: %sum plus that half of %c, in place }
         %t = add %abc, %d

XLA:CPU computes additions of whole tensors in one kernel, which runs when the last term is there: all terms wait for
it, such as the gradients of a bias that all layers add. A loop is a kernel of its own and runs as soon as it can.

Legal: a loop adds the same elements; the terms are added in the order in which they are computed, so that the last bits
may differ. Worthwhile: for terms of a megabyte or more that are computed at four times or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.additions import ADD, next_addition, terms_of_sum
from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types, element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import all_blocks
from exla_opt.ops.traits import Trait, traits_of
from exla_opt.remarks import Kind, Remark

_TYPES = ("f32", "f64")
# A loop for a smaller term takes longer than its addition.
_LEAST_BYTES = 10**6
# Terms of three times: two are added in any case, and one waits at most.
_LEAST_TIMES = 4
# A loop over more parts takes longer than its addition.
_MOST_PARTS = 8
# The longest dimension of which a 32-bit index finds all parts.
_LONGEST = 2**31 - 1
# Ops that are fused with their readers, so that what they compute is there when their operands are.
_FUSED = Trait.POINTWISE | Trait.MOVES | Trait.FREE | Trait.GENERATES


@dataclass(frozen=True, slots=True)
class Sum:
    """A chain of additions that nothing else reads.

    root: the last of them. groups: the terms that are there at the same time, in the order of their times, each with
    the op before which they can be added. free: the terms that take no memory while they wait.
    """

    root: ir.Operation
    free: tuple[ir.Value, ...]
    groups: tuple[tuple[tuple[ir.Value, ...], ir.Operation], ...]


def find_sums(module: ir.Module) -> list[Sum]:
    """The sums whose terms wait for one another, those of inner blocks and later ones first.

    So a sum that is a term of another one is replaced after it, and no sum refers to a replaced one.
    """
    types = Types()
    return [found for block in all_blocks(module) for found in _sums(block, types)][::-1]


def largest_sum(sums: list[Sum]) -> int:
    """The bytes of the largest of the sums, each of which gets memory of its own."""
    types = Types()
    return max((types.of(found.root.results[0]).bytes for found in sums), default=0)


def _sums(block: ir.Block, types: Types) -> list[Sum]:
    ops = [view.operation for view in block.operations]
    roots = [op for op in ops if op.name == ADD and _is_legal(op, types) and next_addition(op) is None]
    if not roots:
        return []
    place: dict[ir.Value, int] = {}
    times: dict[ir.Value, int] = {}
    time = 0
    for number, op in enumerate(ops):
        time += not traits_of(op.name) & _FUSED
        for value in op.results:
            place[value], times[value] = number + 1, time
    found = []
    for root in roots:
        groups: dict[int, list[ir.Value]] = {}
        free, waiting = _by_cost(terms_of_sum(root), types)
        for term in waiting:
            groups.setdefault(times.get(term, 0), []).append(term)  # 0: of arguments, and of other blocks
        if len(groups) >= _LEAST_TIMES:
            ordered = [tuple(terms) for _, terms in sorted(groups.items())]
            after = [ops[max(place.get(term, 0) for term in terms)] for terms in ordered]
            found.append(Sum(root, tuple(free), tuple(zip(ordered, after, strict=True))))
    return found


def _is_legal(op: ir.Operation, types: Types) -> bool:
    """Whether an addition is of big tensors of floats that can be divided into a few equal parts."""
    value = op.results[0]
    if has_discardable_attributes(op) or str(element_type(value)) not in _TYPES:
        return False
    return types.of(value).bytes >= _LEAST_BYTES and _parts(value) is not None


def _by_cost(terms: Sequence[ir.Value], types: Types) -> tuple[list[ir.Value], list[ir.Value]]:
    """The terms that take no memory while they wait, such as constants, and the others."""
    free: list[ir.Value] = []
    waiting: list[ir.Value] = []
    for term in terms:
        op = defining_op(term)
        is_free = op is not None and bool(traits_of(op.name) & (Trait.FREE | Trait.GENERATES))
        holds = op is not None and any(2 * types.of(value).bytes > types.of(term).bytes for value in op.operands)
        (free if is_free and not holds else waiting).append(term)
    return free, waiting


def _parts(value: ir.Value) -> tuple[int, int] | None:
    """The dimension, and the number of equal parts into which a loop divides it: as few as possible."""
    found = [
        (number, dim)
        for dim, size in enumerate(build.shape_of(value))
        for number in range(2, _MOST_PARTS + 1)
        if size % number == 0 and size <= _LONGEST
    ]
    return min(found)[::-1] if found else None


def add_early(found: Sum, types: Types) -> Remark:
    """Replace a sum by additions that each run once their terms are there; the last ones are where the sum was."""
    root, ((first, _), (second, after), *others) = found.root, found.groups
    tensor = types.of(root.results[0])
    with root.location:
        with ir.InsertionPoint(after):
            total = _added([*first, *second])
        for terms, after in others[:-1]:
            with ir.InsertionPoint(after):
                total = _added_in_parts(total, _added(terms))
        with ir.InsertionPoint(root):
            total = _added([total, *others[-1][0], *found.free])
    root.results[0].replace_all_uses_with(total)
    message = f"added up in {len(others) - 1} loops, as soon as its terms are there"
    return Remark(Kind.PASSED, "EX016", "recompute", str(tensor), tensor.bytes, describe(root), message)


def _added(terms: Sequence[ir.Value]) -> ir.Value:
    total = terms[0]
    for term in terms[1:]:
        total = stablehlo.add(total, term)
    return total


def _added_in_parts(total: ir.Value, term: ir.Value) -> ir.Value:
    """A loop that adds a term to a total part by part, in the total's memory."""
    parts = _parts(total)
    assert parts is not None
    dim, count = parts
    length = build.shape_of(total)[dim] // count
    kinds = [build.scalar_i32(0).type, total.type]
    loop = stablehlo.WhileOp(kinds, [build.scalar_i32(0), total])
    condition, body = (region.blocks.append(*kinds) for region in (loop.cond, loop.body))
    with ir.InsertionPoint(condition):
        stablehlo.return_([build.less_than(condition.arguments[0], build.scalar_i32(count))])
    with ir.InsertionPoint(body):
        number, sums = body.arguments
        start = stablehlo.multiply(number, build.scalar_i32(length))
        added = stablehlo.add(build.slice_along(sums, dim, start, length), build.slice_along(term, dim, start, length))
        stablehlo.return_([stablehlo.add(number, build.scalar_i32(1)), build.update_along(sums, added, dim, start)])
    result: ir.Value = loop.results[1]
    return result
