"""Gathers computations written for one device, which custom calls begin and end, into ops with bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jaxlib.mlir import ir

from exla_opt.ir.rewrite import remap
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import captured_values, inside_out, operations_of
from exla_opt.ops.effects import has_side_effect

from .tile_assignment import NoAxes


@dataclass(frozen=True, slots=True)
class Boundary:
    """The sharding of a tensor at such a boundary, as Shardy writes it, and the axes that are manual inside.

    depth: how many axes are already manual around it.
    """

    enters: bool
    sharding: str
    manual: tuple[str, ...]
    depth: int


@dataclass(slots=True)
class _Body:
    """numbers: of its ops. enters: the ops whose results it reads. leaves: those that end it."""

    numbers: set[int] = field(default_factory=set)
    enters: dict[int, None] = field(default_factory=dict)
    leaves: list[int] = field(default_factory=list)


def gather_bodies(module: ir.Module, boundary: Callable[[ir.Operation], Boundary | None]) -> None:
    """Move the ops between boundaries into `sdy.manual_computation`s, in place. Raises NoAxes if that is impossible."""
    blocks: dict[tuple[int, ir.Block], None] = {}
    found: dict[ir.Value, Boundary] = {}
    for op in inside_out(module, "stablehlo.custom_call"):
        one = boundary(op)
        if one is not None:
            found[op.results[0]] = one
            blocks.setdefault((one.depth, op.block))
    for depth, block in sorted(blocks, key=lambda pair: pair[0], reverse=True):  # inner ones are ops of outer ones
        _gather(block, {value: one for value, one in found.items() if one.depth == depth})


def _gather(block: ir.Block, boundaries: dict[ir.Value, Boundary]) -> None:
    _copy_constants(block)
    ops = operations_of(block)
    places: dict[ir.Value, int] = {result: number for number, op in enumerate(ops) for result in op.results}
    reads = [[*op.operands, *(captured_values(op) if op.regions else ())] for op in ops]
    marks = [boundaries.get(op.results[0]) if len(op.results) == 1 else None for op in ops]
    bodies = _bodies(ops, places, reads, marks)
    for body in bodies:
        first = min(body.leaves)
        kinds = {mark.manual for number in (*body.enters, *body.leaves) if (mark := marks[number]) is not None}
        if len(kinds) != 1 or any(number > first for number in body.enters):
            raise NoAxes("a manual computation begins again before it has ended")
        _write(ops, body, marks, ops[first])
    _erase(ops, bodies, marks)


def _copy_constants(block: ir.Block) -> None:
    """Copy the constants of outer blocks: a body must not capture values."""
    inside = {result for op in operations_of(block) for result in op.results} | set(block.arguments)
    copies: dict[ir.Value, ir.Value] = {}
    for op in operations_of(block):
        for value in (*op.operands, *(captured_values(op) if op.regions else ())):
            made = defining_op(value)
            if value not in inside and value not in copies and made is not None and not made.operands:
                copies[value] = made.clone(ip=ir.InsertionPoint.at_block_begin(block)).operation.results[0]
        remap(op, copies)


def _bodies(
    ops: Sequence[ir.Operation],
    places: dict[ir.Value, int],
    reads: Sequence[Sequence[ir.Value]],
    marks: Sequence[Boundary | None],
) -> list[_Body]:
    """The ops between boundaries: those connected through an op form one body. Linear in the ops."""
    owner: dict[int, int] = {}
    bodies: dict[int, _Body] = {}
    constant = _constants(ops, places, reads, marks)
    for number, mark in enumerate(marks):
        if mark is None or mark.enters:
            continue
        body = _Body(leaves=[number])
        bodies[number] = body
        stack = [places.get(value, -1) for value in reads[number]]
        while stack:
            each = stack.pop()
            if each in body.numbers:
                continue
            if each < 0:
                raise NoAxes("a manual computation reads a tensor that is not sharded manually")
            inner = marks[each]
            if inner is not None:
                if not inner.enters:
                    raise NoAxes("a manual computation reads a tensor that is not sharded manually")
                body.enters[each] = None
                continue
            other = bodies.get(owner.get(each, -1))
            if other is not None and other is not body and each not in constant:
                _absorb(other, body, owner, bodies)
                body = other
                continue
            body.numbers.add(each)
            owner[each] = body.leaves[0]
            stack += [places.get(value, -1) for value in reads[each]]
    return list(bodies.values())


def _absorb(into: _Body, body: _Body, owner: dict[int, int], bodies: dict[int, _Body]) -> None:
    for number in body.numbers:
        owner[number] = into.leaves[0]
    del bodies[body.leaves[0]]
    into.numbers |= body.numbers
    into.enters |= body.enters
    into.leaves += body.leaves


def _constants(
    ops: Sequence[ir.Operation],
    places: dict[ir.Value, int],
    reads: Sequence[Sequence[ir.Value]],
    marks: Sequence[Boundary | None],
) -> set[int]:
    """The ops that depend on no tensor of the program: every body gets its own copy."""
    found: set[int] = set()
    for number, op in enumerate(ops):
        pure = marks[number] is None and not has_side_effect(op)
        if pure and all(places.get(value, -1) in found for value in reads[number]):
            found.add(number)
    return found


def _write(
    ops: Sequence[ir.Operation],
    body: _Body,
    marks: Sequence[Boundary | None],
    at: ir.Operation,
) -> None:
    entering, leaving = list(body.enters), body.leaves
    given = [ops[number].operands[0] for number in entering]
    results = [ops[number].results[0] for number in leaving]
    named = marks[leaving[0]]
    assert named is not None
    axes = ", ".join(f'"{name}"' for name in named.manual)
    attributes = {
        "in_shardings": _per_value([marks[number] for number in entering]),
        "out_shardings": _per_value([marks[number] for number in leaving]),
        "manual_axes": ir.Attribute.parse(f"#sdy<manual_axes{{{axes}}}>"),
    }
    with ir.InsertionPoint(at), at.location:
        made = ir.Operation.create(
            "sdy.manual_computation", [each.type for each in results], given, attributes, regions=1
        )
    inner = [ops[number].results[0] for number in entering]
    block = made.regions[0].blocks.append(
        *[value.type for value in inner], arg_locs=[ops[number].location for number in entering]
    )
    values: dict[ir.Value, ir.Value] = dict(zip(inner, block.arguments, strict=True))
    with ir.InsertionPoint(block), at.location:
        for number in sorted(body.numbers):
            copy = ops[number].clone(ip=ir.InsertionPoint.current).operation
            remap(copy, values)
            values.update(zip(ops[number].results, copy.results, strict=True))
        ir.Operation.create("sdy.return", operands=[values[ops[number].operands[0]] for number in leaving])
    for old, new in zip(results, made.results, strict=True):
        old.replace_all_uses_with(new)


def _per_value(marks: Sequence[Boundary | None]) -> ir.Attribute:
    listed = ", ".join(mark.sharding for mark in marks if mark is not None)
    return ir.Attribute.parse(f"#sdy.sharding_per_value<[{listed}]>")


def _erase(ops: Sequence[ir.Operation], bodies: Sequence[_Body], marks: Sequence[Boundary | None]) -> None:
    """Erase ops that are now in bodies and otherwise unread. Raises NoAxes if others remain outside."""
    inside = {number for body in bodies for number in (*body.numbers, *body.leaves)}
    for number in range(len(ops) - 1, -1, -1):
        mark = marks[number]
        if number not in inside and (mark is None or not mark.enters):
            continue
        if any(list(result.uses) for result in ops[number].results):
            if mark is not None:
                raise NoAxes("a manual computation has no end")
            continue
        ops[number].erase()
