"""A lower bound: the memory that a program needs however it is split.

Its arguments and results are alive all the time. Some ops cannot be split, such as a sort along its dimension or a
factorisation. While one runs, the smallest tiles of its operands or of its results are alive, whichever are more: a
library may compute in place. XLA gives a Fourier transform a separate buffer for its result, so it needs both.
Everything else counts as nothing: a loop that the program carries may need more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import main_function, terminator, walk_functions
from exla_opt.memory.peak import Memory
from exla_opt.ops.rules import DimMapping, read_rules
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.ops.views import is_view


@dataclass(frozen=True, slots=True)
class Bound:
    """bytes: no program with the same results needs less. reason: a clause on what needs them."""

    bytes: int
    reason: str


def lower_bound(module: ir.Module, memory: Memory, op_rules: tuple[tuple[str, str], ...] = ()) -> Bound:
    """The least memory that any way to split a module can leave.

    memory: of the unsplit module. op_rules: the user's, as (call target, rule text) pairs. Linear in the number of ops.
    """
    held = memory.peak - memory.temp
    rules = read_rules(module, op_rules)
    types = Types()
    returned = {each for value in _returned(module) for each in _buffers(value, types)}
    most, where = 0, None
    for number, op in enumerate(walk_functions(module.operation)):
        if not has_trait(op, Trait.AT_ONCE):
            continue
        factors = rules[number].factors
        read = [_smallest(types, value, [f.operands[side] for f in factors]) for side, value in _read(op, types)]
        made = [_smallest(types, value, [f.results[side] for f in factors]) for side, value in enumerate(op.results)]
        inside = [size for size, value in zip(made, op.results, strict=True) if value not in returned]
        needed = sum(read) + sum(inside) if has_trait(op, Trait.APART) else max(sum(read), sum(inside))
        if needed > most:
            most, where = needed, op
    if where is None:
        return Bound(held, "its arguments and results")
    return Bound(held + most, f"its arguments and results, and what {where.name} at {describe(where)} needs at once")


def _returned(module: ir.Module) -> list[ir.Value]:
    return list(terminator(main_function(module).regions[0].blocks[0]).operands)


def _read(op: ir.Operation, types: Types) -> list[tuple[int, ir.Value]]:
    """The computed operands, each once, with their positions; arguments are already counted."""
    found: dict[ir.Value, tuple[int, ir.Value]] = {}
    for side, value in enumerate(op.operands):
        source = _buffers(value, types)[-1]
        if defining_op(source) is not None:
            found.setdefault(source, (side, value))
    return list(found.values())


def _buffers(value: ir.Value, types: Types) -> list[ir.Value]:
    """A value and the values before it in the same buffer, back to the one that is computed."""
    found = [value]
    while (op := defining_op(found[-1])) is not None and is_view(op, types):
        found.append(op.operands[ir.OpResult(found[-1]).result_number])
    return found


def _smallest(types: Types, value: ir.Value, carried: Sequence[DimMapping | None]) -> int:
    """The bytes of the smallest tile of a value: one index along each factor that it carries."""
    found = types.of(value)
    tiles = 1
    for dim, length in enumerate(found.shape):
        tiles *= min(prod(mapping.length for mapping in carried if mapping and mapping.dim == dim), length) or 1
    return found.bytes // tiles
