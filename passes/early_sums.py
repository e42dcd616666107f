"""early-sums: on a CPU, sums of several big tensors, added up as soon as each is there.

before:  %t = add (add (add %a, %b), %c), %d
after:   %ab = add %a, %b
         %abc = while (%sum = %ab) { half by half: %sum plus that half of %c, in place }
         %t = add %abc, %d

XLA:CPU computes additions of whole tensors in one kernel, which runs when the last term is there: all terms wait for
it, such as the gradients of a bias that all layers add. A loop is a kernel of its own and runs as soon as it can.

Legal: a loop adds the same elements; the terms are added in the order in which they are computed, so that the last bits
may differ: with --no-reassociate nothing is done. Worthwhile: above a memory limit, for four terms or more of a
megabyte or more, if the predicted peak rises by no more than the largest sum, which has its own memory now. It need not
fall at once: recompute is next.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.rewrite import copy_of, restore
from exla_opt.ir.types import Types, element_type
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import all_blocks
from exla_opt.memory.peak import predict
from exla_opt.ops.traits import Trait, traits_of
from exla_opt.options import Options
from exla_opt.remarks import Remark

_ADD, _TYPES = "stablehlo.add", ("f32", "f64")
# A loop for a smaller term takes longer than its addition.
_LEAST_BYTES = 10**6
# Of three terms, two are added in any case, and one waits at most.
_LEAST_TERMS = 4
# A loop over more parts takes longer than its addition.
_MOST_PARTS = 8


@dataclass(frozen=True, slots=True)
class _Sum:
    """A chain of additions that nothing else reads.

    root: the last of them. terms: in the order of their computation, each with the op after it. free: terms that take
    no memory while they wait.
    """

    root: ir.Operation
    terms: tuple[tuple[ir.Value, ir.Operation], ...]
    free: tuple[ir.Value, ...]


def run(module: ir.Module, options: Options) -> list[Remark]:
    """Add terms early in `module`, in place, if it is for a CPU and has a memory limit that it does not meet."""
    limit, machine = options.memory_limit, options.machine
    if machine.kind != "cpu" or not options.reassociate or limit is None:
        return []
    types = Types()
    found = [each for block in all_blocks(module) for each in _sums(block, types)]
    if not found:
        return []
    before = predict(module, machine).peak
    if before <= limit:
        return []
    original, largest = copy_of(module), max(types.of(each.root.results[0]).bytes for each in found)
    for each in found:
        _add_early(each)
    clean_up(module)
    if predict(module, machine).peak > before + largest:
        restore(module, original)
    return []


def _sums(block: ir.Block, types: Types) -> list[_Sum]:
    """The sums of a block that may be added early."""
    ops = [view.operation for view in block.operations]
    roots = [op for op in ops if op.name == _ADD and _is_legal(op, types) and not _is_inside(op)]
    if not roots:
        return []
    place: dict[ir.Value, int] = dict.fromkeys(block.arguments, 0)
    for number, op in enumerate(ops):
        place.update(dict.fromkeys(op.results, number + 1))
    found = []
    for root in roots:
        terms = _terms(root)
        waiting = sorted((term for term in terms if not _is_free(term)), key=lambda term: place.get(term, 0))
        if len(waiting) >= _LEAST_TERMS:
            after = tuple((term, ops[place.get(term, 0)]) for term in waiting)
            found.append(_Sum(root, after, tuple(term for term in terms if _is_free(term))))
    return found


def _is_legal(op: ir.Operation, types: Types) -> bool:
    """Whether an addition is of big tensors of floats that can be divided into a few equal parts."""
    value = op.results[0]
    if has_discardable_attributes(op) or str(element_type(value)) not in _TYPES:
        return False
    return types.of(value).bytes >= _LEAST_BYTES and _parts(value) is not None


def _is_inside(op: ir.Operation) -> bool:
    """Whether an addition is a term of another one, and nothing else reads it."""
    uses = [use.owner.operation for use in op.results[0].uses]
    if len(uses) != 1 or has_discardable_attributes(op):
        return False
    return uses[0].name == _ADD and uses[0].block == op.block and not has_discardable_attributes(uses[0])


def _terms(root: ir.Operation) -> list[ir.Value]:
    """The terms of a sum: what is added and is no addition of the chain itself."""
    terms, queue = [], list(root.operands)
    while queue:
        value = queue.pop()
        inner = defining_op(value, _ADD)
        if inner is not None and inner.block == root.block and _is_inside(inner):
            queue += inner.operands
        else:
            terms.append(value)
    return terms


def _is_free(value: ir.Value) -> bool:
    """Whether a term takes no memory while it waits."""
    op = defining_op(value)
    return op is not None and bool(traits_of(op.name) & (Trait.FREE | Trait.GENERATES))


def _parts(value: ir.Value) -> tuple[int, int] | None:
    """The dimension, and the number of equal parts into which a loop divides it: as few as possible."""
    found = [
        (number, dim)
        for dim, size in enumerate(build.shape_of(value))
        for number in range(2, _MOST_PARTS + 1)
        if size % number == 0
    ]
    return min(found)[::-1] if found else None


def _add_early(found: _Sum) -> None:
    """Replace a sum by additions that each run once their term is there; the last one is where the sum was."""
    root, ((total, _), (second, after), *others) = found.root, found.terms
    with root.location:
        with ir.InsertionPoint(after):
            total = stablehlo.add(total, second)
        for term, after in others[:-1]:
            with ir.InsertionPoint(after):
                total = _added_in_parts(total, term)
        with ir.InsertionPoint(root):
            for term in (others[-1][0], *found.free):
                total = stablehlo.add(total, term)
    root.results[0].replace_all_uses_with(total)


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
