"""Simulates a block: its kernels in order, the tensors alive at each, and the peak."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from .block import Block
from .gpu.parts import with_padding, with_parts
from .lending import lend
from .library_kernels import changes_kernels
from .live_ranges import Run
from .machine import Machine
from .packing import packed


def run_block(
    block: Block, machine: Machine, held: Collection[int] | None = None, outside: Collection[int] = ()
) -> Run:
    """The finished run of a block, of several compiles the one that needs the most memory.

    A CPU's program is compiled with and without the library that adds floats, and a GPU's with one of two libraries for
    products of matrices: the choice should lie between them.
    held: the returned tensors in memory of others, such as all results of a function; None for a body of control flow,
    whose arguments and results are in the buffers of its op.
    outside: the tensors that a branch returns into such memory.
    """
    if machine.kind == "gpu" and machine.workspace and held is not None:
        other = _finished(with_parts(block), replace(machine, workspace=0), held, outside)
        run = _finished(with_padding(block), machine, held, outside)
        return other if other.peak > run.peak else run
    run = _finished(block, machine, held, outside)
    if machine.kind != "cpu" or machine.sums_apart or not _has_other_kernels(run):
        return run
    other = _finished(block, replace(machine, sums_apart=True), held, outside)
    return other if other.peak > run.peak else run


def _has_other_kernels(run: Run) -> bool:
    """Whether the library that adds floats changes the kernels of a run, or of one inside it."""
    if changes_kernels(run.block, run.machine, run.fusion.producer):
        return True
    return any(_has_other_kernels(inner) for inners in run.inner.values() for inner in inners)


def _finished(block: Block, machine: Machine, held: Collection[int] | None, outside: Collection[int]) -> Run:
    run = Run(block, machine, held, outside)
    run.simulate()
    if held is not None:
        lent = lend(run, held)
        run.without(lent)
        if not machine.breadth_first:
            run.peak = packed(run, lent)
    return run
