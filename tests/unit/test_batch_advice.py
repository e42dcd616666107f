"""Advice on the batch: what is one, and that its peak is the one of the program with that batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from jaxlib.mlir import ir

from exla_opt.advice.batch import batch_advice, halves, with_batch
from exla_opt.cli.opt import main
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import number_of_ops
from exla_opt.options import Options
from exla_opt.resize.separate import join_broadcasts, separate_broadcasts
from exla_opt.runtime.judge import judge_of
from exla_opt.sizes import parse_size
from tests.execute import assert_equal_results


def shape(*sizes: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def labels(*sizes: int) -> jax.ShapeDtypeStruct:
    return shape(*sizes, dtype=jnp.int32)


def step(loss: Callable[..., Any], *arguments: Any) -> str:
    """A step of gradient descent: the loss, and all parameters anew. The first argument has the parameters."""

    def stepped(parameters: Any, *rest: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(parameters, *rest)
        return value, jax.tree.map(lambda old, slope: old - 0.1 * slope, parameters, gradient)

    return jax.jit(stepped).lower(*arguments).as_text()


def of_entropy(logits: Any, wanted: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), wanted[..., None], -1).mean()


def perceptron(batch: int) -> str:
    def loss(weights: Any, x: Any, wanted: Any) -> Any:
        first, second, last, bias = weights
        return of_entropy(jax.nn.gelu(jax.nn.gelu(x @ first) @ second) @ last + bias, wanted)

    weights = (shape(96, 128), shape(128, 128), shape(128, 10), shape(10))
    return step(loss, weights, shape(batch, 96), labels(batch))


def equal_sizes(batch: int) -> str:
    """The batch of 64 has as many examples as there are features, hidden units and classes."""

    def loss(weights: Any, x: Any, wanted: Any) -> Any:
        first, last, bias = weights
        return of_entropy(jax.nn.relu(x @ first) @ last + bias, wanted)

    return step(loss, (shape(64, 64), shape(64, 64), shape(64)), shape(batch, 8, 64), labels(batch, 8))


def batch_norm(batch: int) -> str:
    """Means over the batch come back to its examples."""

    def loss(weights: Any, x: Any, wanted: Any) -> Any:
        kernel, depth, scale, last = weights
        h = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        h = jax.lax.conv_general_dilated(
            h, depth, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=16
        )
        mean = h.mean((0, 1, 2))
        h = jax.nn.relu((h - mean) * jax.lax.rsqrt(((h - mean) ** 2).mean((0, 1, 2)) + 1e-5) * scale)
        h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return of_entropy(h.mean((1, 2)) @ last, wanted)

    weights = (shape(3, 3, 3, 16), shape(3, 3, 1, 16), shape(16), shape(16, 10))
    return step(loss, weights, shape(batch, 16, 16, 3), labels(batch))


def attention(batch: int) -> str:
    """Tokens are gathered, reshaped together with the batch and apart again, and attend to one another."""

    def loss(weights: Any, tokens: Any, key: Any) -> Any:
        table, query, value, output = weights
        x = table[tokens]
        q, v = ((x.reshape(-1, 32) @ each).reshape(*tokens.shape, 4, 8) for each in (query, value))
        scores = jnp.where(jnp.tril(jnp.ones((48, 48), bool)), jnp.einsum("bthd,bshd->bhts", q, q), -1e9)
        x = x + jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).reshape(x.shape) @ output
        x = jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)
        return of_entropy((x @ table.T)[:, :-1], tokens[:, 1:])

    weights = (shape(200, 32), shape(32, 32), shape(32, 32), shape(32, 32))
    return step(loss, weights, labels(batch, 48), shape(2, dtype=jnp.uint32))


def recurrent(batch: int) -> str:
    """Time comes first, and a scan walks along it."""

    def loss(weights: Any, xs: Any) -> Any:
        def one(state: Any, x: Any) -> Any:
            state = jnp.tanh(state @ weights[0] + x @ weights[1])
            return state, (state**2).mean(-1)

        return jax.lax.scan(one, jnp.zeros((xs.shape[1], 32)), xs)[1].mean()

    return step(loss, (shape(32, 32), shape(16, 32)), shape(20, batch, 16))


def forward(batch: int) -> str:
    """The result has the type of the argument."""

    def block(weights: Any, x: Any) -> Any:
        return x + jax.nn.gelu(x @ weights[0]) @ weights[1]

    return jax.jit(block).lower((shape(32, 128), shape(128, 32)), shape(batch, 16, 32)).as_text()


BATCHES = [
    (perceptron, 512, "dimension 0 of arguments 4 (512x96xf32), 5 (512xi32)"),
    (perceptron, 300, "dimension 0 of arguments 4 (300x96xf32), 5 (300xi32)"),
    (equal_sizes, 64, "dimension 0 of arguments 3 (64x8x64xf32), 4 (64x8xi32)"),
    (batch_norm, 32, "dimension 0 of arguments 4 (32x16x16x3xf32), 5 (32xi32)"),
    (attention, 16, "dimension 0 of argument 4 (16x48xi32)"),
    (recurrent, 64, "dimension 1 of argument 2 (20x64x16xf32)"),
    (forward, 64, "dimension 0 of argument 2 (64x16x32xf32)"),
]


def parsed(text: str) -> ir.Module:
    return parse_module("x.mlir", text.encode(), new_context()).module


def peak_of(text: str | bytes) -> int:
    measure = judge_of("cpu").measure
    assert measure is not None
    return measure(text.encode() if isinstance(text, str) else text).peak


def advised(text: str, limit: int) -> str:
    measure = judge_of("cpu").measure
    assert measure is not None
    return batch_advice(parsed(text), Options(), measure, peak_of(text), limit)


@pytest.mark.parametrize(("program", "size", "where"), BATCHES)
def test_the_peak_is_that_of_the_program_with_that_batch(program: Callable[[int], str], size: int, where: str) -> None:
    text = program(size)
    limit = peak_of(text) * 6 // 10
    advice = advised(text, limit)
    found = re.fullmatch(rf"a batch of (\d+) instead of {size} \((.*)\) fits into \S+: peak (\S+), compiled", advice)
    assert found is not None, advice
    assert found[2] == where
    assert size % int(found[1]) == 0
    own = peak_of(program(int(found[1])))
    assert own <= limit
    assert abs(parse_size(found[3]) - own) <= 0.01 * own


def test_with_a_smaller_batch_it_computes_the_same_for_fewer_examples() -> None:
    def program(batch: int) -> str:
        def loss(weights: Any, x: Any, wanted: Any) -> Any:
            return jnp.square(jnp.tanh(x @ weights[0]) @ weights[1] - wanted).sum()

        return step(loss, (shape(24, 32), shape(32, 8)), shape(batch, 6, 24), shape(batch, 6, 8))

    assert_equal_results(program(8), with_batch(parsed(program(32)), 8))


def contrastive(batch: int) -> str:
    """Every example is compared with every other one."""

    def loss(weight: Any, x: Any) -> Any:
        z = x @ weight
        return -jax.nn.log_softmax(z @ z.T).mean()

    return step(loss, shape(32, 16), shape(batch, 32))


def joined_tokens(batch: int) -> str:
    """The argument has batch x tokens in one dimension; the tokens attend to one another."""

    def attend(x: Any) -> Any:
        x = x.reshape(batch, 16, 32)
        return jax.nn.softmax(x @ x.transpose(0, 2, 1)) @ x

    return jax.jit(attend).lower(shape(batch * 16, 32)).as_text()


def shifted(batch: int) -> str:
    return jax.jit(lambda x: jnp.tanh(x[1:] - x[:-1])).lower(shape(batch, 64)).as_text()


def summed_up(batch: int) -> str:
    return jax.jit(lambda x: jnp.cumsum(x, 0)).lower(shape(batch, 64)).as_text()


def momentum(batch: int) -> str:
    """Parameters and their gradients, and no examples."""

    def update(weights: Any, slopes: Any) -> Any:
        return jax.tree.map(lambda one, other: one - 0.1 * jnp.tanh(other), weights, slopes)

    weights = (shape(batch, 32), shape(32, 64))
    return jax.jit(update).lower(weights, weights).as_text()


def edges(batch: int) -> str:
    """Edges add to nodes, from which edges read: fewer edges are another graph."""

    def pass_on(nodes: Any, sources: Any, targets: Any) -> Any:
        for _ in range(2):
            nodes = jnp.tanh(jnp.zeros_like(nodes).at[targets].add(nodes[sources]))
        return nodes

    return jax.jit(pass_on).lower(shape(50, 16), labels(batch), labels(batch)).as_text()


def queries(batch: int) -> str:
    """There are as many queries as keys, and no batch of them."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T) @ v

    return jax.jit(attend).lower(*[shape(batch, 32)] * 3).as_text()


def features(_: int) -> str:
    """The rows of a matrix are summed over, and those of its factor have length one."""
    return jax.jit(lambda x, w: jnp.tanh(x @ w).sum()).lower(shape(1, 64), shape(64, 96)).as_text()


@pytest.mark.parametrize(
    "program", [contrastive, joined_tokens, shifted, summed_up, momentum, edges, queries, features]
)
def test_where_no_dimension_is_certain_nothing_is_advised(program: Callable[[int], str]) -> None:
    def measure(_: bytes) -> Any:
        raise AssertionError("compiled although there is no batch")

    assert batch_advice(parsed(program(256)), Options(), measure, 10**9, 10**8) == ""


def compiled(peaks: dict[int, int]) -> tuple[Callable[[bytes], Any], list[int]]:
    """A compiler with these peaks by batch, and the batches that it has compiled."""
    tried: list[int] = []

    def measure(data: bytes) -> Any:
        with new_context() as context:
            [found] = re.findall(r"tensor<(\d+)x16x32xf32>\) ->", str(ir.Module.parse(data, context)))
        tried.append(int(found))
        return type("Measured", (), {"peak": peaks[int(found)]})

    return measure, tried


@pytest.mark.parametrize(
    ("peaks", "limit", "tried", "best"),
    [
        ({512: 500_000}, 600_000, [512], 512),  # as estimated
        ({512: 700_000, 256: 500_000}, 600_000, [512, 256], 256),
        ({256: 100_000, 512: 400_000}, 420_000, [256, 512], 512),  # less than estimated
        ({512: 990_000, 256: 985_000, 128: 980_000}, 600_000, [512], 0),
    ],
)
def test_compiles_are_few(peaks: dict[int, int], limit: int, tried: list[int], best: int) -> None:
    measure, found = compiled(peaks)
    advice = batch_advice(parsed(forward(1024)), Options(), measure, 10**6, limit)
    assert found == tried
    assert advice.startswith(f"a batch of {best} instead of 1024 ") if best else advice == ""


def test_a_program_that_fits_gets_no_advice() -> None:
    assert advised(forward(64), 10**9) == ""


def test_where_the_parameters_alone_do_not_fit_nothing_is_compiled() -> None:
    measure, tried = compiled({})
    assert batch_advice(parsed(forward(64)), Options(), measure, 10**6, 32 * 128 * 4 * 2) == ""
    assert tried == []


def test_batches_are_halved() -> None:
    assert halves(64) == [32, 16, 8, 4, 2]
    assert halves(100) == [50, 25, 5]
    assert halves(7) == halves(2) == []


def test_broadcasts_are_joined_again_unless_they_differ() -> None:
    module = parsed(equal_sizes(64))
    before = number_of_ops(module)
    copies = separate_broadcasts(module)
    assert number_of_ops(module) > before
    join_broadcasts(copies)
    module.operation.verify()
    assert number_of_ops(module) <= before


def test_the_diagnosis_names_the_batch(tmp_path: Path) -> None:
    model = tmp_path / "model.mlir"
    model.write_text(perceptron(512))
    for more, expected in ([f"--memory-limit={peak_of(perceptron(512)) // 2}"], True), ([], False):
        result = CliRunner().invoke(main, [str(model), "--diagnose", *more])
        assert result.exit_code == 0, result.output
        assert ("advice: a batch of " in result.stdout) == expected
