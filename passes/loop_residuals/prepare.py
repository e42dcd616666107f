"""Lets loops compute step by step what is computed for all of their steps, and sum stacks that are only summed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from jaxlib.mlir import ir

from exla_opt.ir.locations import describe
from exla_opt.ir.types import Types
from exla_opt.options import Options
from exla_opt.remarks import Kind, Reason, Remark

from .indices import Indices
from .inputs import InputSearch, build_inputs
from .origin import NAME, remark
from .stacks import Stack, read_stack, updates
from .sums import Sums, build_sums, find_sums


def prepare(blocks: Iterable[ir.Block], options: Options, light: int) -> list[Remark]:
    """Change the loops of blocks so; return a remark for each tensor that disappears.

    blocks: the outer ones first. light: bytes of a tensor that does not matter.
    """
    types = Types()
    remarks: list[Remark] = []
    for block in blocks:
        inputs = InputSearch(options.size_threshold, light, types, options.machine).of(block)
        if inputs is not None:
            remarks += [_made_by_step(op, inputs.dims[value], types) for value, op in inputs.ops.items()]
            build_inputs(inputs, types)
        for loop in [view.operation for view in block.operations if view.operation.name == "stablehlo.while"]:
            remarks += _sum_up(loop, options, types)
    return remarks


def _made_by_step(op: ir.Operation, dim: int, types: Types) -> Remark:
    tensor = types.of(op.results[0])
    message = f"computed by each step that reads it: {tensor.shape[dim]} steps are not computed beforehand"
    return Remark(Kind.PASSED, "EX006", NAME, str(tensor), tensor.bytes, describe(op), message)


def _sum_up(loop: ir.Operation, options: Options, types: Types) -> Iterator[Remark]:
    """Let a loop sum its stacks that are only reduced, one after the other."""
    while (found := _next_sums(loop, options, types)) is not None:
        sums, stacks = found
        message = f"reduced step by step by the loop that computes it: {sums.stack.last + 1} steps are not stored"
        yield remark(types, loop, sums.stack.carry, Kind.PASSED, Reason("EX007", message))
        loop = build_sums(loop, sums, stacks, types)


def _next_sums(loop: ir.Operation, options: Options, types: Types) -> tuple[Sums, list[Stack]] | None:
    """A big stack of a loop that is only reduced, and all stacks of the loop."""
    indices = Indices()
    read = {carry: op for carry, op in updates(loop).items() if next(iter(loop.results[carry].uses), None)}
    if len(loop.attributes) or all(types.of(loop.results[carry]).bytes <= options.size_threshold for carry in read):
        return None
    counting = indices.counting(loop)
    if counting is None or counting.step != 1 or not counting.trips:
        return None
    counters = counting.start + np.arange(counting.trips, dtype=np.int64)
    found = [read_stack(loop, carry, op, counters, indices, types) for carry, op in read.items()]
    stacks = [each for each in found if isinstance(each, Stack)]
    for stack in stacks:
        sums = find_sums(loop, stack, stacks, options.reassociate, types)
        if stack.bytes > options.size_threshold and sums is not None:
            return sums, stacks
    return None
