"""Simulates a block: its kernels in order, the tensors alive at each, and the peak."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from .block import Block
from .gpu.parts import with_padding, with_parts
from .lending import lend
from .live_ranges import Run
from .machine import Machine, compiles_of
from .packing import packed


def run_block(
    block: Block, machine: Machine, held: Collection[int] | None = None, outside: Collection[int] = ()
) -> Run:
    """The finished run of a block.

    held: the returned tensors in memory of others, such as all results of a function; None for a body of control flow,
    whose arguments and results are in the buffers of its op.
    outside: the tensors that a branch returns into such memory.
    """
    if machine.kind == "gpu" and machine.workspace and held is not None:
        # Products of matrices by both libraries: the choice of a GPU should lie between them.
        other = _finished(with_parts(block), replace(machine, workspace=0), held, outside)
        run = _finished(with_padding(block), machine, held, outside)
        return other if other.peak > run.peak else run
    return _finished(block, machine, held, outside)


def run_larger(block: Block, machine: Machine) -> Run:
    """The finished run of a function's block in the one of the machine's compiles that needs the most memory."""
    return max((run_block(block, each, held=block.returned) for each in compiles_of(machine)), key=lambda run: run.peak)


def _finished(block: Block, machine: Machine, held: Collection[int] | None, outside: Collection[int]) -> Run:
    run = Run(block, machine, held, outside)
    run.simulate()
    if held is not None:
        lent = lend(run, held)
        run.without(lent)
        if not machine.breadth_first:
            run.peak = packed(run, lent)
    return run
