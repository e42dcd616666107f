"""Advice to keep tensors in bf16 from where they are computed to where they are read.

The module is changed only to learn its peak:

    %h = ... : f32    →    %h = ... : f32    %n = convert %h : bf16    %k = optimization_barrier %n
    ... %h ...             %w = convert %k : f32    ... %w ...

The barrier is there because XLA may drop a conversion to bf16 and back (`xla_allow_excess_precision`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jaxlib.mlir import ir

from exla_opt.advice.flat import flat_copy
from exla_opt.budget.search import CannotCompile
from exla_opt.ir import build
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import CONTROL_FLOW, main_function, terminator
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import Machine
from exla_opt.memory.reading import read_block
from exla_opt.memory.schedule import run_block
from exla_opt.sizes import format_size

if TYPE_CHECKING:
    from exla_opt.budget.measured import Measure


def bf16_advice(
    module: ir.Module, machine: Machine, measure: Measure, peak: int, worth: int, named: Callable[[str], str]
) -> str:
    """Return the f32 tensors to keep in bf16, with the compiled peak; "" if that saves fewer than `worth` bytes.

    Those that one line of the program computes, before the peak for after it; of several such lines, the one with the
    most bytes. named: maps locations to the user's own.
    """
    copy = flat_copy(module)
    kept = _kept(copy, machine)
    if not kept:
        return ""
    first = defining_op(kept[0])
    assert first is not None
    place, kind = named(describe(first)), Types().of(kept[0])
    for value in kept:
        keep_in_bf16(value)
    try:
        found = measure(serialise(copy, "bytecode")).peak
    except (CannotCompile, InputError):
        return ""
    if peak - found < worth:
        return ""
    what = f"the {len(kept)} x {kind}" if len(kept) > 1 else f"the {kind}"
    return f"keep {what} created at {place} in bf16 (results lose precision): peak {format_size(found)}, compiled"


def _kept(module: ir.Module, machine: Machine) -> Sequence[ir.Value]:
    """The f32 tensors of one type and one location that are kept over the predicted peak: those with the most bytes."""
    entry, types = main_function(module).regions[0].blocks[0], Types()
    given = read_block(entry, types, machine)
    run = run_block(given, machine, held=given.returned)
    if not run.order:
        return ()
    peak = max(range(len(run.order)), key=lambda step: run.lives[step] + run.scratches[step])
    returned, groups = set(terminator(entry).operands), dict[tuple[str, str], list[ir.Value]]()
    for number, born in run.born.items():
        value = run.block.values.get(number)
        is_kept = born < peak < run.died.get(number, -1) and run.block.sizes[number] > 0
        if value is None or value in returned or not is_kept:
            continue
        op = defining_op(value)
        if op is not None and op.name not in CONTROL_FLOW and types.of(value).dtype == "f32":
            groups.setdefault((describe(op), str(types.of(value))), []).append(value)
    return max(groups.values(), key=lambda group: len(group) * types.of(group[0]).bytes, default=())


def keep_in_bf16(value: ir.Value) -> None:
    """Convert a tensor to bf16 after the op that computes it, and back at each of its uses."""
    uses = [(use.owner, use.operand_number) for use in value.uses]
    op = defining_op(value)
    assert op is not None
    kind = build.tensor_of(value).element_type
    with ir.InsertionPoint.after(op), op.location:
        narrow = build.convert(value, ir.BF16Type.get())
        held: ir.Value = ir.Operation.create("stablehlo.optimization_barrier", [narrow.type], [narrow]).results[0]
    for user, number in uses:
        with ir.InsertionPoint(user), user.location:
            user.operands[number] = build.convert(held, kind)
