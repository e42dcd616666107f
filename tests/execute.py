"""Running modules in tests: compile through PJRT or interpret, run on random arrays, compare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.runtime.compare import Tolerance, compare
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.inputs import Array, random_inputs, read_signature


def run_module(module: ir.Module | str, arrays: Sequence[Array]) -> list[Array]:
    """Compile `module`, an ir.Module or text, and run it on `arrays`, one for each argument."""
    program = module if isinstance(module, str) else serialise(module, "bytecode")
    return run_program(compile_program(program), arrays)


def interpret(text: str, arrays: Sequence[Array]) -> list[Array]:
    """Run a module op by op, as written, by StableHLO's interpreter: what XLA fuses and reorders changes no bit.

    It is for small modules without custom calls, and ends the process at one, and for NumPy's own dtypes.
    """
    with new_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(text, context)
        PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        stablehlo.register_interpreter_dialect(context)
        arguments = [ir.DenseElementsAttr.get(np.asarray(array, order="C").data) for array in arrays]
        return [np.array(result) for result in stablehlo.eval_module(module, arguments)]


def defined_by(value: ir.Value) -> ir.Operation:
    """The op that a value is a result of."""
    owner = value.owner
    assert isinstance(owner, ir.Operation | ir.OpView)
    return owner.operation


def random_arguments(module: ir.Module | str, seed: int = 0) -> list[Array]:
    """Seeded random arrays for the arguments of @main."""
    if isinstance(module, str):
        with new_context() as context:
            return random_inputs(read_signature(ir.Module.parse(module, context)), seed)
    return random_inputs(read_signature(module), seed)


def assert_equal_results(
    before: ir.Module | str, after: ir.Module | str, seed: int = 0, tolerance: Tolerance | None = None
) -> None:
    """Assert that both modules have equal results, by the tool's own rule, on the same random arguments.

    tolerance: that of the type which the program computes in, where its results are of a wider one.
    A result that is NaN throughout would compare equal to anything equally broken, so it fails too.
    """
    arrays = random_arguments(before, seed)
    expected = run_module(before, arrays)
    actual = run_module(after, arrays)
    assert len(expected) == len(actual)
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        comparison = compare(one, other, tolerance)
        assert comparison.passed, f"result {number}: {comparison}"
        assert one.size == 0 or not comparison.all_nan, f"result {number} is NaN throughout: it proves nothing"


def calls_of(function: Callable[[], object]) -> int:
    """How many calls of Python and C functions a call of `function` makes: its work, on any machine."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls
