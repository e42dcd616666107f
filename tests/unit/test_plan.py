"""The arithmetic of plans: tiles and sizes; regions, stages and plans of three-line modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.memory.machine import CPU
from exla_opt.ops.rules import DimMapping, Kind, read_rules
from exla_opt.passes.tensor_splitter.graph import Graph, read_graphs
from exla_opt.passes.tensor_splitter.plans.body import work_of
from exla_opt.passes.tensor_splitter.plans.plan import Plan, make_plan
from exla_opt.passes.tensor_splitter.plans.runs import balanced_tile, cut_runs
from exla_opt.passes.tensor_splitter.regions.growth import grow
from exla_opt.passes.tensor_splitter.regions.loops import (
    Refusal,
    find_loops,
    find_outline,
    find_stages,
    refuse_unsplit,
)
from exla_opt.passes.tensor_splitter.regions.region import Output, Region, Stage, Work, find_copies, find_producers
from exla_opt.remarks import Reason
from exla_opt.sizes import format_size, parse_size

COUNTS = st.integers(min_value=1, max_value=10**6)


@given(COUNTS, COUNTS)
def test_a_tile_fits_and_takes_few_trips(extent: int, longest: int) -> None:
    tile = balanced_tile(extent, longest)
    assert 1 <= tile <= min(extent, longest)
    assert -(-extent // tile) <= 2 * -(-extent // longest)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_a_tile_divides_where_a_divisor_is_near(tile: int, trips: int) -> None:
    assert tile * trips % balanced_tile(tile * trips, tile) == 0


@pytest.mark.parametrize(
    ("extent", "longest", "tile"),
    [
        (256, 256, 256),  # fits whole
        (256, 40, 32),  # the nearest divisor
        (257, 40, 40),  # a prime has none: 6 tiles and 17 left
        (1009, 100, 96),  # a multiple of 16 rather than 92, the even share
        (7, 1, 1),
    ],
)
def test_tiles_known_by_heart(extent: int, longest: int, tile: int) -> None:
    assert balanced_tile(extent, longest) == tile


@given(st.sets(st.integers(0, 5000), min_size=2, max_size=6), st.integers(1, 6000))
def test_pieces_cover_every_index_once_and_in_order(places: set[int], longest: int) -> None:
    borders = sorted(places)
    runs = cut_runs(borders, longest)
    reached = borders[0]
    for run in runs:
        assert run.start == reached
        assert 1 <= run.tile <= longest and run.trips >= 1
        reached += run.tile * run.trips
    assert reached == borders[-1]
    starts = {run.start for run in runs}
    assert set(borders[:-1]) <= starts, "a run runs across a border"
    assert len(runs) <= 2 * len(list(pairwise(borders)))


@given(st.integers(1, 2**62), st.sampled_from([1, 10**3, 10**6, 10**9, 2**10, 2**20, 2**30]))
def test_a_size_reads_back_as_what_was_written(count: int, unit: int) -> None:
    name = {1: "B", 10**3: "KB", 10**6: "MB", 10**9: "GB", 2**10: "KiB", 2**20: "MiB", 2**30: "GiB"}[unit]
    short = count % 1000 + 1
    assert parse_size(f"{short}{name}") == short * unit
    assert format_size(parse_size(format_size(count))) == format_size(count)


# Regions and stages.
MATRIX = "tensor<64x32xf32>"


MODULES: list[ir.Module] = []  # a graph refers to the ops of its module, which must outlive it


@pytest.fixture(autouse=True)
def in_context() -> Iterator[None]:
    with new_context():
        yield
        MODULES.clear()


def graph_of(*lines: str, returns: str = MATRIX) -> Graph:
    """The graph of @main, whose arguments are %a, %b: 64x32, %r: 64, %c: 32; its last line makes %y."""
    body = "\n".join(lines)
    module = ir.Module.parse(
        f"func.func @main(%a: {MATRIX}, %b: {MATRIX}, %r: tensor<64xf32>, %c: tensor<32xf32>) -> {returns} {{\n"
        f"%zero = stablehlo.constant dense<0.0> : tensor<f32>\n{body}\nreturn %y : {returns}\n}}"
    )
    MODULES.append(module)
    return read_graphs(module, read_rules(module))[0]


def region_of(graph: Graph, seed: int, dim: int) -> Region:
    """The region of the result of node `seed` cut along `dim`, following the 64x32 tensors."""
    value = graph.nodes[seed].results[0]
    size = graph.tensors[value].type.shape[dim]
    return grow(graph, value, DimMapping(dim, size), lambda other: is_big(graph, other), lambda node, factor: True)


def is_big(graph: Graph, value: int) -> bool:
    return graph.tensors[value].type.shape in ((64, 32), (32, 64))


def stages_of(graph: Graph, region: Region) -> list[Stage]:
    producers = find_producers(graph, region)
    copies = find_copies(graph, producers)
    outline = find_outline(graph, region, producers, copies)
    stages = find_stages(graph, region, producers, copies, outline, lambda value: is_big(graph, value), Work({}, 0.0))
    assert stages is not None
    return stages


EXP = f"%x = stablehlo.exponential %a : {MATRIX}"
ROW_SUM = f"%s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : ({MATRIX}, tensor<f32>) -> tensor<64xf32>"
SPREAD = f"%t = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<64xf32>) -> {MATRIX}"
DIVIDE = f"%y = stablehlo.divide %x, %t : {MATRIX}"


def test_a_region_follows_the_factor_to_all_readers() -> None:
    graph = graph_of(
        EXP,
        f"%y = stablehlo.transpose %x, dims = [1, 0] : ({MATRIX}) -> tensor<32x64xf32>",
        returns="tensor<32x64xf32>",
    )
    region = region_of(graph, 1, 0)
    assert sorted(region.tiled) == [1, 2]
    assert region.mappings[graph.nodes[2].results[0]] == DimMapping(1, 64)
    assert (region.low, region.high) == (0, 64)


def test_a_region_ends_where_the_dimension_is_whole() -> None:
    sort = f'%y = "stablehlo.sort"(%x) <{{dimension = 0 : i64}}> ({{\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%l = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %l : tensor<i1>\n}}) : ({MATRIX}) -> {MATRIX}'
    graph = graph_of(EXP, sort)
    assert sorted(region_of(graph, 1, 1).tiled) == [1, 2]
    region = region_of(graph, 1, 0)
    assert sorted(region.tiled) == [1]
    assert "compares all elements" in region.blocked[2].text


def test_a_small_tensor_that_leads_back_is_made_inside() -> None:
    graph = graph_of(EXP, ROW_SUM, SPREAD, DIVIDE)
    region = region_of(graph, 1, 0)
    assert sorted(region.tiled) == [1, 2, 3, 4]
    (stage,) = stages_of(graph, region)
    assert stage.nodes == (1, 2, 3, 4)
    assert stage.outputs == (Output(4, 0, DimMapping(0, 64)),)


def test_what_is_reduced_over_the_factor_waits_for_the_next_loop() -> None:
    graph = graph_of(EXP, ROW_SUM, SPREAD, DIVIDE)
    region = region_of(graph, 1, 1)
    assert region.tiled[2].factor.kind is Kind.REDUCING
    first, second = stages_of(graph, region)
    assert (first.nodes, first.outputs) == ((1, 2), (Output(2, 0, None),))
    assert second.outputs == (Output(4, 0, DimMapping(1, 32)),)
    assert 1 in second.nodes, "the big tensor is recomputed, not kept"
    assert 2 not in second.nodes


def test_a_cheap_op_of_outside_values_is_only_repeated() -> None:
    graph = graph_of(
        f"%t = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<64xf32>) -> {MATRIX}",
        f"%y = stablehlo.add %a, %t : {MATRIX}",
    )
    assert find_copies(graph, find_producers(graph, region_of(graph, 2, 0))) == {1}


def test_a_small_op_that_depends_on_no_big_tensor_stays_before_the_loop() -> None:
    """Cut with the region it would be complete after the loop only, and the last op would take a second one."""
    graph = graph_of(
        EXP,
        "%wide = stablehlo.convert %r : (tensor<64xf32>) -> tensor<64xf64>",
        "%near = stablehlo.convert %wide : (tensor<64xf64>) -> tensor<64xf32>",
        "%twice = stablehlo.add %near, %near : tensor<64xf32>",
        f"%t = stablehlo.broadcast_in_dim %twice, dims = [0] : (tensor<64xf32>) -> {MATRIX}",
        f"%v = stablehlo.multiply %x, %t : {MATRIX}",
        f"%s = stablehlo.dot_general %twice, %v, contracting_dims = [0] x [0] : (tensor<64xf32>, {MATRIX}) -> tensor<32xf32>",
        f"%u = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<32xf32>) -> {MATRIX}",
        "%n = stablehlo.reduce(%twice init: %zero) applies stablehlo.add across dimensions = [0]"
        " : (tensor<64xf32>, tensor<f32>) -> tensor<f32>",
        "%m = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<32xf32>",
        "%y = stablehlo.add %s, %m : tensor<32xf32>",
        returns="tensor<32xf32>",
    )
    region = region_of(graph, 1, 0)
    assert 4 not in region.tiled
    assert len(stages_of(graph, region)) == 1


def test_a_small_op_that_only_tiles_read_is_computed_tile_by_tile() -> None:
    """Twice the rows before a product: computed before the loop they would all be alive in it."""
    graph = graph_of(
        EXP,
        "%two = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<64xf32>",
        "%twice = stablehlo.multiply %r, %two : tensor<64xf32>",
        f"%t = stablehlo.broadcast_in_dim %twice, dims = [0] : (tensor<64xf32>) -> {MATRIX}",
        f"%v = stablehlo.multiply %x, %t : {MATRIX}",
        f"%y = stablehlo.dot_general %r, %v, contracting_dims = [0] x [0] : (tensor<64xf32>, {MATRIX}) -> tensor<32xf32>",
        returns="tensor<32xf32>",
    )
    region = region_of(graph, 1, 0)
    twice = next(node.position for node in graph.nodes if node.name == "stablehlo.multiply")
    assert twice in region.tiled


def test_slices_of_one_tensor_are_laid_on_the_same_index() -> None:
    graph = graph_of(
        EXP,
        f"%y = stablehlo.slice %x [8:64, 0:32] : ({MATRIX}) -> tensor<56x32xf32>",
        returns="tensor<56x32xf32>",
    )
    tiled = region_of(graph, 1, 0).tiled[2]
    assert tiled.results == (DimMapping(0, 56, low=8),)
    assert tiled.operands == (DimMapping(0, 64),)


def planned(graph: Graph, seed: int, dim: int, slice_bytes: int) -> Plan | Refusal:
    return plan_of(graph, region_of(graph, seed, dim), slice_bytes, lambda value: is_big(graph, value))


def plan_of(graph: Graph, region: Region, slice_bytes: int, big: Callable[[int], bool]) -> Plan | Refusal:
    loops = find_loops(graph, region, big, work_of(graph, CPU))
    if isinstance(loops, Refusal):
        return loops
    if region.seed not in loops.vanished:
        return refuse_unsplit(graph, region, region.seed)
    return make_plan(graph, region, loops, slice_bytes, big, CPU)


ROWS = f"%y = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0] : ({MATRIX}, tensor<32xf32>) -> tensor<64xf32>"


def test_a_plan_is_one_loop_whose_tiles_fit() -> None:
    plan = planned(graph_of(EXP, ROWS, returns="tensor<64xf32>"), 1, 0, 1024)
    assert isinstance(plan, Plan)
    (loop,) = plan.loops
    assert (loop.tile, loop.trips) == (8, 8)
    assert plan.remaining == 0 and plan.too_big == 1
    assert plan == planned(graph_of(EXP, ROWS, returns="tensor<64xf32>"), 1, 0, 1024), "a plan is a value"


def test_a_loop_has_no_more_trips_than_32_bits_count() -> None:
    [run, rest] = cut_runs([0, 2**33 + 1], 1)
    assert run.trips < 2**31 and run.tile * run.trips + rest.tile == 2**33 + 1


MAXIMA = f"%m = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [0] : ({MATRIX}, tensor<f32>) -> tensor<32xf32>"
SPREAD_DOWN = f"%t = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<32xf32>) -> {MATRIX}"
PICK = f"%k = stablehlo.select %h, %x, %t : tensor<64x32xi1>, {MATRIX}"
WIDE = MATRIX.replace("f32", "f64")
WIDENED = f"%w = stablehlo.convert %k : ({MATRIX}) -> {WIDE}"
SORTED = f'%p = "stablehlo.sort"(%w) <{{dimension = 1 : i64}}> ({{\n^bb0(%d: tensor<f64>, %e: tensor<f64>):\n%l = stablehlo.compare LT, %d, %e : (tensor<f64>, tensor<f64>) -> tensor<i1>\nstablehlo.return %l : tensor<i1>\n}}) : ({WIDE}) -> {WIDE}'
FIRST = f"%y = stablehlo.slice %p [0:64, 0:1] : ({WIDE}) -> tensor<64x1xf64>"
COMPARING = (PICK, WIDENED, SORTED, FIRST)


def compared(direction: str, other: str) -> str:
    return f"%h = stablehlo.compare {direction}, %x, {other}, FLOAT : ({MATRIX}, {MATRIX}) -> tensor<64x32xi1>"


@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "LT"])
def test_a_comparison_for_equality_with_what_another_loop_made_is_refused(direction: str) -> None:
    """Recomputed in a later loop, the element that was the maximum may not be equal to it."""
    lines = (EXP, MAXIMA, SPREAD_DOWN)
    graph = graph_of(*lines, compared(direction, "%t"), *COMPARING, returns="tensor<64x1xf64>")
    refusal = planned(graph, 1, 0, 2048)
    assert isinstance(refusal, Refusal) and refusal.node == 4
    assert "equality" in refusal.reason.text


BITS = MATRIX.replace("f32", "i32")
ASKED_OTHERWISE = {
    "chlo": (
        "%h = chlo.broadcast_compare %x, %t {comparison_direction = #chlo<comparison_direction EQ>} : "
        f"({MATRIX}, {MATRIX}) -> tensor<64x32xi1>",
    ),
    "map": (
        f'%h = "stablehlo.map"(%x, %t) <{{dimensions = array<i64: 0, 1>}}> ({{\n^bb0(%f: tensor<f32>, %g: tensor<f32>):\n'
        "%i = stablehlo.compare LE, %g, %f : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        f"stablehlo.return %i : tensor<i1>\n}}) : ({MATRIX}, {MATRIX}) -> tensor<64x32xi1>",
    ),
    "bits": (
        f"%f = stablehlo.bitcast_convert %x : ({MATRIX}) -> {BITS}",
        f"%g = stablehlo.bitcast_convert %t : ({MATRIX}) -> {BITS}",
        f"%h = stablehlo.compare EQ, %f, %g, SIGNED : ({BITS}, {BITS}) -> tensor<64x32xi1>",
    ),
    "difference": (
        f"%f = stablehlo.subtract %x, %t : {MATRIX}",
        f"%h = stablehlo.compare GE, %f, %a, FLOAT : ({MATRIX}, {MATRIX}) -> tensor<64x32xi1>",
    ),
}


@pytest.mark.parametrize("form", ASKED_OTHERWISE)
def test_the_same_question_in_other_words_is_refused(form: str) -> None:
    lines = (EXP, MAXIMA, SPREAD_DOWN, *ASKED_OTHERWISE[form])
    refusal = planned(graph_of(*lines, *COMPARING, returns="tensor<64x1xf64>"), 1, 0, 2048)
    assert isinstance(refusal, Refusal) and "equality" in refusal.reason.text


@pytest.mark.parametrize(
    ("name", "direction", "other"),
    [("add", "LT", "%t"), ("maximum", "NE", "%x"), ("maximum", "EQ", "%a"), ("maximum", "GT", "%a")],
)
def test_other_comparisons_are_split(name: str, direction: str, other: str) -> None:
    lines = (EXP, MAXIMA.replace("maximum", name), SPREAD_DOWN, compared(direction, other))
    plan = planned(graph_of(*lines, *COMPARING, returns="tensor<64x1xf64>"), 1, 0, 2048)
    assert isinstance(plan, Plan) and len(plan.loops) == 2


def test_a_comparison_with_a_row_that_one_loop_completes_is_split() -> None:
    rows = (MAXIMA.replace("[0]", "[1]").replace("tensor<32xf32>", "tensor<64xf32>"),)
    spread = SPREAD_DOWN.replace("[1]", "[0]").replace("tensor<32xf32>", "tensor<64xf32>")
    graph = graph_of(EXP, *rows, spread, compared("EQ", "%t"), *COMPARING, returns="tensor<64x1xf64>")
    plan = planned(graph, 1, 0, 2048)
    assert isinstance(plan, Plan) and len(plan.loops) == 1


def test_a_plan_tells_by_how_much_one_index_is_too_big() -> None:
    plan = planned(graph_of(EXP, ROWS, returns="tensor<64xf32>"), 1, 0, 32)
    assert isinstance(plan, Plan)
    assert plan.too_big == 4  # a row takes 128 bytes
    assert plan.loops[0].tile == 1


def test_a_result_is_refused_with_the_op_that_wants_it() -> None:
    graph = graph_of(f"%y = stablehlo.exponential %a : {MATRIX}")
    assert planned(graph, 1, 0, 1024) == Refusal(Reason("EX103", "it is a result of this block"), graph.terminator)


@pytest.mark.parametrize(
    ("made", "slice_bytes", "remaining"),
    [
        (EXP, 4096, 0),  # no larger than the argument %a
        (EXP, 1024, 8192),  # but larger than what a loop may hold
        ("%x = stablehlo.dot_general %r, %c, contracting_dims = [] x [] : (tensor<64xf32>, tensor<32xf32>) -> " + MATRIX, 4096, 8192),
    ],
)  # fmt: skip
def test_what_is_no_larger_than_the_arguments_may_stay(made: str, slice_bytes: int, remaining: int) -> None:
    stays = f"%u = stablehlo.sine %x : {MATRIX}"
    call = f"%y = stablehlo.custom_call @opaque(%u, %d) : ({MATRIX}, tensor<64xf32>) -> tensor<64xf32>"
    plan = planned(graph_of(made, stays, ROWS.replace("%y", "%d"), call, returns="tensor<64xf32>"), 1, 0, slice_bytes)
    assert isinstance(plan, Plan)
    assert plan.remaining == remaining


def test_of_two_plans_that_leave_no_more_than_exists_the_faster_is_taken() -> None:
    plan = planned(graph_of(EXP, ROWS, returns="tensor<64xf32>"), 1, 0, 1024)
    assert isinstance(plan, Plan)
    assert min(plan, replace(plan, seconds=plan.seconds / 2), key=lambda each: each.rank(1024)).seconds < plan.seconds
