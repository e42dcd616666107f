"""Integers as affine functions of their position: the arithmetic of digits, and what ops do to it, against XLA."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import main_function
from exla_opt.ops.affine import Affine, Digit, counting, divided, of_table, reshaped
from exla_opt.ops.affine_reader import AffineReader
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from tests.execute import run_module

Numbers = npt.NDArray[np.int64]
Shape = tuple[int, ...]


def numbers_of(value: Affine) -> Numbers:
    """The integers of the tensor, one by one."""
    sizes = [digit.size for dim in value.dims for digit in dim]
    strides = [digit.stride for dim in value.dims for digit in dim]
    digits = np.indices(sizes).reshape(len(sizes), prod(sizes))
    flat = value.offset + (np.array(strides, np.int64)[:, None] * digits).sum(0)
    return np.asarray(flat).reshape([prod(digit.size for digit in dim) for dim in value.dims])


def test_repeated_numbers_are_counted_in_digits() -> None:
    merged = reshaped(counting([8, 3], 0), [8, 3], [24])
    assert merged == Affine(0, ((Digit(8, 1), Digit(3, 0)),))
    assert reshaped(counting([24], 0), [24], [8, 3]) == Affine(0, ((Digit(8, 3),), (Digit(3, 1),)))
    assert reshaped(counting([8, 3], 1), [8, 3], [4, 6]) == Affine(0, ((Digit(4, 0),), (Digit(2, 0), Digit(3, 1))))


def test_a_dimension_that_begins_inside_of_a_digit_is_not_known() -> None:
    assert reshaped(counting([3, 8], 1), [3, 8], [4, 6]) is None


def test_quotient_and_remainder() -> None:
    assert divided(counting([24], 0), 3) == (
        Affine(0, ((Digit(8, 1), Digit(3, 0)),)),
        Affine(0, ((Digit(8, 0), Digit(3, 1)),)),
    )
    assert divided(counting([24], 0), 5) is None  # 24 is no multiple of 5
    assert divided(Affine(1, ((Digit(24, 1),),)), 3) is None  # the first row would be shorter
    assert divided(Affine(-1, ((Digit(24, 1),),)), 3) is None


@pytest.mark.parametrize("table", [[0, 1, 2, 4], [0, 1, 1, 0], [[0, 1], [1, 3]], [0, 0, 1, 1, 2]])
def test_a_table_that_does_not_count(table: list[object]) -> None:
    assert of_table(np.array(table, np.int64)) is None


@pytest.mark.parametrize("seed", range(50))
def test_a_table_that_counts(seed: int) -> None:
    rng = random.Random(seed)
    dims = tuple(
        tuple(Digit(rng.randint(2, 4), rng.randint(-3, 3)) for _ in range(rng.randint(0, 2)))
        for _ in range(rng.randint(1, 3))
    )
    table = numbers_of(Affine(rng.randint(-5, 5), dims))
    found = of_table(table)
    assert found is not None
    assert np.array_equal(numbers_of(found), table)


class Chain:
    """A module whose results are integer tensors, made of iotas and constants by random ops."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.values: list[tuple[str, Shape]] = []
        self.dtype = self.rng.choice(("i8", "i16", "i32", "i64", "ui8", "ui32"))
        self.low = 0 if self.dtype.startswith("u") else -3
        for _ in range(2):
            shape = tuple(self.rng.choice((1, 2, 3, 4, 6, 12)) for _ in range(self.rng.randint(1, 3)))
            self.add(shape, f"stablehlo.iota dim = {self.rng.randrange(len(shape))} : {{}}")
        steps = (self.arithmetic, self.division, self.shaped, self.moved, self.cut, self.chosen, self.joined)
        for _ in range(24):
            x, shape = self.rng.choice(self.values)
            self.rng.choice(steps)(x, shape)

    def spell(self, shape: Shape, dtype: str = "") -> str:
        return f"tensor<{'x'.join([*map(str, shape), dtype or self.dtype])}>"

    def add(self, shape: Shape, text: str) -> None:
        self.values.append((self.hidden(text.format(self.spell(shape))), shape))

    def hidden(self, text: str) -> str:
        name = f"%{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def number(self, shape: Shape, number: int) -> str:
        return self.hidden(f"stablehlo.constant dense<{number}> : {self.spell(shape)}")

    def other(self, shape: Shape) -> str:
        alike = [name for name, each in self.values if each == shape]
        return self.rng.choice(alike) if self.rng.random() < 0.5 else self.number(shape, self.rng.randint(self.low, 5))

    def arithmetic(self, x: str, shape: Shape) -> None:
        name = self.rng.choice(("add", "subtract", "maximum", "minimum", "multiply"))
        y = self.number(shape, self.rng.randint(self.low, 3)) if name == "multiply" else self.other(shape)
        self.add(shape, f"stablehlo.{name} {x}, {y} : {{}}")

    def division(self, x: str, shape: Shape) -> None:
        divisor = self.number(shape, self.rng.choice((2, 3, 4)))
        self.add(shape, f"stablehlo.{self.rng.choice(('divide', 'remainder'))} {x}, {divisor} : {{}}")

    def shaped(self, x: str, shape: Shape) -> None:
        kind, rank, count = self.spell(shape), len(shape), prod(shape)
        if rank < 3 and self.rng.random() < 0.5:
            dims = list(range(1, rank + 1))
            larger = (self.rng.choice((2, 3)), *shape)
            self.add(larger, f"stablehlo.broadcast_in_dim {x}, dims = {dims} : ({kind}) -> {{}}")
        else:
            first = self.rng.choice([size for size in range(1, count + 1) if count % size == 0])
            self.add((first, count // first), f"stablehlo.reshape {x} : ({kind}) -> {{}}")

    def moved(self, x: str, shape: Shape) -> None:
        kind, rank = self.spell(shape), len(shape)
        order = self.rng.sample(range(rank), rank)
        if self.rng.random() < 0.5:
            self.add(tuple(shape[dim] for dim in order), f"stablehlo.transpose {x}, dims = {order} : ({kind}) -> {{}}")
        else:
            self.add(shape, f"stablehlo.reverse {x}, dims = {order[: rank // 2 + 1]} : {{}}")

    def cut(self, x: str, shape: Shape) -> None:
        cuts = []
        for size in shape:
            start = self.rng.randrange(size)
            cuts.append((start, self.rng.randint(start + 1, size), self.rng.randint(1, 2)))
        lengths = tuple(-((low - high) // step) for low, high, step in cuts)
        text = ", ".join(f"{low}:{high}:{step}" for low, high, step in cuts)
        self.add(lengths, f"stablehlo.slice {x} [{text}] : ({self.spell(shape)}) -> {{}}")

    def chosen(self, x: str, shape: Shape) -> None:
        kind, truth, scalar = self.spell(shape), self.spell(shape, "i1"), self.spell(())
        if self.rng.random() < 0.3:
            low, high = self.number((), self.rng.randint(self.low, 1)), self.number((), self.rng.randint(2, 9))
            self.add(shape, f"stablehlo.clamp {low}, {x}, {high} : ({scalar}, {kind}, {scalar}) -> {{}}")
            return
        y, sign = self.other(shape), "UNSIGNED" if self.dtype.startswith("u") else "SIGNED"
        direction = self.rng.choice(("LT", "LE", "GT", "GE", "EQ", "NE"))
        mask = self.hidden(f"stablehlo.compare {direction}, {x}, {y}, {sign} : ({kind}, {kind}) -> {truth}")
        if self.rng.random() < 0.3:
            mask = self.hidden(f"stablehlo.not {mask} : {truth}")
        self.add(shape, f"stablehlo.select {mask}, {x}, {y} : {truth}, {{}}")

    def joined(self, x: str, shape: Shape) -> None:
        if self.rng.random() < 0.4:
            kind, wide = self.spell(shape), self.spell(shape, self.rng.choice(("i64", "f32", "i8", "ui16")))
            between = self.hidden(f"stablehlo.convert {x} : ({kind}) -> {wide}")
            self.add(shape, f"stablehlo.convert {between} : ({wide}) -> {{}}")
            return
        dim, kind = self.rng.randrange(len(shape)), self.spell(shape)
        both = (*shape[:dim], 2 * shape[dim], *shape[dim + 1 :])
        self.add(both, f"stablehlo.concatenate {x}, {self.other(shape)}, dim = {dim} : ({kind}, {kind}) -> {{}}")

    def text(self) -> str:
        kinds = ", ".join(self.spell(shape) for _, shape in self.values)
        names = ", ".join(name for name, _ in self.values)
        body = "\n".join(self.lines)
        return f"func.func public @main() -> ({kinds}) {{\n{body}\nreturn {names} : {kinds}\n}}"


def returned(module: ir.Module) -> list[ir.Value]:
    *_, last = module.body.operations[0].operation.regions[0].blocks[0].operations
    return list(last.operands)


def within(found: Affine | None, numbers: npt.NDArray[Any]) -> None:
    """What is found of a tensor bounds its integers, whose shape it has."""
    if found is None:
        return
    rest = numbers.astype(object) - numbers_of(replace(found, slack=0)).astype(object)
    assert rest.shape == numbers.shape
    assert rest.min() >= 0 and rest.max() <= found.slack, f"{numbers} is not {found}"


@pytest.mark.parametrize("seed", range(40))
def test_what_is_known_of_a_tensor_is_what_xla_computes(seed: int) -> None:
    text = Chain(seed).text()
    module = ir.Module.parse(text, new_context())
    reader = AffineReader()
    for value, numbers in zip(returned(module), run_module(text, []), strict=True):
        found = reader.of(value)
        assert found is None or np.array_equal(numbers_of(found), numbers), f"{value} is not {found}"
        within(reader.bounds_of(value), numbers)
        for dim, size in enumerate(numbers.shape):
            place = seed % size
            within(reader.bounds_of(value, (dim, place)), numbers.take([place], dim))
            at = reader.of(value, (dim, place))
            assert at is None or np.array_equal(numbers_of(at), numbers.take([place], dim)), f"{value}, {dim}: {at}"


def test_most_of_such_tensors_are_known() -> None:
    """The test above would pass if nothing were known."""
    known = []
    for seed in range(40):
        module = ir.Module.parse(Chain(seed).text(), new_context())
        reader = AffineReader()
        known += [reader.of(value) is not None for value in returned(module)]
    assert sum(known) > 0.5 * len(known)


def cells(x: Any) -> Any:
    """Divisions and remainders of JAX, whose signs are corrected, and negative indices."""
    clipped = jnp.clip(x, 0, 100)
    return clipped // 7, clipped % 7, x % 7, jnp.where(x < 0, x + 9, x), jnp.argmax(x, 1)


def test_at_one_position_of_a_dimension_the_shape_is_that_of_the_part() -> None:
    text = str(jax.jit(cells).lower(jax.ShapeDtypeStruct((4, 3), jnp.int32)).compiler_ir("stablehlo"))
    with new_context() as context:
        module = parse_module("cells", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        results = [value for op in main_function(module).regions[0].blocks[0].operations for value in op.results]
        matrices = [value for value in results if ir.RankedTensorType(value.type).shape == [4, 3]]
        assert {"stablehlo.select", "stablehlo.and"} <= {value.owner.name for value in matrices}
        for value in matrices:
            for dim, size in ((0, 4), (1, 3)):
                for place in range(size):
                    reader = AffineReader()
                    part, whole = reader.bounds_of(value, (dim, place)), reader.bounds_of(value)
                    assert (part is None) == (whole is None)
                    assert part is None or part.shape == ([1, 3], [4, 1])[dim]
