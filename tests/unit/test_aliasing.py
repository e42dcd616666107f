"""Donated arguments: which results overwrite them, as the compiler decides."""

from __future__ import annotations

import pytest

from exla_opt.ir.aliasing import aliased_results
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import main_function
from exla_opt.memory.peak import predict
from exla_opt.runtime.memory import measure_memory

ON_HOST = '{jax.buffer_donor = true, mhlo.memory_kind = "pinned_host"}'
DONOR, FIRST = "{jax.buffer_donor = true}", "{tf.aliasing_output = 0 : i32}"

# Types of arguments with their attributes, types of results, and what is aliased.
CASES = {
    "one": ([("8x4xf32", DONOR)], ["8x4xf32"], {0: 0}),
    "not donated": ([("8x4xf32", "")], ["8x4xf32"], {}),
    "another type of as many bytes": ([("8x4xf32", DONOR)], ["16xf64"], {0: 0}),
    "fewer bytes": ([("8x4xf32", DONOR)], ["16xf32"], {}),
    "on the host": ([("8x4xf32", ON_HOST)], ["32xi32"], {}),
    "in their order": ([("32xi32", DONOR), ("16xf32", DONOR), ("8x4xf32", DONOR)], ["8x4xf32", "32xi32"], {0: 0, 2: 1}),
    "more results": ([("16xf32", DONOR)], ["32xf32", "16xi32", "16xf32"], {0: 1}),
    "one is named": ([("16xf32", DONOR), ("16xf32", FIRST)], ["16xf32", "16xf32"], {0: 1, 1: 0}),
    "the only one is named": ([("16xf32", DONOR), ("16xf32", FIRST)], ["16xf32"], {1: 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_donors_are_paired_as_the_compiler_does(name: str) -> None:
    arguments, results, expected = CASES[name]
    signature = ", ".join(f"%a{place}: tensor<{kind}> {given}" for place, (kind, given) in enumerate(arguments))
    lines = [f"%r{place} = stablehlo.iota dim = 0 : tensor<{kind}>\n" for place, kind in enumerate(results)]
    types = ", ".join(f"tensor<{kind}>" for kind in results)
    names = ", ".join(f"%r{place}" for place in range(len(results)))
    text = f"func.func public @main({signature}) -> ({types}) {{\n{''.join(lines)}return {names} : {types} }}"
    module = parse_module("m.mlir", text.encode(), new_context()).module
    assert aliased_results(main_function(module)) == expected
    assert predict(module).aliased == measure_memory(text).aliased
