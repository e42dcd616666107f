"""Which programs a GPU computes with TF32, and how their results are compared."""

from __future__ import annotations

import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.tf32 import rounds_to_tf32


def product(kind: str, attributes: str = "") -> str:
    return f"""
func.func @main(%x: tensor<8x8x{kind}>, %y: tensor<8x8x{kind}>) -> tensor<8x8x{kind}> {{
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]{attributes}
      : (tensor<8x8x{kind}>, tensor<8x8x{kind}>) -> tensor<8x8x{kind}>
  return %z : tensor<8x8x{kind}>
}}
"""


ALGORITHM = """, algorithm = <lhs_precision_type = {0}, rhs_precision_type = {0}, accumulation_type = f32,
    lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false>"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (product("f32"), True),
        (product("complex<f32>"), True),
        (product("f32", ", precision = [DEFAULT, DEFAULT]"), True),
        (product("f32", ", precision = [HIGHEST, DEFAULT]"), False),
        (product("f32", ", precision = [HIGHEST, HIGHEST]"), False),
        (product("f32", ALGORITHM.format("f32")), False),
        (product("f32", ALGORITHM.format("tf32")), True),
        (product("f32", ALGORITHM.format("bf16")), True),
        (product("f64"), False),
        (product("bf16"), False),
        ("func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> { return %x : tensor<8xf32> }", False),
    ],
)
def test_products_of_f32_are_rounded_unless_more_is_asked_for(text: str, expected: bool) -> None:
    assert rounds_to_tf32(parse_module("module", text.encode(), new_context()).module) is expected


def test_f32_of_rounded_products_is_compared_as_f16() -> None:
    wanted = np.ones(4, np.float32)
    found = wanted + np.float32(1e-3)
    for tf32 in (False, True):
        [one] = compare_results([wanted], [found], lambda arrays: list(arrays), [wanted], tf32=tf32)
        assert one.passed is tf32
    [far] = compare_results([wanted], [wanted + np.float32(1e-2)], lambda arrays: list(arrays), [wanted], tf32=True)
    assert not far.passed
    small = np.float32(1e-4) * wanted
    [other] = compare_results([small], [-small], lambda arrays: list(arrays), [small], tf32=True)
    assert not other.passed
    [wide] = compare_results(
        [wanted.astype("f8")], [found.astype("f8")], lambda arrays: list(arrays), [wanted], tf32=True
    )
    assert not wide.passed
