"""Whether two modules of one signature give the same results on random inputs."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.write import serialise
from exla_opt.runtime.compare import Comparison, compare
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.inputs import Array, random_inputs, read_signature

_SEED = 0


class CannotRun(Exception):
    """The module that is to be checked against cannot be run here; the text says why."""


def compare_modules(original: ir.Module, rewritten: ir.Module) -> list[Comparison]:
    """Run both on the CPU, on the same random inputs, and compare their results.

    Raises CannotRun when the original one cannot be compiled or run here, InputError when only the other one cannot.
    """
    try:
        inputs = random_inputs(read_signature(original), _SEED)
        expected = _run(original, inputs)
    except InputError as error:
        raise CannotRun(error.message) from None
    return [compare(one, other) for one, other in zip(expected, _run(rewritten, inputs), strict=True)]


def _run(module: ir.Module, inputs: Sequence[Array]) -> list[Array]:
    # Compiled as memory is measured: with the fusions that hide scratch memory, more is needed than was predicted.
    return run_program(compile_program(serialise(module, "bytecode"), count_all_memory=True), inputs)
