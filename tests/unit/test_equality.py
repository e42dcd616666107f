"""Questions of equality: which are seen, executed as they were and as they are rewritten."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind, Remark
from exla_opt.runtime.compile import compile_program, run_program

Array = jax.Array
Question = Callable[[Array], Array]
_ROWS, _COLUMNS, _DEPTH = 384, 320, 37
_OPTIONS = Options(300_000, 60_000)


def scores(a: Array, b: Array) -> Array:
    """A matrix that is rounded otherwise in tiles of another shape."""
    return jnp.exp(a @ b.T) / jnp.abs(a[:, :1])


def rewritten(
    function: Callable[..., Array], options: Options = _OPTIONS
) -> tuple[bytes, bytes, list[Remark], list[np.ndarray]]:
    """The module of a function of two matrices, as it was and as it is rewritten, the remarks, and arguments."""
    random = np.random.default_rng(0)
    arguments = [random.standard_normal((size, _DEPTH), np.float32) / 3 for size in (_ROWS, _COLUMNS)]
    text = jax.export.export(jax.jit(function))(*arguments).mlir_module().encode()
    with new_context() as context:
        module = parse_module("test", text, context).module
        remarks = list(run_pipeline(module, DEFAULT_PASSES, options).remarks)
        return text, serialise(module, "bytecode"), remarks, arguments


def split(remarks: list[Remark]) -> bool:
    return any(remark.kind is Kind.PASSED and remark.code == "EX001" for remark in remarks)


ASKING: dict[str, Question] = {
    "exponential of the difference": lambda x: jnp.exp(x - jnp.max(x)) == 1,
    "ratio": lambda x: x / jnp.max(x) == 1,
    "ratio, not equal": lambda x: ~(x / jnp.max(x) != 1),
    "ratio from below": lambda x: ~(x / jnp.max(x) < 1),
    "floor of the ratio": lambda x: jnp.floor(x / jnp.max(x)) == 1,
    "integer of the ratio": lambda x: (x / jnp.max(x)).astype(jnp.int32) > 0,
    "sign of the difference": lambda x: jnp.sign(x - jnp.max(x)) > -1,
    "scaled difference": lambda x: (x - jnp.max(x)) * 3.0 >= 0,
    "logarithms": lambda x: jnp.log(x) >= jnp.log(jnp.max(x)),
    "greatest of both": lambda x: jnp.maximum(x, jnp.max(x)) == x,
    "finite maximum": lambda x: x == jnp.where(jnp.isfinite(jnp.max(x)), jnp.max(x), 0.0),
    "maximum of halves": lambda x: x == jnp.maximum(jnp.max(x[:, :100]), jnp.max(x[:, 100:])),
    "bits": lambda x: jax.lax.bitcast_convert_type(x, jnp.int32) == jax.lax.bitcast_convert_type(jnp.max(x), jnp.int32),
    "minimum": lambda x: x - jnp.min(x) == 0,
    "square of the difference": lambda x: jnp.square(x - jnp.max(x)) <= 0,
}
ALLOWED: dict[str, Question] = {
    "softmax above a bound": lambda x: jnp.exp(x - jnp.max(x)) / jnp.sum(jnp.exp(x - jnp.max(x))) > 1e-6,
    "clipped softmax": lambda x: jnp.clip(jax.nn.softmax(x, (0, 1)), 1e-6) == jax.nn.softmax(x, (0, 1)),
    "relu of what is normalised": lambda x: (x - jnp.mean(x)) * jax.lax.rsqrt(jnp.var(x) + 1e-6) > 0,
    "at least a third of the maximum": lambda x: x >= jnp.max(x) * 0.3,
    "finite": lambda x: jnp.isfinite(x / jnp.max(x)),
    "not a number": lambda x: jnp.isnan(x - jnp.max(x)) | (x > 2),
}
# Questions of order that are taken for ones of equality: the parts that do not ask are split all the same.
MISTAKEN: dict[str, Question] = {
    "rounded": lambda x: jnp.round(x / jnp.max(x) * 127) > 40,
    "below another's maximum": lambda x: x < jnp.max(jnp.sin(x[:1, :7])),
}


def count(question: Question) -> Callable[[Array, Array], Array]:
    """How many elements, by row and by column, a question is answered yes for."""

    def function(a: Array, b: Array) -> Array:
        answers = question(scores(a, b)).astype(jnp.float32)
        return jnp.concatenate([answers @ jnp.ones(_COLUMNS), jnp.ones(_ROWS) @ answers])

    return function


@pytest.mark.parametrize("name", ASKING)
def test_what_asks_for_equality_is_answered_as_before(name: str) -> None:
    before, after, remarks, arguments = rewritten(count(ASKING[name]))
    assert "EX309" in {remark.code for remark in remarks} or not split(remarks)
    [expected] = run_program(compile_program(before), arguments)
    [found] = run_program(compile_program(after), arguments)
    assert expected.sum() == 2, "one element is the largest or the smallest"
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", [*ALLOWED, *MISTAKEN])
def test_what_only_asks_for_order_is_split(name: str) -> None:
    before, after, remarks, arguments = rewritten(count((ALLOWED | MISTAKEN)[name]))
    assert split(remarks)
    assert ("EX309" in {remark.code for remark in remarks}) == (name in MISTAKEN)
    [expected] = run_program(compile_program(before), arguments)
    [found] = run_program(compile_program(after), arguments)
    assert 0 < expected.sum() <= 2 * _ROWS * _COLUMNS
    np.testing.assert_allclose(found, expected, atol=1)  # one element in a row may lie at the bound


def test_the_gradient_of_a_maximum_taken_by_hand() -> None:
    def function(a: Array, b: Array) -> Array:
        x = scores(a, b)
        chosen = jnp.where(jnp.exp(x - jnp.max(x)) == 1, x, 0.0)
        return jnp.concatenate([jnp.sum(chosen, 0), jnp.sum(chosen, 1)])

    before, after, _, arguments = rewritten(function)
    [expected] = run_program(compile_program(before), arguments)
    [found] = run_program(compile_program(after), arguments)
    assert np.count_nonzero(expected) == 2
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_argmax_taken_by_hand() -> None:
    def function(a: Array, b: Array) -> Array:
        x = scores(a, b)
        places = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0) * _COLUMNS
        places += jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
        return jnp.min(jnp.where(x / jnp.max(x) == 1, places, x.size))

    before, after, _, arguments = rewritten(function)
    [expected] = run_program(compile_program(before), arguments)
    [found] = run_program(compile_program(after), arguments)
    assert expected < _ROWS * _COLUMNS
    assert found == expected


def test_what_a_loop_of_the_program_has_picked_is_compared_with_the_same_numbers() -> None:
    def function(a: Array, b: Array) -> Array:
        x = jnp.exp(a @ b.T * 1.3) * jnp.sin(a[:, :1]) + jnp.cos(b[:, 1])
        largest = jax.lax.fori_loop(0, _ROWS, lambda i, found: jnp.maximum(found, jnp.max(x[i])), 0.0)
        return count(lambda _: x == largest)(a, b)

    before, after, _, arguments = rewritten(function, Options(100_000, 20_000))
    [expected] = run_program(compile_program(before), arguments)
    [found] = run_program(compile_program(after), arguments)
    assert expected.sum() == 2
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "asked",
    [
        lambda k: k > k.T,
        lambda k: jnp.sign(k - k.T),
        lambda k: jnp.floor(k / k.T),
        lambda k: jax.lax.fori_loop(0, 3, lambda i, n: n + (k > k.T) * i, (k + k.T > 0).astype(jnp.int32)),
    ],
    ids="order sign step loop".split(),
)
@pytest.mark.parametrize("of", [jnp.tanh, jax.nn.softmax], ids="tanh softmax".split())
def test_a_matrix_and_its_transpose_have_one_diagonal(asked: Question, of: Question) -> None:
    """No loop compares the elements of a complete tensor with elements that it computes again."""

    def function(a: Array, b: Array) -> Array:
        return asked(of(a[:300, :30] @ b[:300, :30].T)).sum(1)

    text, written, _, arguments = rewritten(function, Options(100_000, 30_000))
    before, after = (run_program(compile_program(each), arguments) for each in (text, written))
    np.testing.assert_array_equal(before[0], after[0])


# The product's elements that are the largest of all devices' products, counted by row; one group of one device.
LARGEST_OF_ALL = """
func.func @main(%a: tensor<300x30xf32>, %b: tensor<30x200xf32>) -> tensor<300xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %x = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<300x30xf32>, tensor<30x200xf32>) -> tensor<300x200xf32>
  %own = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<300x200xf32>, tensor<f32>) -> tensor<f32>
  %largest = "stablehlo.all_reduce"(%own) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %m = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) : (tensor<f32>) -> tensor<f32>
  %all = stablehlo.broadcast_in_dim %largest, dims = [] : (tensor<f32>) -> tensor<300x200xf32>
  %is = stablehlo.compare GE, %x, %all : (tensor<300x200xf32>, tensor<300x200xf32>) -> tensor<300x200xi1>
  %one = stablehlo.convert %is : (tensor<300x200xi1>) -> tensor<300x200xi32>
  %sums = stablehlo.reduce(%one init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<300x200xi32>, tensor<i32>) -> tensor<300xi32>
  return %sums : tensor<300xi32>
}
"""


def test_the_largest_of_all_devices_is_one_of_the_own_elements() -> None:
    with new_context() as context:
        module = parse_module("test", LARGEST_OF_ALL.encode(), context).module
        remarks = list(run_pipeline(module, DEFAULT_PASSES, Options(100_000, 30_000)).remarks)
    assert not split(remarks) or "EX309" in {remark.code for remark in remarks}
