"""Counters of loops: which are merged, and which lists of positions are read back; each with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.runtime.compile import compile_program, run_program

TEXT = (Path(__file__).parents[1] / "lit" / "normalise" / "counters.mlir").read_text()

# What is replaced in the golden's text, by what; the carries of both loops; and whether the positions are read back.
CASES = {
    "as it is": ("", "", (3, 3), True),
    "another start": ("%k = %zero, %positions", "%k = %one, %positions", (4, 4), True),
    "another step": ("stablehlo.add %k, %one", "stablehlo.add %k, %k", (4, 4), True),
    "positions later in the list": ("%positions = %none, %l = %zero", "%positions = %none, %l = %one", (4, 4), False),
    "a position that is not the counter": (
        "reshape %j : (tensor<i32>)",
        "reshape %five : (tensor<i32>)",
        (3, 3),
        False,
    ),
    "fewer trips": ("LT, %j, %five", "LT, %j, %one", (3, 3), False),
}


@pytest.mark.parametrize("name", CASES)
def test_counters_are_merged_where_they_are_equal(name: str) -> None:
    old, new, carries, is_read_back = CASES[name]
    assert old in TEXT
    text = TEXT.replace(old, new)
    module = parse_module("m.mlir", text.encode(), new_context()).module
    normalise.run(module, Options())
    module.operation.verify()
    assert tuple(len(loop.operands) for loop in inside_out(module, "stablehlo.while")) == carries
    assert ("stablehlo.clamp" in str(module)) == is_read_back
    array = np.random.default_rng(0).standard_normal((5, 3), np.float32)
    [expected] = run_program(compile_program(text), [array])
    [found] = run_program(compile_program(serialise(module, "text")), [array])
    np.testing.assert_array_equal(found, expected)
