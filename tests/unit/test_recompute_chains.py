"""Independent chains one after another: equal results in the memory of one chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from exla_opt.budget.fit import fit
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function, operations_of
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import GPU
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes.recompute.chains import Chain, wait_for_others
from exla_opt.passes.recompute.kernels import read_schedule
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.memory import measure_memory
from tests.execute import assert_equal_results

SIZE, COUNT = 160, 6
MATRIX = 4 * SIZE * SIZE
CHAIN = "EX017"


def orthogonal(x: Any) -> Any:
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(4):
        square = x @ x.T
        x = 1.5 * x - 0.5 * square @ x
    return x


def optimiser(weights: list[Any], moments: list[Any], slopes: list[Any]) -> Any:
    """Each matrix has a chain of its own, from arguments to results."""
    moments = [0.95 * moment + slope for moment, slope in zip(moments, slopes, strict=True)]
    return [weight - 0.02 * orthogonal(moment) for weight, moment in zip(weights, moments, strict=True)], moments


def roots(weights: list[Any], moments: list[Any], slopes: list[Any]) -> Any:
    """All chains read the same identity, and a product joins them."""
    total: Any = jnp.zeros((SIZE, SIZE))
    for moment, slope in zip(moments, slopes, strict=True):
        matrix = moment @ moment.T + slope @ slope.T
        y, z = matrix / jnp.linalg.norm(matrix), jnp.eye(SIZE)
        for _ in range(3):
            middle = 1.5 * jnp.eye(SIZE) - 0.5 * z @ y
            y, z = y @ middle, middle @ z
        total = jnp.tanh(total + z @ weights[0])
    return total


def experts(weights: list[Any], moments: list[Any], slopes: list[Any]) -> Any:
    """The chains begin with a tensor that the program computes."""
    x = jnp.tanh(weights[0] @ moments[0])
    return [orthogonal(jnp.sin(x @ weight)) @ slope for weight, slope in zip(weights, slopes, strict=True)]


def factors(weights: list[Any], moments: list[Any], slopes: list[Any]) -> Any:
    """A library is called in each chain."""
    found = [orthogonal(jnp.linalg.cholesky(moment @ moment.T + jnp.eye(SIZE))) for moment in moments]
    return [weight - each for weight, each in zip(weights, found, strict=True)]


def maxima(weights: list[Any], moments: list[Any], slopes: list[Any]) -> Any:
    """Each chain asks where it is largest."""
    found = []
    for weight, moment in zip(weights, moments, strict=True):
        x = weight @ moment
        found.append(jnp.where(x == x.max(), orthogonal(x), 0.0).sum(0))
    return found


def in_a_loop(weights: list[Any], moments: list[Any], slopes: list[Any]) -> Any:
    """Each step of a loop runs all chains."""

    def step(weights: list[Any], _: None) -> Any:
        return [weight - 0.1 * orthogonal(weight @ slope) for weight, slope in zip(weights, slopes, strict=True)], None

    return jax.lax.scan(step, weights, None, 3)[0]


PROGRAMS = (optimiser, roots, experts, factors, maxima, in_a_loop)
# The part of the temporary memory that is left; 1 where nothing is moved.
LEFT = {"optimiser": 0.3, "roots": 0.55, "experts": 0.6, "factors": 0.6, "in_a_loop": 0.6}


def exported(program: Callable[..., Any]) -> str:
    matrices = [jax.ShapeDtypeStruct((SIZE, SIZE), "float32")] * COUNT
    return str(jax.jit(program).lower(matrices, matrices, matrices).compiler_ir("stablehlo"))


def rewritten(text: str, limit: int | None = 1, **options: Any) -> tuple[str, list[str]]:
    """The module after recompute, and the codes of its remarks."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        outcome = run_pipeline(module, ("recompute", "normalise"), Options(memory_limit=limit, **options))
        return serialise(module, "text").decode(), [remark.code for remark in outcome.remarks]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_are_equal_in_less_memory(program: Callable[..., Any]) -> None:
    before = exported(program)
    after, codes = rewritten(before)
    assert_equal_results(before, after)
    left = LEFT.get(program.__name__, 1.0)
    assert (CHAIN in codes) == (left < 1)
    assert measure_memory(after).temp <= left * measure_memory(before).temp


def test_the_chains_of_an_optimiser_take_the_memory_of_one() -> None:
    after, codes = rewritten(exported(optimiser))
    assert codes == [CHAIN] * (COUNT - 1)
    assert measure_memory(after).temp <= 4 * MATRIX


def test_nothing_is_moved_where_the_program_fits() -> None:
    text = exported(optimiser)
    with new_context() as context:
        peak = predict(parse_module("<program>", text.encode(), context).module).peak
    assert rewritten(text, peak)[1] == rewritten(text, None)[1] == []


def test_other_machines_choose_an_order_themselves() -> None:
    assert CHAIN not in rewritten(exported(optimiser), machine=GPU)[1]


def test_as_many_ops_as_before_do_not_hide_what_was_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recompute also removes dead ops."""
    monkeypatch.setattr("exla_opt.budget.search.number_of_ops", lambda module: 0)
    with new_context() as context:
        module = parse_module("<program>", exported(optimiser).encode(), context).module
        memory = predict(module)
        limit = memory.peak - memory.temp // 2
        found = fit(module, ("normalise", "recompute", "normalise"), Options(), limit)
    assert found.fits and found.peak <= limit


def test_a_chain_may_read_what_begins_another() -> None:
    kind = "tensor<32x32xf32>"
    products = {"z": "%x, %x", "a": "%x, %w", "b": "%a, %w", "c": "%a, %x", "d": "%c, %b"}
    dots = "\n".join(
        f"%{name} = stablehlo.dot_general {read}, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}"
        for name, read in products.items()
    )
    results = f"return %z, %d : {kind}, {kind}"
    text = f"func.func @main(%x: {kind}, %w: {kind}) -> ({kind}, {kind}) {{\n{dots}\n{results}\n}}"
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        before, function, types = serialise(module, "text").decode(), main_function(module), Types()
        block = function.regions[0].blocks[0]
        schedule, _ = read_schedule(function, types, Options().machine)
        made = {name: schedule.number[op.results[0]] for name, op in zip(products, operations_of(block), strict=False)}
        steps = {name: schedule.producer[number] for name, number in made.items()}
        chains = [Chain((steps[one],), (made[one],), made[after], 2) for one, after in (("a", "z"), ("c", "b"))]
        assert len(wait_for_others(block, chains, schedule, types)) == 2
        clean_up(module)
        after = serialise(module, "text").decode()
    assert after.count("stablehlo.while") == 2 and after.count("stablehlo.dot_general") == len(products)
    assert_equal_results(before, after)
