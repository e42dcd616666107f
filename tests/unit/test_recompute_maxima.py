"""A maximum is recomputed together with what it was taken of, so that rounding does not become an exponent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function, operations_of, walk_regions
from exla_opt.memory.machine import CPU, GPU, Machine
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.passes.recompute.choose import find_problem
from exla_opt.passes.recompute.kernels import read_schedule
from exla_opt.passes.recompute.maxima import find_maxima
from exla_opt.passes.recompute.segments import segments
from exla_opt.pipeline import run_pipeline
from tests.execute import assert_equal_results, run_module

LAYERS, ROWS, WIDTH = 8, 512, 64
# One unit in the last place of such a score is a sixteenth.
SCALE = 1e6


@pytest.fixture(autouse=True)
def context() -> Iterator[ir.Context]:
    with new_context() as made:
        yield made


def normalised(x: Any) -> Any:
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def scores(rows: Any, weight: Any) -> Any:
    return SCALE * (normalised(rows @ weight) @ (weight / 8))


def by_softmax(weights: Any, rows: Any) -> Any:
    for one, other in weights:
        rows = rows + jax.nn.softmax(scores(rows, one)) @ other
    return (rows * rows).sum()


def by_logarithms(weights: Any, rows: Any) -> Any:
    """The maximum is read by a sum that is only read by its logarithm."""
    total: Any = 0.0
    for one, other in weights:
        each = scores(rows, one)
        total = total + jax.nn.logsumexp(each, -1).sum() / SCALE
        rows = rows + jax.nn.log_softmax(each) @ other / SCALE
    return (rows * rows).sum() + total


def by_minimum(weights: Any, rows: Any) -> Any:
    for one, other in weights:
        each = scores(rows, one)
        weight = jnp.exp(jax.lax.stop_gradient(each.min(-1, keepdims=True)) - each)
        rows = rows + (weight / weight.sum(-1, keepdims=True)) @ other
    return (rows * rows).sum()


def by_norms(weights: Any, rows: Any) -> Any:
    """Statistics without a maximum."""
    for one, other in weights:
        rows = rows + jnp.tanh(normalised(rows @ one)) @ other
    return (rows * rows).sum()


def by(maximum: Callable[[Any], Any]) -> Callable[..., Any]:
    """A softmax that takes a maximum of its own, and whose gradient is not scaled: no ulp of it becomes large."""

    def program(weights: Any, rows: Any) -> Any:
        for one, other in weights:
            each = normalised(rows @ one) @ (one / 8)
            each = jax.lax.stop_gradient(10 * SCALE * each) + (each - jax.lax.stop_gradient(each))
            weight = jnp.exp(each - maximum(each))
            rows = rows + (weight / weight.sum(-1, keepdims=True)) @ other
        return (rows * rows).sum()

    return program


def of_segments(each: Any) -> Any:
    """One maximum for eight rows."""
    rows = jnp.arange(len(each)) // 8
    return jax.lax.stop_gradient(jax.ops.segment_max(each, rows, len(each) // 8)[rows])


# Each takes the maximum in another way.
MAXIMA: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda each: jax.lax.stop_gradient(each.max(-1, keepdims=True)),
    "broadcast": lambda each: each.max(-1, keepdims=True),  # its gradient compares: XLA:CPU writes the broadcast
    "sort": lambda each: jax.lax.stop_gradient(jnp.sort(each, -1)[:, -1:]),
    "top-k": lambda each: jax.lax.stop_gradient(jax.lax.top_k(each, 4)[0][:, :1]),
    "cumulative": lambda each: jax.lax.stop_gradient(jax.lax.cummax(each, axis=1)[:, -1:]),
    "segments": of_segments,
}


def by_saved(weights: Any, rows: Any) -> Any:
    """Only the logarithm of the sum is kept: the program itself computes the scores again, from the rows."""

    def layer(rows: Any, one: Any, other: Any) -> Any:
        each = scores(rows, one)
        total = checkpoint_name(jax.nn.logsumexp(each, -1, keepdims=True), "total")
        return rows + jnp.exp(each - jax.lax.stop_gradient(total)) @ other

    policy = jax.checkpoint_policies.save_only_these_names("total")
    for one, other in weights:
        rows = jax.checkpoint(layer, policy=policy)(rows, one, other)
    return (rows * rows).sum()


def exported(program: Callable[..., Any], layers: int = LAYERS, rows: int = ROWS, machine: Machine = CPU) -> ir.Module:
    square = jax.ShapeDtypeStruct((WIDTH, WIDTH), "float32")
    lowered = jax.jit(jax.grad(program)).lower(
        [(square, square)] * layers, jax.ShapeDtypeStruct((rows, WIDTH), "float32")
    )
    module = ir.Module.parse(str(lowered.compiler_ir("stablehlo")))
    run_pipeline(module, ("normalise", "rce"), Options(machine=machine))
    return module


def recomputed(module: ir.Module, part: float, machine: Machine = CPU) -> ir.Module:
    """The module with a limit of a part of its temporaries."""
    memory = predict(module, machine)
    limit = memory.peak - memory.temp + int(part * memory.temp)
    after = ir.Module.parse(str(module))
    run_pipeline(after, ("recompute", "normalise"), Options(memory_limit=limit, machine=machine))
    return after


def with_other_bits(module: ir.Module) -> ir.Module:
    """The module with each product that is computed behind a barrier off by some ulps, as if rounded otherwise."""
    after = ir.Module.parse(str(module))
    off = np.linspace(1 + 2e-6, 1 + 4e-6, WIDTH, dtype=np.float32)
    copies: set[ir.Value] = set()
    for op in list(walk_regions(main_function(after).regions[0].blocks[0])):
        if op.name != "stablehlo.optimization_barrier" and copies.isdisjoint(op.operands):
            continue
        copies.update(op.results)
        if op.name == "stablehlo.dot_general":
            uses = [(use.owner.operation, use.operand_number) for use in op.results[0].uses]
            following = operations_of(op.block)[operations_of(op.block).index(op) + 1]
            with ir.InsertionPoint(following), op.location:
                factor = stablehlo.constant(ir.DenseElementsAttr.get(off.data))
                kind = build.tensor_of(op.results[0])
                spread = stablehlo.broadcast_in_dim(kind, factor, [len(kind.shape) - 1])
                product = stablehlo.multiply(op.results[0], spread)
            for reader, index in uses:
                reader.operands[index] = product
            copies.add(product)
    return after


def assert_bits_do_not_matter(before: ir.Module, after: ir.Module, layers: int, rows: int) -> None:
    random = np.random.default_rng(0)
    shapes = [(WIDTH, WIDTH)] * 2 * layers + [(rows, WIDTH)]
    arrays = [(random.standard_normal(shape) / 8).astype(np.float32) for shape in shapes]
    for one, other in zip(run_module(before, arrays), run_module(with_other_bits(after), arrays), strict=True):
        assert np.abs(one - other).max() <= 0.05 * max(np.abs(one).max(), 1e-3)


@pytest.mark.parametrize("part", (0.2, 0.4, 0.6))
@pytest.mark.parametrize("program", (by_softmax, by_logarithms, by_minimum, by_norms))
def test_results_are_equal_with_large_scores(program: Callable[..., Any], part: float) -> None:
    before = exported(program)
    after = recomputed(before, part)
    assert str(after) != str(before)
    assert_equal_results(before, after)


@pytest.mark.parametrize("program", (by_softmax, by_logarithms, by_minimum))
def test_no_recomputed_score_meets_a_stored_maximum(program: Callable[..., Any]) -> None:
    after = recomputed(exported(program), 0.4)
    exponents = [op for op in walk_regions(main_function(after).regions[0].blocks[0]) if "exponential" in op.name]
    inside = [op for op in exponents if op.parent is not None and op.parent.name == "stablehlo.while"]
    assert inside
    assert all("stablehlo.reduce" in {each.name for each in operations_of(op.block)} for op in inside)


def test_statistics_without_a_maximum_may_be_stored() -> None:
    module = exported(by_norms)
    block = main_function(module).regions[0].blocks[0]
    schedule, _ = read_schedule(main_function(module), Types(), CPU)
    assert schedule.peak is not None
    assert find_maxima(block, schedule, schedule.peak) == {}


def test_what_only_a_gradient_after_the_peak_computes_is_none() -> None:
    module = exported(by_softmax)
    schedule, _ = read_schedule(main_function(module), Types(), CPU)
    assert schedule.peak is not None
    found = find_maxima(main_function(module).regions[0].blocks[0], schedule, schedule.peak)
    assert len(found) >= 2 * LAYERS  # a maximum and a sum
    assert all(schedule.producer[value] <= schedule.peak for value in found)


@pytest.mark.parametrize("name", ("sort", "cumulative"))
def test_any_maximum_fits_a_copy_with_other_bits(name: str) -> None:
    before = exported(by(MAXIMA[name]), 6, 256)
    after = recomputed(before, 0.45)
    assert str(after) != str(before)
    assert_bits_do_not_matter(before, after, 6, 256)


@pytest.mark.parametrize("name", MAXIMA)
def test_any_maximum_belongs_to_its_scores(name: str) -> None:
    module = exported(by(MAXIMA[name]), 3)
    schedule, _ = read_schedule(main_function(module), Types(), CPU)
    assert schedule.peak is not None
    found = find_maxima(main_function(module).regions[0].blocks[0], schedule, schedule.peak)
    scores = max(schedule.sizes)
    assert any(schedule.sizes[other] == scores for others in found.values() for other in others)


@pytest.mark.parametrize("name", ("reduce", "sort"))
def test_behind_a_barrier_a_maximum_fits_its_copy_too(name: str) -> None:
    layers, rows = 4, 16384  # of fewer rows, a GPU's workspace for products is larger
    before = exported(by(MAXIMA[name]), layers, rows, GPU)
    after = recomputed(before, 0.3, GPU)
    assert "stablehlo.while" not in str(after) and "optimization_barrier" in str(after)
    assert_equal_results(before, after)
    assert_bits_do_not_matter(before, after, layers, rows)


def test_a_cut_does_not_part_a_maximum_from_its_scores() -> None:
    module = exported(by_logarithms, 3)
    function, types, options = main_function(module), Types(), Options(memory_limit=1)
    schedule, _ = read_schedule(function, types, CPU)
    problem = find_problem(schedule, function.regions[0].blocks[0], types, options)
    assert problem is not None and problem.maxima
    for cut in range(problem.peak):
        for choices in segments(problem, [cut], (0.0,)):
            for chosen in choices:
                again = {value for segment in chosen for value in segment.again}
                for value, others in problem.maxima.items():
                    assert value in again or value not in problem.first or again.isdisjoint(others), cut


def test_a_maximum_belongs_to_what_the_program_computes_scores_from_again() -> None:
    module = exported(by_saved, 4, machine=GPU)
    schedule, _ = read_schedule(main_function(module), Types(), GPU)
    assert schedule.peak is not None
    found = find_maxima(main_function(module).regions[0].blocks[0], schedule, schedule.peak)
    late = [value for value in found if schedule.readers[value][-1] > schedule.peak]
    rows = {value for value, readers in schedule.readers.items() if readers[-1] > schedule.peak}
    assert len(late) >= 2
    # Those of the first layer are computed from the arguments.
    assert all(found[value] & rows - found.keys() for value in late[1:])


def test_what_follows_a_pooling_holds_no_maximum() -> None:
    def program(weights: Any, rows: Any) -> Any:
        rows = rows.reshape(-1, 2, WIDTH).max(1)
        for one, other in weights:
            rows = rows + jnp.tanh(rows @ one) @ other
        return (rows * rows).sum()

    module = exported(program, 4)
    schedule, _ = read_schedule(main_function(module), Types(), CPU)
    assert schedule.peak is not None
    assert len(find_maxima(main_function(module).regions[0].blocks[0], schedule, schedule.peak)) <= 2
