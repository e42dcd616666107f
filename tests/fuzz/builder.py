"""Writes one random module as text, op by op, and knows of each value how far it may be compared."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isfinite, prod

from exla_opt.sharding.mesh import Mesh, Sharding
from tests.fuzz import dtypes
from tests.fuzz.meshes import axes_of, drawn_sharding, module_around, spelled

Shape = tuple[int, ...]
Type = tuple[Shape, str]


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value.

    exact: whether every legal order of evaluation gives the same bits.
    integral: whether all its finite elements are integers.
    size: the largest magnitude of its finite elements, strict where `integral`, expected elsewhere.
    """

    name: str
    shape: Shape
    dtype: str
    exact: bool = True
    integral: bool = False
    size: float = 4.0

    @property
    def type(self) -> Type:
        """Shape and element type."""
        return self.shape, self.dtype

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes that it takes."""
        return self.elements * dtypes.bytes_of(self.dtype)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of @main. kind: what it is filled with; high: of indices, the number of rows that there are."""

    value: Value
    kind: str
    high: int = 0


@dataclass
class Builder:
    """The module as it grows.

    whole_numbers: whether floats are filled with small integers, so that sums of them are exact in any order.
    special: whether NaN, infinities and -0.0 are among them.
    floats: the type that every float is written as, f64 or f32, to measure the errors of its own; "" for its own.
    donated: the arguments that a result is written over, by name, and the place of that result.
    mesh: the devices that the module is for, if several; spread: how its arguments are, by name.
    """

    rng: random.Random
    prefix: str
    dtype: str
    sizes: Sequence[int]
    whole_numbers: bool
    special: bool
    floats: str
    mesh: Mesh | None = None
    most: int = 6000
    arguments: list[Argument] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    pool: list[Value] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    donated: dict[str, int] = field(default_factory=dict)
    spread: dict[str, Sharding] = field(default_factory=dict)
    bits_are_read: bool = False  # then the wide module would be another program
    in_function: bool = False
    depth: int = 0
    count: int = 0

    def spell(self, kind: Type) -> str:
        """A tensor type as text."""
        shape, dtype = kind
        return f"tensor<{''.join(f'{size}x' for size in shape)}{self.element(dtype)}>"

    def element(self, dtype: str) -> str:
        """An element type as text."""
        return dtypes.with_floats(dtype, self.floats) if self.floats else dtype

    def fresh(self) -> str:
        """A name that no value has."""
        self.count += 1
        return f"%{self.count}"

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        results: Sequence[Type],
        attributes: str = "",
        regions: Sequence[str] = (),
    ) -> list[str]:
        """Write one op in MLIR's generic form; the names of its results."""
        names = [self.fresh() for _ in results]
        left = f"{', '.join(names)} = " if names else ""
        inner = f" ({', '.join(regions)})" if regions else ""
        notes = f" {{{attributes}}}" if attributes else ""
        takes = ", ".join(self.spell(value.type) for value in operands)
        gives = ", ".join(map(self.spell, results))
        given = ", ".join(value.name for value in operands)
        self.lines.append(f'{left}"{name}"({given}){inner}{notes} : ({takes}) -> ({gives})')
        return names

    def argument(self, shape: Shape, dtype: str, kind: str = "", high: int = 0) -> Value:
        """A new argument of @main; inside of a function that is not @main, a constant instead."""
        from tests.fuzz import emit  # which needs this module

        kind = kind or ("whole" if self.whole_numbers or not dtypes.is_inexact(dtype) else "normal")
        if kind == "whole" and dtypes.is_integer(dtype) and self.chance(0.15):
            kind = "bits"
        integral = kind != "normal"
        size = {"whole": 3.0, "indices": high + 2.0, "normal": 4.0, "bits": dtypes.exact_limit(dtype)}[kind]
        size = min(size, dtypes.exact_limit(dtype))
        if self.in_function:
            return replace(emit.dense(self, shape, dtype, high), size=max(size, 3.0))
        value = Value(f"%arg{len(self.arguments)}", shape, dtype, True, integral, size)
        self.arguments.append(Argument(value, kind, high))
        if self.mesh is not None:
            self.spread[value.name] = drawn_sharding(self.rng, axes_of(self.mesh), shape)
        return value

    def scalar(self, dtype: str, number: complex) -> Value:
        """A constant of rank 0."""
        return self.splat((), dtype, number)

    def splat(self, shape: Shape, dtype: str, number: complex) -> Value:
        """A constant that is the same everywhere."""
        text = dtypes.literal(self.element(dtype), number)
        attribute = f"value = dense<{text}> : {self.spell((shape, dtype))}"
        [name] = self.op("stablehlo.constant", [], [(shape, dtype)], attribute)
        finite = isfinite(abs(number))
        whole = finite and complex(number).real % 1 == 0 and complex(number).imag % 1 == 0
        size = abs(number) if finite else 1.0
        return Value(name, shape, dtype, True, whole, size)

    def keep(self, *values: Value) -> None:
        """Let later ops read these values."""
        self.pool += values

    @contextmanager
    def block(self, arguments: Sequence[Value], *, isolated: bool = False) -> Iterator[list[str]]:
        """Lines written inside go to a block of their own; what is made there is forgotten behind it.

        The list that is given becomes the block's text, in one string. isolated: whether the block sees its arguments
        only.
        """
        lines, pool, in_function = self.lines, self.pool, self.in_function
        text: list[str] = []
        self.lines = []
        self.pool = list(arguments) if isolated else [*pool, *arguments]
        self.in_function = in_function or isolated
        self.depth += 1
        yield text
        head = ", ".join(f"{value.name}: {self.spell(value.type)}" for value in arguments)
        text.append("{\n" + (f"^bb0({head}):\n" if head else "") + "\n".join(self.lines) + "\n}")
        self.lines, self.pool, self.in_function = lines, pool, in_function
        self.depth -= 1

    def give_back(self, values: Sequence[Value], name: str = "stablehlo.return") -> None:
        """End a block."""
        self.op(name, values, [])

    def function(self, name: str, arguments: Sequence[Value], results: Sequence[Type], body: str) -> None:
        """A private function; `body` is the text of a block."""
        takes = ", ".join(f"{value.name}: {self.spell(value.type)}" for value in arguments)
        gives = ", ".join(map(self.spell, results))
        inner = body.partition("\n")[2]
        if arguments:
            inner = inner.partition("\n")[2]
        self.functions.append(f"func.func private @{name}({takes}) -> ({gives}) {{\n{inner}")

    def module(self, results: Sequence[Value]) -> str:
        """The whole module, of which @main returns `results`."""
        self.give_back(results, "func.return")
        takes = ", ".join(
            f"{a.value.name}: {self.spell(a.value.type)}{self.of_argument(a.value)}" for a in self.arguments
        )
        gives = ", ".join(self.spell(v.type) + self.of_result(place, v) for place, v in enumerate(results))
        main = "\n".join(["func.func @main(" + takes + ") -> (" + gives + ") {", *self.lines, "}"])
        text = "\n".join([main, *self.functions]) + "\n"
        return text if self.mesh is None else module_around(text, self.mesh)

    def of_argument(self, value: Value) -> str:
        """The attributes of an argument: the result that is written over it, and how it is spread."""
        place, sharding = self.donated.get(value.name), self.spread.get(value.name)
        notes = [] if place is None else [f"tf.aliasing_output = {place} : i32"]
        notes += [] if sharding is None else [f"sdy.sharding = #sdy.sharding{spelled(sharding)}"]
        return f" {{{', '.join(notes)}}}" if notes else ""

    def of_result(self, place: int, value: Value) -> str:
        """How a result is spread, if that is said: as the argument that it is written over."""
        if self.mesh is None:
            return ""
        over = [name for name, result in self.donated.items() if result == place]
        if not over and self.chance(0.6):
            return ""
        sharding = self.spread[over[0]] if over else drawn_sharding(self.rng, axes_of(self.mesh), value.shape)
        return f" {{sdy.sharding = #sdy.sharding{spelled(sharding)}}}"

    def shape(self, rank: int) -> Shape:
        """A random shape of at most `most` elements."""
        shape = [self.rng.choice(self.sizes) for _ in range(rank)]
        while prod(shape) > self.most:
            shape[shape.index(max(shape))] = self.rng.choice((1, 2, 3, 5))
        return tuple(shape)

    def fits(self, *shapes: Shape) -> bool:
        """Whether none of the shapes has more elements than a program should have."""
        return all(prod(shape) <= self.most for shape in shapes)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def some(self, count: int, least: int = 0) -> list[int]:
        """A random subset of range(count) of at least `least`, in order."""
        if count < least:
            return list(range(count))
        size = self.rng.randint(least, count)
        return sorted(self.rng.sample(range(count), size))
