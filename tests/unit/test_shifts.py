"""Slices, pads, joins and updates as shifts: each is run in tiles and compared, and so are programs made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.memory.machine import CPU
from exla_opt.memory.peak import predict
from exla_opt.ops import tiling
from exla_opt.ops.factor import DimMapping, Factor
from exla_opt.ops.rules import read_rules
from exla_opt.ops.shifts import lay_shift
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.passes.tensor_splitter.emit import build_plans
from exla_opt.passes.tensor_splitter.graph import Graph, read_graphs
from exla_opt.passes.tensor_splitter.plans.body import WorkOf
from exla_opt.passes.tensor_splitter.plans.plan import Plan, make_plan
from exla_opt.passes.tensor_splitter.regions.growth import grow
from exla_opt.passes.tensor_splitter.regions.loops import Loops, Refusal, find_loops
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime.compile import compile_program, run_program
from tests.execute import assert_equal_results

from .test_factors import last_op

_PAD = (
    "edge_padding_low = array<i64: {}, {}>, edge_padding_high = array<i64: {}, {}>, interior_padding = array<i64: 0, 0>"
)


def _op(name: str, operands: Sequence[str], result: str, attributes: str = "", indices: Sequence[int] = ()) -> str:
    """A module of one op, with constants behind its arguments as the starts of an update."""
    arguments = ", ".join(f"%a{place}: tensor<{kind}>" for place, kind in enumerate(operands))
    starts = "\n".join(
        f"  %i{place} = stablehlo.constant dense<{at}> : tensor<i32>" for place, at in enumerate(indices)
    )
    read = [*(f"%a{place}" for place in range(len(operands))), *(f"%i{place}" for place in range(len(indices)))]
    kinds = ", ".join([*(f"tensor<{kind}>" for kind in operands), *["tensor<i32>"] * len(indices)])
    made = f'  %r = "{name}"({", ".join(read)}) {{{attributes}}} : ({kinds}) -> tensor<{result}>'
    return f"func.func @main({arguments}) -> tensor<{result}> {{\n{starts}\n{made}\n  return %r : tensor<{result}>\n}}"


def _slice(start: int, limit: int, other: tuple[int, int] = (0, 5), step: int = 1) -> str:
    return f"start_indices = array<i64: {start}, {other[0]}>, limit_indices = array<i64: {limit}, {other[1]}>, strides = array<i64: 1, {step}>"


# With each op: where its first operand lies, where its result and its other operands do then, reaches, and the period.
_ROWS: list[tuple[str, str, dict[int, int], int, list[tuple[int, int]], int]] = [
    ("a slice without the first", _op("stablehlo.slice", ["40x5xf32"], "39x5xf32", _slice(1, 40)), {0: 0}, 0, [(-1, 1)], 0),
    ("a slice without ends", _op("stablehlo.slice", ["40x5xf32"], "36x3xf32", _slice(2, 38, (1, 4))), {0: 7}, 7, [(-2, 2)], 0),
    ("a slice of every second column", _op("stablehlo.slice", ["40x5xf32"], "39x3xf32", _slice(1, 40, (0, 5), 2)), {0: 0}, 0, [(-1, 1)], 0),
    ("the last two", _op("stablehlo.slice", ["40x5xf32"], "2x5xf32", _slice(38, 40)), {0: 0}, 38, [(0, 0)], 0),
    ("all but the last", _op("stablehlo.slice", ["40x5xf32"], "39x5xf32", _slice(0, 39)), {0: 3}, 3, [(0, 0)], 0),
    ("a pad", _op("stablehlo.pad", ["40x5xf32", "f32"], "42x8xf32", _PAD.format(1, 1, 1, 2)), {0: 0}, 0, [(1, -1), (0, 0)], 0),
    ("a pad that moves", _op("stablehlo.pad", ["40x5xf32", "f32"], "40x5xf32", _PAD.format(-2, 0, 2, 0)), {0: 0}, 0, [(-2, 2), (0, 0)], 0),
    ("a pad that cuts", _op("stablehlo.pad", ["40x5xf32", "f32"], "37x5xf32", _PAD.format(-2, 0, -1, 0)), {0: 0}, 0, [(-2, 2), (0, 0)], 0),
    ("a roll", _op("stablehlo.concatenate", ["2x5xf32", "38x5xf32"], "40x5xf32", "dimension = 0 : i64"), {0: 38, 1: 0}, 0, [(2, -2), (2, -2)], 40),
    ("a roll back", _op("stablehlo.concatenate", ["38x5xf32", "2x5xf32"], "40x5xf32", "dimension = 0 : i64"), {0: 0, 1: 0}, 0, [(0, 0), (-2, 2)], 40),
    ("a join", _op("stablehlo.concatenate", ["1x5xf32", "40x5xf32", "2x5xf32"], "43x5xf32", "dimension = 0 : i64"), {1: 0}, 0, [(0, 0), (1, -1), (0, 0)], 0),
    ("an update", _op("stablehlo.dynamic_update_slice", ["40x5xf32", "38x3xf32"], "40x5xf32", "", (1, 2)), {0: 0}, 0, [(0, 0), (1, -1)], 0),
    ("an update of the end", _op("stablehlo.dynamic_update_slice", ["40x5xf32", "2x5xf32"], "40x5xf32", "", (60, 0)), {0: 0}, 0, [(0, 0), (0, 0)], 0),
]  # fmt: skip


def _around(value: ir.Value, mapping: DimMapping, begin: int, end: int, period: int) -> ir.Value:
    """Indices [begin, end) of a tensor: beyond its ends what goes on there, of one with a period, else sevens."""
    shape = build.shape_of(value)
    rows: list[ir.Value] = []
    for index in range(begin, end):
        at = index - mapping.low
        at = at % period if period else at
        if 0 <= at < mapping.length:
            rows.append(stablehlo.slice(value, [at, 0], [at + 1, shape[1]], [1, 1]))
        else:
            rows.append(build.splat(build.with_shape(build.tensor_of(value), [1, shape[1]]), 7))
    return stablehlo.concatenate(rows, 0)


def _in_tiles(op: ir.Operation, factor: Factor, tile: int, longer: int) -> ir.Value:
    [made] = factor.results
    assert made is not None
    parts = []
    for begin in range(made.low, made.low + made.length, tile):
        end = min(begin + tile, made.low + made.length)
        operands, ranges = [], []
        for index, (value, mapping) in enumerate(zip(op.operands, factor.operands, strict=True)):
            before, after = (each + longer for each in factor.reaches[index])
            held = None if mapping is None else (-before, end - begin + after)
            ranges.append(held)
            operands.append(
                value if mapping is None else _around(value, mapping, begin - before, end + after, factor.period)
            )
        [part] = tiling.build_tile(
            op, factor, operands, build.scalar_i32(begin), ranges, [(-longer, end - begin + longer)]
        )
        shape = build.shape_of(part)
        parts.append(stablehlo.slice(part, [longer, 0], [shape[0] - longer, shape[1]], [1, 1]))
    return stablehlo.concatenate(parts, 0)


@pytest.mark.parametrize(
    ("text", "known", "low", "reaches", "period"), [row[1:] for row in _ROWS], ids=[row[0] for row in _ROWS]
)
def test_tiles_of_shifts_make_the_whole(
    text: str, known: dict[int, int], low: int, reaches: list[tuple[int, int]], period: int
) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        op, terminator = last_op(module)
        given = [
            DimMapping(0, build.shape_of(value)[0], low=known[index]) if index in known else None
            for index, value in enumerate(op.operands)
        ]
        factor = lay_shift(op, given, None)
        assert factor is not None
        [made] = factor.results
        assert made is not None and made.low == low
        assert list(factor.reaches)[: len(reaches)] == reaches
        assert factor.period == period
        # Laid from its result, it is laid alike, but for what only its operands tell.
        again = lay_shift(op, given, made)
        assert again == factor
        outputs = [op.results[0]]
        with ir.InsertionPoint(terminator):
            outputs += [_in_tiles(op, factor, tile, longer) for tile in (8, 13) for longer in (0, 1)]
            ir.Operation.create("func.return", operands=outputs)
        terminator.erase()
        function = module.body.operations[0].operation
        old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        kind = ir.FunctionType.get(old.inputs, [value.type for value in outputs])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        assert module.operation.verify()
        random = np.random.default_rng(3)
        shapes = [ir.RankedTensorType(each).shape for each in old.inputs]
        arrays = [random.normal(size=tuple(shape)).astype(np.float32) for shape in shapes]
        expected, *found = map(np.asarray, run_program(compile_program(str(module)), arrays))
    for each in found:
        np.testing.assert_array_equal(each, expected)


@pytest.mark.parametrize(
    "text",
    [
        _op("stablehlo.slice", ["40x5xf32"], "20x5xf32", _slice(10, 30)),  # moved by a quarter
        _op("stablehlo.concatenate", ["20x5xf32", "20x5xf32"], "40x5xf32", "dimension = 0 : i64"),
        _op("stablehlo.slice", ["40x5xf32"], "40x3xf32", _slice(0, 40, (1, 4))),  # along another dimension
        _op(
            "stablehlo.pad", ["20x5xf32", "f32"], "39x5xf32", _PAD.format(0, 0, 0, 0).replace("interior_padding = array<i64: 0", "interior_padding = array<i64: 1")
        ),
    ],
)  # fmt: skip
def test_what_is_moved_far_is_no_shift(text: str) -> None:
    with new_context():
        op, _ = last_op(module := ir.Module.parse(text))
        size = build.shape_of(op.operands[0])[0]
        assert lay_shift(op, [DimMapping(0, size), *[None] * (len(op.operands) - 1)], None) is None
        del module


Stencil = Callable[..., object]
_ROLLS = [(1, 0), (-1, 0), (1, 1), (-1, 1)]


def _heat(u: jax.Array) -> jax.Array:
    return u + sum(jnp.roll(u, *roll) for roll in _ROLLS) - 4 * u


def _laplace(u: jax.Array, mode: str = "constant") -> jax.Array:
    p = jnp.pad(u, 1, mode=mode)
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u


def _valid(u: jax.Array) -> jax.Array:
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


def _inner(u: jax.Array) -> jax.Array:
    return u.at[1:-1, 1:-1].set(_valid(u)).at[0].set(u[1])


def _flux(u: jax.Array) -> jax.Array:
    down, across = jnp.gradient(u)
    size = jnp.sqrt(down * down + across * across + 1)
    return jnp.gradient(down / size)[0] + jnp.gradient(across / size)[1]


def _variation(u: jax.Array) -> jax.Array:
    return jnp.sqrt((u[1:] - u[:-1]) ** 2 + 0.1).sum() + jnp.abs(u[:, 1:] - u[:, :-1]).sum()


def _edges(u: jax.Array) -> jax.Array:
    size = jnp.abs(_laplace(u, "edge"))
    most = lax.reduce_window(size, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME")
    return jnp.where(size >= most, size, 0.0)


def _twice(step: Stencil) -> Stencil:
    return lambda u: step(jnp.sin(step(u)))  # type: ignore[arg-type]


def _pulled_back(step: Stencil) -> Stencil:
    return jax.grad(lambda u: (jnp.sin(step(u)) ** 2).sum())  # type: ignore[arg-type]


_PROGRAMS: dict[str, Stencil] = {
    "rolls": _twice(_heat),
    "zeros": _twice(_laplace),
    "edge": _twice(lambda u: _laplace(u, "edge")),
    "wrap": _twice(lambda u: _laplace(u, "wrap")),
    "reflect": _twice(lambda u: _laplace(u, "reflect")),
    "shorter": _twice(lambda u: _valid(jnp.cos(_valid(u)))),
    "inside": _twice(_inner),
    "flux": _flux,
    "edges": _edges,
    "gradient of rolls": _pulled_back(_twice(_heat)),
    "gradient of pads": _pulled_back(_twice(_laplace)),
    "gradient of updates": _pulled_back(_twice(_inner)),
    "gradient of a variation": jax.value_and_grad(_variation),
}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that the splitter builds."""
    found: list[Plan] = []

    def spy(graph: Graph, plans: Sequence[Plan]) -> None:
        found.extend(plans)
        build_plans(graph, plans)

    monkeypatch.setattr("exla_opt.passes.tensor_splitter.driver.build_plans", spy)
    return found


def _split(text: str, size: int) -> str:
    with new_context() as context:
        module = ir.Module.parse(text, context)
        run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=size, split_size=size // 2))
        return str(module)


def _text(function: Stencil, *arguments: jax.ShapeDtypeStruct) -> str:
    return str(jax.jit(function).lower(*arguments).compiler_ir())


@pytest.mark.parametrize("name", _PROGRAMS)
@pytest.mark.parametrize("shape", [(96, 40), (97, 33)])
def test_steps_of_a_stencil_are_cut_together(name: str, shape: tuple[int, int], built: list[Plan]) -> None:
    text = _text(_PROGRAMS[name], jax.ShapeDtypeStruct(shape, jnp.float32))
    written = _split(text, 6000)
    assert any(plan.shifts for plan in built), "no loop has tiles that overlap"
    assert_equal_results(text, written)


@pytest.mark.parametrize("dtype", ["int8", "bool", "float64", "bfloat16", "complex64", "uint8"])
@pytest.mark.parametrize("mode", ["rolls", "edge"])
def test_stencils_of_every_type(dtype: str, mode: str) -> None:
    def step(u: jax.Array) -> jax.Array:
        p = jnp.pad(u, 1, mode=mode) if mode != "rolls" else u
        parts = [jnp.roll(u, *roll) for roll in _ROLLS] if mode == "rolls" else [p[2:, 1:-1], p[1:-1, :-2]]
        for part in parts:
            u = u ^ part if u.dtype == bool else u + part
        return u

    with jax.enable_x64(True):
        text = _text(_twice_plain(step), jax.ShapeDtypeStruct((96, 40), jnp.dtype(dtype)))
    size = 96 * 40 * np.dtype(jnp.dtype(dtype)).itemsize // 2
    written = _split(text, size)
    assert written.count("stablehlo.while") > 0
    assert_equal_results(text, written)


def _convolved(u: jax.Array, _: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(u[:, None], jnp.ones((1, 1, 3)), (1,), "SAME")[:, 0]


@pytest.mark.parametrize(
    "each_row",
    [
        lambda u, _: u * u.sum(1, keepdims=True),
        lambda u, _: u * jnp.argmax(u, 1)[:, None],
        lambda u, _: lax.reduce_window(u, 0.0, lax.add, (1, 3), (1, 1), "SAME"),
        _convolved,
        lambda u, i: jnp.take(u, i, axis=1, mode="clip"),
        lambda u, i: lax.dynamic_slice(u, (0, i[0]), (u.shape[0], 20)),
        lambda u, i: lax.dynamic_update_slice(u, u[:, :20] * 2, (0, i[0])),
        lambda u, _: u[:, ::-1],
        lambda u, _: lax.top_k(u, 20)[0],
        lambda u, _: jnp.sort(u, 1),
        lambda u, _: u * lax.broadcasted_iota(jnp.float32, u.shape, 1),
    ],
    ids="sum argmax window convolution gather slice update reverse top_k sort iota".split(),
)
def test_what_treats_rows_alike_is_computed_around_the_ends(
    each_row: Callable[[jax.Array, jax.Array], jax.Array], built: list[Plan]
) -> None:
    def step(u: jax.Array, indices: jax.Array) -> jax.Array:
        made = jnp.cos(each_row(jnp.sin(u), indices))
        return jnp.roll(made, 1, 0) * made + jnp.roll(jnp.roll(made, -1, 0), 1, 1)

    text = _text(step, jax.ShapeDtypeStruct((1024, 40), jnp.float32), jax.ShapeDtypeStruct((30,), jnp.int32))
    written = _split(text, 30_000)
    together = [plan for plan in built if plan.shifts and plan.mapping.dim == 0 and len(plan.loops) == 1]
    assert together, "the rolls and what they read are not one loop"
    assert_equal_results(text, written)


def _twice_plain(step: Callable[[jax.Array], jax.Array]) -> Stencil:
    return lambda u: step(step(step(u)))


def _reaction(u: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        u, v = state
        both = jnp.sin(u) * v
        return u + 0.1 * _heat(u) - both, v + 0.1 * _heat(jnp.cos(v)) + both

    made: tuple[jax.Array, jax.Array] = lax.fori_loop(0, 4, step, (u, v))
    return made


def _fields(e: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        e, h = state
        h = h.at[:-1].add(0.5 * jnp.sin(e[1:] - e[:-1]))
        return e.at[1:].add(0.5 * jnp.sin(h[1:] - h[:-1])), h

    made: tuple[jax.Array, jax.Array] = lax.fori_loop(0, 4, step, (e, h))
    return made


def _smoothed(u: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        u, v = carry
        new = _heat(jnp.tanh(_heat(u))) + v
        return (new, v + 1), (new * u).sum()

    (u, v), sums = lax.scan(step, (u, v), None, length=3)
    return u, sums


@pytest.mark.parametrize("function", [_reaction, _fields, _smoothed])
@pytest.mark.parametrize("rows", [320, 317])
def test_what_a_loop_carries_is_overwritten(function: Stencil, rows: int, built: list[Plan]) -> None:
    """Old rows are read ahead, so that no second field is needed beside the one that is carried."""
    text = _text(function, *[jax.ShapeDtypeStruct((rows, 64), jnp.float32)] * 2)
    written = _split(text, 16_000)
    assert any(loop.windows for plan in built for loop in plan.loops), "nothing is overwritten"
    assert_equal_results(text, written)
    with new_context() as context:
        before, after = (ir.Module.parse(each, context) for each in (text, written))
        normalise.run(before, Options())  # a call hides what is in it
        assert predict(after, CPU).temp < predict(before, CPU).temp


def test_a_part_of_a_join_that_stops_inside_of_a_tile_is_read_no_further() -> None:
    """The last tile of the join has but one row of the slice, whose rows behind its end XLA would move inside."""
    text = """func.func @main(%x: tensor<43x5xi32>, %y: tensor<4x5xi32>, %k: tensor<i32>) -> tensor<5xi32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %part = stablehlo.dynamic_slice %x, %k, %zero, sizes = [37, 5]
        : (tensor<43x5xi32>, tensor<i32>, tensor<i32>) -> tensor<37x5xi32>
      %all = stablehlo.concatenate %part, %y, dim = 0 : (tensor<37x5xi32>, tensor<4x5xi32>) -> tensor<41x5xi32>
      %squares = stablehlo.multiply %all, %all : tensor<41x5xi32>
      %sum = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<41x5xi32>, tensor<i32>) -> tensor<5xi32>
      return %sum : tensor<5xi32>
    }"""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        [graph] = read_graphs(module, read_rules(module))
        [squares] = [node.results[0] for node in graph.nodes if node.name == "stablehlo.multiply"]

        def is_big(value: int) -> bool:
            return graph.tensors[value].type.bytes > 400

        region = grow(graph, squares, DimMapping(0, 41), is_big, lambda *_: True, overlaps=True, shifts=True)
        loops = find_loops(graph, region, is_big, WorkOf(graph, CPU))
        assert isinstance(loops, Loops)
        plan = make_plan(graph, region, loops, 120, is_big, CPU)
        if not isinstance(plan, Refusal):
            build_plans(graph, [plan])
        written = str(module)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 10, shape).astype(np.int32) for shape in ((43, 5), (4, 5))]
    arrays.append(np.array(6, np.int32))
    programs = [compile_program(each) for each in (text, written)]
    [[expected], [actual]] = [run_program(program, arrays) for program in programs]
    np.testing.assert_array_equal(expected, actual)
