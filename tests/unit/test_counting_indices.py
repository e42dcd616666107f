"""Indices that count become batching dimensions: the numbers of the op, what is refused, and every bit of the results."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, export
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.walk import inside_out
from exla_opt.ops.index_numbers import IndexNumbers, numbers_of
from exla_opt.options import Options
from exla_opt.passes import normalise
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.remarks import Kind
from exla_opt.runtime.inputs import Array as HostArray
from tests.execute import random_arguments, run_module

NAMES = ("stablehlo.gather", "stablehlo.scatter")


def normalised(text: str) -> ir.Module:
    module = ir.Module.parse(text, new_context())
    normalise.run(module, Options())
    module.operation.verify()
    return module


def numbers_in(module: ir.Module) -> list[IndexNumbers]:
    return [numbers_of(op) for op in inside_out(module, *NAMES)]


def arguments_of(text: str, seed: int) -> list[HostArray]:
    """Floats among which are -0.0 and NaN; integers of which some lie outside of every dimension."""
    rng = np.random.default_rng(seed)
    found: list[HostArray] = []
    for one in random_arguments(text, seed):
        if one.dtype.kind in "iu":
            found.append(rng.integers(0 if one.dtype.kind == "u" else -60, 60, one.shape).astype(one.dtype))
            continue
        values = rng.integers(-4, 5, one.shape).astype(one.dtype)
        values[rng.random(one.shape) < 0.1] = -0.0
        values[rng.random(one.shape) < 0.1] = np.nan
        found.append(values)
    return found


def assert_same_bits(text: str, module: ir.Module, seed: int = 0) -> None:
    arrays = arguments_of(text, seed)
    for before, after in zip(run_module(text, arrays), run_module(module, arrays), strict=True):
        assert before.tobytes() == after.tobytes()


def exported(function: Callable[..., Any], *shapes: str) -> str:
    kinds = {"f32": jnp.float32, "i32": jnp.int32, "u8": jnp.uint8, "c64": jnp.complex64}
    specs = []
    for each in shapes:
        *sizes, dtype = each.split("x")
        specs.append(jax.ShapeDtypeStruct(tuple(map(int, sizes)), kinds[dtype]))
    text: str = export.export(jax.jit(function))(*specs).mlir_module()
    return text


def gradient(function: Callable[..., Array]) -> Callable[..., Any]:
    def of_squares(*arguments: Array) -> Any:
        return jax.grad(lambda first: (function(first, *arguments[1:]) ** 2).sum())(arguments[0])

    return of_squares


def picked(rows: Callable[[], Any], **how: Any) -> Callable[[Array, Array], Array]:
    return lambda x, i: x.at[rows(), i].get(**how)


@dataclass(frozen=True)
class Form:
    """What people write. batching: the operand's batching dimensions in the end."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[str, ...]
    batching: tuple[int, ...] = (0,)


LONG, ALL = ("8x50xf32", "6xi32"), ("8x50xf32", "8xi32")
FORMS = (
    Form("labels", picked(lambda: jnp.arange(8)), ALL),
    Form("labels of one class", picked(lambda: jnp.arange(8)), ("8x5xf32", "8xi32")),
    *(Form(mode, picked(lambda: jnp.arange(8), mode=mode), ALL) for mode in ("clip", "fill", "promise_in_bounds")),
    Form("neighbours", picked(lambda: jnp.arange(8)[:, None]), ("8x50xf32", "8x3xi32")),
    Form("a table", picked(lambda: np.arange(8)), ALL),
    Form("a repeated table", picked(lambda: np.arange(24) // 3), ("8x500xf32", "24xi32")),
    Form("repeated", picked(lambda: jnp.repeat(jnp.arange(8), 3)), ("8x500xf32", "24xi32")),
    Form("repeated times", picked(lambda: jnp.tile(jnp.arange(8), 3)), ("8x500xf32", "24xi32")),
    Form("a quotient", picked(lambda: jax.lax.div(jnp.arange(24), 3)), ("8x500xf32", "24xi32")),
    Form("a remainder", picked(lambda: jnp.arange(24) % 8), ("8x500xf32", "24xi32")),
    Form("floats", picked(lambda: jnp.arange(8.0).astype(int)), ALL),
    Form("bytes", picked(lambda: jnp.arange(8, dtype=jnp.uint8)), ("8x50xf32", "8xu8")),
    Form("from 1", picked(lambda: jnp.arange(1, 7)), LONG),
    Form("every second", picked(lambda: jnp.arange(0, 12, 2)), ("12x50xf32", "6xi32")),
    Form("backwards", picked(lambda: jnp.arange(8)[::-1]), ALL),
    Form("backwards by 2 from 11", picked(lambda: 11 - 2 * jnp.arange(6)), ("12x50xf32", "6xi32")),
    Form("negative", picked(lambda: jnp.arange(-8, 0)), ALL),
    Form("complex", picked(lambda: jnp.arange(1, 7)), ("8x50xc64", "6xi32")),
    Form("windows", picked(lambda: jnp.arange(8)), ("8x6x3xf32", "8xi32")),
    Form("windows first", lambda x, i: x[:, jnp.arange(4), i], ("3x4x6xf32", "4xi32"), (1,)),
    Form("two", lambda x, i: x[jnp.arange(4)[:, None], jnp.arange(3), i], ("4x3x50xf32", "4x3xi32"), (0, 1)),
    Form("two and one between", lambda x, i: x[jnp.arange(4)[:, None], i, jnp.arange(3)], ("4x50x3xf32", "4x3xi32"), (0, 2)),
    Form("one class", lambda x, i: x[jnp.arange(6, 0, -1), 3] * i, ("8x50xf32", "i32")),
    Form("batched", jax.vmap(picked(lambda: jnp.arange(4))), ("3x4x6xf32", "3x4xi32"), (0, 1)),
    Form("a diagonal", lambda x, i: x[jnp.arange(8), jnp.arange(8)] * i, ("8x8xf32", "i32")),
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_people_write_and_its_gradient(form: Form) -> None:
    for function in (form.function, gradient(form.function)):
        if "c64" in form.shapes[0] and function is not form.function:
            continue
        text = exported(function, *form.shapes)
        module = normalised(text)
        found = numbers_in(module)
        assert found and all(each.batching == form.batching for each in found), found
        assert_same_bits(text, module)


WRITES = (
    ("set", lambda x, i, v: x.at[jnp.arange(8), i].set(v), ("8x50xf32", "8xi32", "8xf32")),
    ("multiply", lambda x, i, v: x.at[jnp.arange(8)[:, None], i].multiply(v), ("8x50xf32", "8x3xi32", "8x3xf32")),
    ("max of windows", lambda x, i, v: x.at[jnp.arange(8), i].max(v), ("8x50x3xf32", "8xi32", "8x3xf32")),
    ("from 1", lambda x, i, v: x.at[jnp.arange(1, 7), i].set(v), ("8x50xf32", "6xi32", "6xf32")),
    ("backwards", lambda x, i, v: x.at[jnp.arange(7, 2, -1)[:, None], i].set(v), ("8x50xf32", "5x2xi32", "5x2xf32")),
    ("repeated", lambda x, i, v: x.at[jnp.repeat(jnp.arange(8), 3), i].set(v), ("8x500xf32", "24xi32", "24xf32")),
    ("unique", lambda x, i, v: x.at[jnp.arange(1, 7), i].set(v, unique_indices=True), ("8x50xf32", "6xi32", "6xf32")),
)


@pytest.mark.parametrize(("function", "shapes"), [row[1:] for row in WRITES], ids=[row[0] for row in WRITES])
def test_what_is_written(function: Callable[..., Any], shapes: tuple[str, ...]) -> None:
    text = exported(function, *shapes)
    module = normalised(text)
    assert [each.batching for each in numbers_in(module)] == [(0,)]
    assert_same_bits(text, module)


ORDERED = (
    ("rows", lambda x, y: x[jnp.arange(8)] * y, "8x50xf32"),
    ("all", lambda x, y: x[jnp.arange(4)[:, None], jnp.arange(3)] * y, "4x3xf32"),
    ("transposed", lambda x, y: x[jnp.arange(4), :, jnp.arange(3)[:, None]] * y, "4x5x3xf32"),
    ("columns", lambda x, y: x[:, jnp.arange(5)] * y, "4x5x3xf32"),
)


@pytest.mark.parametrize(("function", "shape"), [row[1:] for row in ORDERED], ids=[row[0] for row in ORDERED])
def test_what_is_read_in_order_needs_no_gather(function: Callable[..., Any], shape: str) -> None:
    text = exported(function, shape, "f32")
    module = normalised(text)
    assert "gather" in text
    assert not numbers_in(module)
    assert_same_bits(text, module)


REFUSED = (
    ("a row twice", lambda x, i: x[jnp.arange(8) // 5, i], ALL),
    ("rows that are not known", lambda x, i: x[i, i], ALL),
    ("rows from a number that is not known", lambda x, i: x[jnp.arange(6) + i[0], i], LONG),
    ("two dimensions at once", lambda x, i: x[jnp.arange(4)[:, None] + jnp.arange(5), i], ("8x500xf32", "4x5xi32")),
    ("too far", lambda x, i: x.at[jnp.arange(1, 9), i].get(mode="clip"), ALL),
    ("too few", lambda x, i: x[jnp.arange(3), i], ("8x50xf32", "3xi32")),
    ("too many between", lambda x, i: x[jnp.arange(0, 9, 3), i], ("10x50xf32", "3xi32")),
    ("large against the operand", lambda x, i: x[jnp.arange(1, 8)[:, None], i], ("8x50xf32", "7x20xi32")),
    ("the only component of a scatter", lambda x, i: x.at[jnp.arange(8)].add(1.0) * i[0], ALL),
)


@pytest.mark.parametrize(("function", "shapes"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_does_not_count_or_does_not_pay_stays(function: Callable[..., Any], shapes: tuple[str, ...]) -> None:
    module = normalised(exported(function, *shapes))
    assert all(each.batching == () for each in numbers_in(module))


def test_rows_of_which_the_type_has_too_few_numbers_stay() -> None:
    """The iota wraps round at 127, and which rows are read XLA decides."""
    text = """func.func public @main(%x: tensor<200x5xf32>, %i: tensor<200x1xi8>) -> tensor<200xf32> {
      %rows = stablehlo.iota dim = 0 : tensor<200x1xi8>
      %index = stablehlo.concatenate %rows, %i, dim = 1 : (tensor<200x1xi8>, tensor<200x1xi8>) -> tensor<200x2xi8>
      %picked = "stablehlo.gather"(%x, %index) <{dimension_numbers = #stablehlo.gather<
        collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>,
        slice_sizes = array<i64: 1, 1>}> : (tensor<200x5xf32>, tensor<200x2xi8>) -> tensor<200xf32>
      return %picked : tensor<200xf32>
    }"""
    assert numbers_in(normalised(text))[0].batching == ()
    assert numbers_in(normalised(text.replace("200", "100")))[0].batching == (0,)


@pytest.mark.parametrize(("rows", "batching"), [(8, (0,)), (9, ())])
def test_windows_that_begin_outside_would_reach_inside(rows: int, batching: tuple[int, ...]) -> None:
    """Three elements from place i of each row: of a row that is left, XLA drops them all, the StableHLO text but one."""
    text = f"""func.func public @main(%x: tensor<{rows}x50xf32>, %i: tensor<8x1xi32>, %v: tensor<8x3xf32>) -> tensor<{rows}x50xf32> {{
      %rows = stablehlo.iota dim = 0 : tensor<8x1xi32>
      %index = stablehlo.concatenate %rows, %i, dim = 1 : (tensor<8x1xi32>, tensor<8x1xi32>) -> tensor<8x2xi32>
      %set = "stablehlo.scatter"(%x, %index, %v) <{{scatter_dimension_numbers = #stablehlo.scatter<
        update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0, 1],
        index_vector_dim = 1>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        stablehlo.return %b : tensor<f32>
      }}) : (tensor<{rows}x50xf32>, tensor<8x2xi32>, tensor<8x3xf32>) -> tensor<{rows}x50xf32>
      return %set : tensor<{rows}x50xf32>
    }}"""
    module = normalised(text)
    assert numbers_in(module)[0].batching == batching
    assert_same_bits(text, module)


def test_indices_are_no_longer_sorted_and_unique_ones_stay_unique() -> None:
    how = {"indices_are_sorted": True, "unique_indices": True}
    text = exported(lambda x, i: x.at[jnp.arange(8), i].set(1.0, **how), "8x50xf32", "8xi32")
    [op] = inside_out(normalised(text), "stablehlo.scatter")
    assert not ir.BoolAttr(op.attributes["indices_are_sorted"]).value
    assert ir.BoolAttr(op.attributes["unique_indices"]).value


def test_an_annotated_gather_stays() -> None:
    text = exported(picked(lambda: jnp.arange(8)), *ALL).replace(
        "slice_sizes = array<i64: 1, 1>}>", 'slice_sizes = array<i64: 1, 1>}> {mhlo.sharding = "{replicated}"}'
    )
    assert "mhlo.sharding" in text
    assert numbers_in(normalised(text))[0].batching == ()


def test_a_gather_in_a_loop_reads_a_count_from_outside() -> None:
    def steps(x: Array, i: Array) -> Array:
        rows = jnp.arange(8)
        total: Array = jax.lax.fori_loop(0, 5, lambda step, sums: sums + x[rows, (i + step) % 50], jnp.zeros(8))
        return total

    text = exported(steps, *ALL)
    module = normalised(text)
    assert [each.batching for each in numbers_in(module)] == [(0,)]
    assert_same_bits(text, module)


def test_a_second_run_changes_nothing() -> None:
    for form in FORMS:
        module = normalised(
            exported(gradient(form.function) if "c64" not in form.shapes[0] else form.function, *form.shapes)
        )
        once = str(module)
        normalise.run(module, Options())
        assert str(module) == once


@pytest.mark.parametrize("writes", [False, True], ids=["picked", "gradient"])
def test_the_picked_elements_of_a_softmax_are_equal_in_every_bit_in_slices(writes: bool) -> None:
    def picked_softmax(x: Array, i: Array) -> Array:
        return jax.nn.softmax(3.0 * x)[jnp.arange(256), i]

    text = exported(gradient(picked_softmax) if writes else picked_softmax, "256x200xf32", "256xi32")
    module = ir.Module.parse(text, new_context())
    remarks = run_pipeline(module, DEFAULT_PASSES, Options(size_threshold=100_000, split_size=20_000)).remarks
    assert any(remark.kind is Kind.PASSED for remark in remarks)
    assert "while" in str(module)
    assert_same_bits(text, module)


class Indexed:
    """A module with one gather or scatter, some components of whose index count, in one of many spellings."""

    def __init__(self, seed: int, writes: bool) -> None:
        self.rng = rng = random.Random(seed)
        self.writes = writes
        self.lines: list[str] = []
        self.dtype = rng.choice(("i8", "i16", "i32", "i32", "i64", "ui8", "ui32"))
        counts = [
            (rng.randint(2, 5), rng.choice((1, 1, 1, 2, -1, -2)), rng.choice((0, 0, 1)))
            for _ in range(rng.randint(1, 2))
        ]
        free = rng.randint(0 if not writes else 1, 2)
        self.index_shape = [size for size, _, _ in counts] + [3] * (rng.random() < 0.3)
        order = rng.sample(range(len(self.index_shape)), len(self.index_shape))
        self.index_shape = [self.index_shape[place] for place in order]
        # Components: of an operand's size, and the tensor that holds them.
        components: list[tuple[int, str | None]] = []
        for number, (size, stride, extra) in enumerate(counts):
            offset = extra + max(0, -stride * (size - 1))
            rows = extra + abs(stride) * (size - 1) + 1 + rng.choice((0, 0, 1))
            components.append((rows, self.count(order.index(number), stride, offset, rows)))
        components += [(rng.randint(20, 40), None) for _ in range(free)]
        rng.shuffle(components)
        self.vector = rng.randint(0, len(self.index_shape))
        windows = [rng.randint(1, 3) for _ in range(rng.randint(0, 1))]
        places = rng.sample(range(len(components) + len(windows)), len(components))
        self.operand = [0] * (len(components) + len(windows))
        for place, (rows, _) in zip(places, components, strict=True):
            self.operand[place] = rows
        rest = iter(windows)
        self.operand = [size or next(rest) for size in self.operand]
        self.named = places
        self.index_arguments: list[str] = []
        columns = [value or self.given() for _, value in components]
        self.indices = self.joined(columns)
        self.sizes = [1 if dim in places else size for dim, size in enumerate(self.operand)]
        rank = len(self.index_shape) + len(windows)
        self.windows = sorted(rng.sample(range(rank), len(windows)))
        left = iter(self.index_shape)
        inner = iter(windows)
        self.result = [next(inner) if dim in self.windows else next(left) for dim in range(rank)]

    def spell(self, shape: list[int], dtype: str) -> str:
        return f"tensor<{'x'.join([*map(str, shape), dtype])}>"

    def add(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def given(self) -> str:
        name = f"%i{len(self.index_arguments)}"
        self.index_arguments.append(f"{name}: {self.spell(self.index_shape, self.dtype)}")
        return name

    def count(self, dim: int, stride: int, offset: int, rows: int) -> str:
        """offset + stride * the position along a dimension of the indices, in their shape."""
        kind = self.spell(self.index_shape, self.dtype)
        size = self.index_shape[dim]
        if self.rng.random() < 0.3:
            table = [offset + stride * place for place in range(size)]
            line = self.add(f"stablehlo.constant dense<{table}> : {self.spell([size], self.dtype)}")
            return self.add(
                f"stablehlo.broadcast_in_dim {line}, dims = [{dim}] : ({self.spell([size], self.dtype)}) -> {kind}"
            )
        value = self.add(f"stablehlo.iota dim = {dim} : {kind}")
        if stride < 0:
            value = self.add(f"stablehlo.reverse {value}, dims = [{dim}] : {kind}")
            offset += stride * (size - 1)
        factor = self.add(f"stablehlo.constant dense<{abs(stride)}> : {kind}")
        value = self.add(f"stablehlo.multiply {value}, {factor} : {kind}")
        first = self.add(f"stablehlo.constant dense<{offset}> : {kind}")
        value = self.add(f"stablehlo.add {value}, {first} : {kind}")
        if self.rng.random() < 0.5:
            last = self.add(f"stablehlo.constant dense<{rows - 1}> : {kind}")
            value = self.add(f"stablehlo.minimum {value}, {last} : {kind}")
        return value

    def joined(self, columns: list[str]) -> str:
        if len(columns) == 1 and self.vector == len(self.index_shape) and self.rng.random() < 0.5:
            return columns[0]
        one = [*self.index_shape[: self.vector], 1, *self.index_shape[self.vector :]]
        kind, before = self.spell(one, self.dtype), self.spell(self.index_shape, self.dtype)
        wide = [self.add(f"stablehlo.reshape {column} : ({before}) -> {kind}") for column in columns]
        self.vector_shape = [*self.index_shape[: self.vector], len(columns), *self.index_shape[self.vector :]]
        joined = self.spell(self.vector_shape, self.dtype)
        kinds = ", ".join([kind] * len(wide))
        return self.add(f"stablehlo.concatenate {', '.join(wide)}, dim = {self.vector} : ({kinds}) -> {joined}")

    def text(self) -> str:
        indices = self.spell(getattr(self, "vector_shape", self.index_shape), self.dtype)
        operand, result = self.spell(self.operand, "f32"), self.spell(self.result, "f32")
        single = sorted(self.named)
        arguments = [f"%x: {operand}", *self.index_arguments]
        if not self.writes:
            numbers = (
                f"offset_dims = {self.windows}, collapsed_slice_dims = {single}, start_index_map = {self.named}, "
                f"index_vector_dim = {self.vector}"
            )
            sizes = ", ".join(map(str, self.sizes))
            last = (
                f'%r = "stablehlo.gather"(%x, {self.indices}) <{{dimension_numbers = #stablehlo.gather<{numbers}>, '
                f"slice_sizes = array<i64: {sizes}>}}> : ({operand}, {indices}) -> {result}"
            )
            return self.function(arguments, last, result)
        numbers = (
            f"update_window_dims = {self.windows}, inserted_window_dims = {single}, "
            f"scatter_dims_to_operand_dims = {self.named}, index_vector_dim = {self.vector}"
        )
        body = self.rng.choice(("%b", "add", "minimum"))
        inner = "" if body == "%b" else f"%c = stablehlo.{body} %a, %b : tensor<f32>\n"
        last = (
            f'%r = "stablehlo.scatter"(%x, {self.indices}, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, '
            f"indices_are_sorted = false, unique_indices = false}}> ({{\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n{inner}"
            f"stablehlo.return {'%b' if body == '%b' else '%c'} : tensor<f32>\n}}) : ({operand}, {indices}, {result}) -> {operand}"
        )
        return self.function([*arguments, f"%u: {result}"], last, operand)

    def function(self, arguments: list[str], last: str, result: str) -> str:
        lines = "\n".join([*self.lines, last])
        return f"func.func public @main({', '.join(arguments)}) -> {result} {{\n{lines}\nreturn %r : {result}\n}}"


@pytest.mark.parametrize("writes", [False, True], ids=["gather", "scatter"])
@pytest.mark.parametrize("seed", range(60))
def test_any_gather_and_scatter_with_counting_components(seed: int, writes: bool) -> None:
    text = Indexed(seed, writes).text()
    assert_same_bits(text, normalised(text), seed)


@pytest.mark.parametrize("writes", [False, True], ids=["gather", "scatter"])
def test_most_of_them_get_a_batching_dimension(writes: bool) -> None:
    """The test above would pass if nothing were changed."""
    found = [numbers_in(normalised(Indexed(seed, writes).text())) for seed in range(60)]
    assert sum(not each or bool(each[0].batching) for each in found) > 40
    assert sum(bool(each) and len(each[0].batching) > 1 for each in found) > 5
