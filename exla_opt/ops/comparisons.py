"""Finds ops that test for equality or order; `passes/tensor_splitter/regions/equality.py` has the rules."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from math import inf

from jaxlib.mlir import ir

from exla_opt.ir.types import element_type
from exla_opt.ir.values import defining_op, splat_value
from exla_opt.ir.walk import terminator, walk, within

from .reducers import body_of, componentwise, selects
from .traits import Trait, has_trait, traits_of

EQUALITY = ("EQ", "NE")
# What these compute of a number and itself is no fixed number, so that comparing it decides nothing by definition.
SYMMETRIC = ("stablehlo.add", "stablehlo.multiply")
_SCATTER = "stablehlo.scatter"
# How many definitions a walk follows: a selected value is compared near its selection.
MOST_STEPS = 32


def asks(op: ir.Operation) -> bool:
    """Whether an op may test for equality, judged by the op and its operands, without knowing what is recomputed.

    That is: (in)equality of floats, except of a value with itself (a NaN test) or with infinity, which rounding does
    not produce; order against a selected value; a comparison, a sign or a step of a value that one op computes from a
    selected one and others.
    """
    traits = traits_of(op.name)
    if Trait.COMPARES in traits and len(op.operands) > 1:
        if op.operands[0] == op.operands[1] or not _is_float(op.operands[0]):
            return False
        if any(splat_value(operand) in (inf, -inf) for operand in op.operands):
            return False
        return direction_of(op) in EQUALITY or any(map(_is_picked, op.operands)) or any(map(_is_joined, op.operands))
    if Trait.POINTWISE not in traits or len(op.regions):
        return Trait.POINTWISE in traits and compares_inside(op)
    jumps = bool(traits & (Trait.COMPARES | Trait.STEPS)) or _numbers(op)
    return jumps and _is_joined(op.operands[0])


def asks_inside(op: ir.Operation) -> bool:
    """Whether the op, or one in the blocks of control flow, tests."""
    if not has_trait(op, Trait.CONTROL_FLOW):
        return asks(op)
    return any(asks(inner) for region in op.regions for block in region.blocks for inner in walk(block))


def takes_maximum(op: ir.Operation) -> bool:
    """Whether the op, or one in the blocks of control flow, selects among floats, as a maximum or a sort does."""
    if not has_trait(op, Trait.CONTROL_FLOW):
        return _selects_floats(op)
    return any(_selects_floats(inner) for region in op.regions for block in region.blocks for inner in walk(block))


def _selects_floats(op: ir.Operation) -> bool:
    if op.name in ("stablehlo.maximum", "stablehlo.minimum"):
        chosen = all(splat_value(operand) is None for operand in op.operands)
    elif op.name == _SCATTER:
        chosen = not {"maximum", "minimum"}.isdisjoint(componentwise(body_of(op)) or ())
    else:
        chosen = selects(op)
    return chosen and any(map(_is_float, op.operands))


def asks_about(value: ir.Value, block: ir.Block) -> bool:
    """Whether anything in a block tests, as above, a value computed from this one, also in later steps of its loops."""
    return any(asks_inside(op) for op, _ in _readers_in(value, block))


def asks_across(value: ir.Value, block: ir.Block) -> bool:
    """As `asks_about`, but only for tests of numbers that come from the value as another block reads it.

    If each block has a copy of the value, any other test compares numbers of the same copy.
    """
    tests: list[ir.Operation] = []
    after: set[ir.Value] = set()
    for op, results in _readers_in(value, block):
        after.update(results)
        if not has_trait(op, Trait.CONTROL_FLOW) and asks(op):
            tests.append(op)
    return any(_reads_elsewhere(op, value, after) for op in tests)


def _reads_elsewhere(test: ir.Operation, value: ir.Value, after: Container[ir.Value]) -> bool:
    """Whether a test depends on a value as read in another block, but not through a sum or a product of matrices.

    What these make of a number seldom equals another one; a sum that is taken in two blocks may.
    after: all that is computed from the value.
    """
    seen: set[ir.Value] = set()
    queue = [(test, operand) for operand in test.operands]
    while queue:
        reader, read = queue.pop()
        if read == value and reader.block != test.block:
            return True
        if read not in after or read in seen:
            continue
        seen.add(read)
        queue += _sources(read)
    return False


def _sources(value: ir.Value) -> list[tuple[ir.Operation, ir.Value]]:
    """The values that hold the numbers of a value, exactly or changed one by one, and the ops that read these."""
    op = defining_op(value)
    if op is not None and not has_trait(op, Trait.CONTROL_FLOW):
        return [] if _adds_up(op) else [(op, operand) for operand in op.operands]
    if op is None:
        assert isinstance(value.owner, ir.Block)
        index, op = ir.BlockArgument(value).arg_number, value.owner.owner.operation
    else:
        index = ir.OpResult(value).result_number
    if not has_trait(op, Trait.CONTROL_FLOW):
        return []  # an argument of a function
    if has_trait(op, Trait.IN_PLACE):
        last = terminator(op.regions[1].blocks[0])
        return [(op, op.operands[index]), (last, last.operands[index])]
    return [(last, last.operands[index]) for last in (terminator(region.blocks[0]) for region in op.regions)]


def _adds_up(op: ir.Operation) -> bool:
    """Whether each element of the result is computed from many, none of which it was selected from."""
    if has_trait(op, Trait.CONTRACTS):
        return True
    return has_trait(op, Trait.REDUCES) and op.name != _SCATTER and not selects(op)


def _readers_in(value: ir.Value, block: ir.Block) -> Iterator[tuple[ir.Operation, list[ir.Value]]]:
    """The ops in a block, and in its control flow, that read what is computed from a value, with what they compute of
    it for the first time."""
    queue = [value]
    seen = {value}
    while queue:
        for use in queue.pop().uses:
            op = use.owner.operation
            after = [result for result in _after(op, use.operand_number) if result not in seen]
            if not after or within(op, block) is None:
                continue
            yield op, after
            seen.update(after)
            queue += after


def _after(op: ir.Operation, index: int) -> list[ir.Value]:
    """What depends on an operand of an op: its results, and the carries of a loop that starts from it; for an op that
    ends a block of control flow, those of that."""
    if has_trait(op, Trait.CONTROL_FLOW) and has_trait(op, Trait.IN_PLACE):
        return [*op.results, *(region.blocks[0].arguments[index] for region in op.regions)]
    parent = op.parent
    if len(op.results) or parent is None or not has_trait(around := parent.operation, Trait.CONTROL_FLOW):
        return list(op.results)
    if not has_trait(around, Trait.IN_PLACE):
        return [around.results[index]]
    condition, body = (region.blocks[0] for region in around.regions)
    return [] if op.block == condition else [around.results[index], condition.arguments[index], body.arguments[index]]


def orders_by_element(
    one: Sequence[ir.Value], others: Sequence[ir.Value], ignored: Container[ir.Operation] = ()
) -> bool:
    """Whether an op asks which of two numbers is larger, of which it reads one from `one` and one from `others`.

    Both behind elementwise ops and moves alone, or already combined by those. ignored: ops that are not followed.
    """
    read, met = _by_element(one, ignored), _by_element(others, ignored)
    for op in (use.owner.operation for value in read for use in value.uses):
        if has_trait(op, Trait.CONTROL_FLOW):
            if jumps_inside(op):
                return True
        elif _jumps(op) and op not in ignored and not met.isdisjoint(op.operands):
            return True
    return False


def orders_among(values: Sequence[ir.Value]) -> bool:
    """Whether an op asks which of two numbers is larger, or at which position the largest is, where elementwise ops and
    moves compute both numbers from these; or asks for the sign of their difference."""
    met = _by_element(values, ())
    readers = {use.owner.operation for value in met for use in value.uses}
    joined = _by_element([result for op in readers if _joins(op, met) for result in op.results], ())
    for op in readers:
        if has_trait(op, Trait.CONTROL_FLOW):
            if jumps_inside(op):
                return True
        elif _jumps(op):
            places = selects(op) and len(op.results) > 1
            if places or len(met.intersection(op.operands)) > 1 or not joined.isdisjoint(op.operands):
                return True
    return False


def _joins(op: ir.Operation, values: set[ir.Value]) -> bool:
    """Whether an op combines two of the values to a number that is fixed if they are equal, as their difference is."""
    if not has_trait(op, Trait.POINTWISE) or has_trait(op, Trait.SELECTS) or op.name in SYMMETRIC:
        return False
    return len(values.intersection(op.operands)) > 1


def _by_element(values: Sequence[ir.Value], ignored: Container[ir.Operation]) -> set[ir.Value]:
    """The tensors that elementwise ops and moves compute from these, with these."""
    found, stack = set(values), list(values)
    while stack:
        for use in stack.pop().uses:
            op = use.owner.operation
            if op not in ignored and (has_trait(op, Trait.POINTWISE) or has_trait(op, Trait.MOVES)):
                stack += [result for result in op.results if result not in found]
                found.update(op.results)
    return found


def jumps_inside(op: ir.Operation) -> bool:
    """Whether an op in the blocks of control flow asks which of two floats is larger, or rounds one to an integer."""
    return any(_jumps(inner) for region in op.regions for block in region.blocks for inner in walk(block))


def _jumps(op: ir.Operation) -> bool:
    """Whether the result jumps where two floats are equal, or one is a round number."""
    traits = traits_of(op.name)
    if not len(op.operands) or not len(op.results) or not _is_float(op.operands[0]):
        return False
    if Trait.COMPARES in traits and len(op.operands) > 1:
        return bool(op.operands[0] != op.operands[1])
    return bool(traits & (Trait.COMPARES | Trait.STEPS)) or _numbers(op) or (selects(op) and len(op.results) > 1)


def compares_inside(op: ir.Operation) -> bool:
    """Whether the scalar code of an op compares floats."""
    inside = (view.operation for view in op.regions[0].blocks[0].operations)
    return any(has_trait(inner, Trait.COMPARES) and _is_float(inner.operands[0]) for inner in inside)


def _numbers(op: ir.Operation) -> bool:
    """Whether the op turns floats into integers."""
    kind = str(element_type(op.results[0]))
    return kind != "i1" and not is_float_name(kind) and len(op.operands) == 1 and _is_float(op.operands[0])


def _is_float(value: ir.Value) -> bool:
    """Whether the numbers are floats, or the bits of floats."""
    op = defining_op(value)
    if op is not None and has_trait(op, Trait.BITS):
        value = op.operands[0]
    return is_float_name(str(element_type(value)))


def is_float_name(dtype: str) -> bool:
    return dtype.startswith(("f", "bf", "complex"))


def direction_of(op: ir.Operation) -> str:
    """The direction of a comparison; "" for scalar code, which may test anything."""
    if "comparison_direction" not in op.attributes:
        return ""
    attribute = op.attributes["comparison_direction"]
    return str(attribute).partition("comparison_direction ")[2].rstrip(">")


def _is_picked(value: ir.Value) -> bool:
    """Whether a tensor holds elements of another one that were selected by order."""
    op = _computed_by(value)
    return op is not None and selects(op)


def _is_joined(value: ir.Value) -> bool:
    """Whether one op of several operands computes the tensor from a selected one."""
    op = _computed_by(value)
    return op is not None and has_trait(op, Trait.POINTWISE) and any(map(_is_picked, op.operands))


def _computed_by(value: ir.Value) -> ir.Operation | None:
    """The op that computes a tensor, behind moves and pointwise ops of one operand."""
    op = defining_op(value)
    for _ in range(MOST_STEPS):
        if op is None or not len(op.operands):
            break
        traits = traits_of(op.name)
        moves = traits & (Trait.MOVES | Trait.COLLECTIVE)
        if not moves and not (Trait.POINTWISE in traits and len(op.operands) == 1):
            break
        op = defining_op(op.operands[0])
    return op
