"""A module whose splits would take more memory, all together, goes out as it came."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import export

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter import driver
from exla_opt.passes.tensor_splitter.driver import split_module
from exla_opt.pipeline import run_pipeline
from exla_opt.remarks import Kind
from tests.execute import assert_equal_results

SQUARE, WIDE = "tensor<2400x2400xf32>", "tensor<2400x2800xf32>"
# The loop's result is as large as what is split, and a Cholesky factor is alive to the end with it: its columns are read,
# and rows are written, so that it is not written over.
TEXT = f"""
func.func @main(%x: {SQUARE}, %y: {WIDE}) -> {SQUARE} {{
  %many = stablehlo.constant dense<900.0> : {SQUARE}
  %tanh = stablehlo.tanh %x : {SQUARE}
  %sum = stablehlo.add %tanh, %many : {SQUARE}
  %factor = stablehlo.cholesky %sum, lower = true : {SQUARE}
  %big = stablehlo.dot_general %factor, %y, contracting_dims = [0] x [0] : ({SQUARE}, {WIDE}) -> {WIDE}
  %exp = stablehlo.tanh %big : {WIDE}
  %back = stablehlo.dot_general %exp, %y, contracting_dims = [1] x [1] : ({WIDE}, {WIDE}) -> {SQUARE}
  return %back : {SQUARE}
}}
""".encode()


def split(text: bytes, threshold: int, slice_bytes: int) -> tuple[str, str, list[tuple[Kind, str, str]], list[int]]:
    """The module before and after, its remarks, and the predicted peaks."""
    with new_context() as context:
        module = parse_module("test", text, context).module
        before, peak = serialise(module, "text").decode(), predict(module).peak
        remarks = split_module(module, Options(threshold, slice_bytes))
        assert module.operation.verify()
        after = serialise(module, "text").decode()
        return before, after, [(each.kind, each.code, each.tensor) for each in remarks], [peak, predict(module).peak]


def test_a_module_that_gains_nothing_goes_out_as_it_came_and_the_remarks_say_so() -> None:
    before, after, remarks, _ = split(TEXT, 24_000_000, 3_200_000)
    assert after == before
    assert (Kind.MISSED, "EX305", "2400x2800xf32") in remarks
    assert all(kind is Kind.MISSED for kind, _, _ in remarks)


def test_a_module_that_gains_is_split() -> None:
    before, after, remarks, (peak, less) = split(TEXT.replace(b"2400x2800", b"2400x9600"), 24_000_000, 3_200_000)
    assert "stablehlo.while" in after and "stablehlo.while" not in before
    assert (Kind.PASSED, "EX001", "2400x9600xf32") in remarks
    assert less < peak


def linear_attention(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    queries, keys = jax.nn.elu(queries) + 1, jax.nn.elu(keys) + 1
    sums = jnp.einsum("blhd,blhm->bhmd", keys, values)
    scale = 1 / jnp.einsum("blhd,bhd->blh", queries, keys.sum(1))
    return jnp.einsum("blhd,bhmd,blh->blhm", queries, sums, scale)


def test_after_the_first_splits_only_what_lowers_the_peak_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (4, 1024, 8, 32)
    kind = jax.ShapeDtypeStruct(shape, jnp.float32)
    text = export.export(jax.jit(linear_attention))(kind, kind, kind).mlir_module()

    def loops_and_peak() -> tuple[str, int, int]:
        with new_context() as context:
            module = parse_module("test", text.encode(), context).module
            run_pipeline(module, ("normalise", "tensor-splitter"), Options(size_threshold=60_000, split_size=60_000))
            after = serialise(module, "text").decode()
            return after, after.count("stablehlo.while"), predict(module).peak

    after, loops, peak = loops_and_peak()
    monkeypatch.setattr(driver, "lowers_peak", lambda *_: True)
    _, most_loops, other_peak = loops_and_peak()
    assert 0 < loops < most_loops and peak <= other_peak
    assert_equal_results(text, after)
