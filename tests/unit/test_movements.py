"""rce and reshape-sinker on random programs of reshapes, transposes, broadcasts and the like, executed.

All tensors are integers: sums are exact in any order, so every result must be equal bit by bit.
"""

from __future__ import annotations

import random
from math import prod

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.reassociation import reassociation_of
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.passes import rce
from exla_opt.passes.reshape_sinker import make_patterns
from exla_opt.pipeline import run_pipeline
from tests.execute import assert_equal_results

Shape = tuple[int, ...]


def kind(shape: Shape, element: str = "i32") -> str:
    return f"tensor<{'x'.join(map(str, (*shape, element)))}>"


def factors(number: int, choose: random.Random) -> Shape:
    """A random shape of so many elements, with sizes of 1 here and there."""
    shape: list[int] = []
    while number > 1:
        divisor = choose.choice([d for d in range(2, number + 1) if number % d == 0])
        shape.append(divisor)
        number //= divisor
    for _ in range(choose.randint(0, 2)):
        shape.insert(choose.randint(0, len(shape)), 1)
    return tuple(shape[:6]) if prod(shape[:6]) == prod(shape) else (prod(shape),)


class Program:
    """A random program; every value is drawn from what is there already."""

    def __init__(self, seed: int):
        self.choose = random.Random(seed)
        self.shapes: dict[str, Shape] = {"a": (4, 6), "b": (2, 3, 4), "c": (1, 6, 1, 2), "s": ()}
        self.lines = [
            "%zero = stablehlo.constant dense<0> : tensor<i32>",
            "%one = stablehlo.constant dense<1> : tensor<i32>",
            "%seven = stablehlo.constant dense<7> : tensor<i32>",
            "%least = stablehlo.constant dense<-2147483648> : tensor<i32>",
            "%most = stablehlo.constant dense<2147483647> : tensor<i32>",
        ]
        for _ in range(self.choose.randint(4, 16)):
            self.step()

    def text(self) -> str:
        names = list(self.shapes)
        results = self.choose.sample(names[4:], min(3, len(names) - 4)) or names[:1]  # no step may have fitted
        arguments = ", ".join(f"%{name}: {kind(self.shapes[name])}" for name in names[:4])
        kinds = ", ".join(kind(self.shapes[name]) for name in results)
        body = "\n  ".join(self.lines)
        values = ", ".join(f"%{name}" for name in results)
        return f"func.func @main({arguments}) -> ({kinds}) {{\n  {body}\n  return {values} : {kinds}\n}}"

    def add(self, shape: Shape, text: str) -> None:
        name = f"v{len(self.lines)}"
        self.shapes[name] = shape
        self.lines.append(f"%{name} = {text}")

    def step(self) -> None:
        name = self.choose.choice(list(self.shapes)[-6:])
        shape = self.shapes[name]
        steps = [self.reshape, self.transpose, self.broadcast, self.slice, self.reverse, self.pad, self.concatenate]
        steps += [self.reduce, self.reduce, self.elementwise, self.elementwise, self.dot, self.dot, self.select]
        self.choose.choice(steps)(name, shape)

    def reshape(self, name: str, shape: Shape) -> None:
        new = factors(prod(shape), self.choose)
        self.add(new, f"stablehlo.reshape %{name} : ({kind(shape)}) -> {kind(new)}")

    def transpose(self, name: str, shape: Shape) -> None:
        order = self.choose.sample(range(len(shape)), len(shape))
        new = tuple(shape[dim] for dim in order)
        self.add(new, f"stablehlo.transpose %{name}, dims = {order} : ({kind(shape)}) -> {kind(new)}")

    def broadcast(self, name: str, shape: Shape) -> None:
        new = [self.choose.choice([1, 2, 3]) if size == 1 and self.choose.random() < 0.5 else size for size in shape]
        places = list(range(len(shape)))
        if self.choose.random() < 0.3:
            self.choose.shuffle(places)
            new = [new[places.index(dim)] for dim in range(len(shape))]
        for _ in range(self.choose.randint(0, 1)):
            at = self.choose.randint(0, len(new))
            new.insert(at, self.choose.choice([1, 2, 3]))
            places = [dim + (dim >= at) for dim in places]
        if prod(new) <= 2000:
            result = tuple(new)
            text = f"stablehlo.broadcast_in_dim %{name}, dims = {places} : ({kind(shape)}) -> {kind(result)}"
            self.add(result, text)

    def slice(self, name: str, shape: Shape) -> None:
        bounds = [(self.choose.randint(0, (size - 1) // 2), size, self.choose.choice([1, 1, 2])) for size in shape]
        if self.choose.random() < 0.4:
            bounds = [(0, size, 1) for size in shape]
        new = tuple(-(-(stop - start) // step) for start, stop, step in bounds)
        inside = ", ".join(f"{start}:{stop}:{step}" for start, stop, step in bounds)
        if shape:
            self.add(new, f"stablehlo.slice %{name} [{inside}] : ({kind(shape)}) -> {kind(new)}")

    def reverse(self, name: str, shape: Shape) -> None:
        dims = sorted(self.choose.sample(range(len(shape)), self.choose.randint(0, len(shape))))
        if shape:
            self.add(shape, f"stablehlo.reverse %{name}, dims = {dims} : {kind(shape)}")

    def pad(self, name: str, shape: Shape) -> None:
        low, high, inside = ([self.choose.choice([0, 0, 1]) for _ in shape] for _ in range(3))
        spread = [size + (size - 1) * between for size, between in zip(shape, inside, strict=True)]
        new = tuple(size + one + other for size, one, other in zip(spread, low, high, strict=True))
        edges = f"low = {low}, high = {high}, interior = {inside}"
        if not shape or prod(new) > 2000:
            return
        self.add(new, f"stablehlo.pad %{name}, %seven, {edges} : ({kind(shape)}, tensor<i32>) -> {kind(new)}")
        if self.choose.random() < 0.5:  # take the operand back
            ends = zip(low, spread, inside, strict=True)
            bounds = ", ".join(f"{one}:{one + size}:{between + 1}" for one, size, between in ends)
            last = list(self.shapes)[-1]
            if any(inside) or self.choose.random() < 0.5:
                self.add(shape, f"stablehlo.slice %{last} [{bounds}] : ({kind(new)}) -> {kind(shape)}")
                return
            edges = f"low = {[-one for one in low]}, high = {[-one for one in high]}, interior = {inside}"
            self.add(shape, f"stablehlo.pad %{last}, %seven, {edges} : ({kind(new)}, tensor<i32>) -> {kind(shape)}")

    def concatenate(self, name: str, shape: Shape) -> None:
        if shape:
            dim = self.choose.randrange(len(shape))
            empty = (*shape[:dim], 0, *shape[dim + 1 :])
            if self.choose.random() < 0.5:
                self.add(shape, f"stablehlo.concatenate %{name}, dim = {dim} : ({kind(shape)}) -> {kind(shape)}")
                return
            nothing = f"v{len(self.lines)}"
            self.lines.append(f"%{nothing} = stablehlo.constant dense<0> : {kind(empty)}")
            kinds = f"({kind(empty)}, {kind(shape)}) -> {kind(shape)}"
            self.add(shape, f"stablehlo.concatenate %{nothing}, %{name}, dim = {dim} : {kinds}")

    def reduce(self, name: str, shape: Shape) -> None:
        dims = sorted(self.choose.sample(range(len(shape)), self.choose.randint(0, len(shape))))
        new = tuple(size for dim, size in enumerate(shape) if dim not in dims)
        # An init that is no identity may be counted any number of times, says the specification, and none too.
        either = [("maximum", "least"), ("minimum", "most"), ("or", "zero"), ("add", "zero"), ("multiply", "one")]
        op, init = self.choose.choice(either)
        types = f"({kind(shape)}, tensor<i32>) -> {kind(new)}"
        body = f"stablehlo.reduce(%{name} init: %{init}) applies stablehlo.{op} across dimensions = {dims} : {types}"
        self.add(new, body)

    def elementwise(self, name: str, shape: Shape) -> None:
        partners = [other for other, size in self.shapes.items() if size == shape]
        other = self.choose.choice(partners)
        op = self.choose.choice(["add", "multiply", "maximum", "subtract"])
        self.add(shape, f"stablehlo.{op} %{name}, %{other} : {kind(shape)}")

    def select(self, name: str, shape: Shape) -> None:
        """Two selects, of which the second reads the first on either side, by its predicate or by another one."""
        other = self.choose.choice([each for each, size in self.shapes.items() if size == shape])
        mask = kind(shape, "i1")
        predicates = [f"p{len(self.lines)}", f"p{len(self.lines) + 1}"]
        for predicate, direction in zip(predicates, ("LT", "GE"), strict=True):
            compared = f"stablehlo.compare {direction}, %{name}, %{other} : ({kind(shape)}, {kind(shape)}) -> {mask}"
            self.lines.append(f"%{predicate} = {compared}")
        self.add(shape, f"stablehlo.select %{predicates[0]}, %{name}, %{other} : {mask}, {kind(shape)}")
        sides = [list(self.shapes)[-1], other]
        self.choose.shuffle(sides)
        predicate = self.choose.choice(predicates)
        self.add(shape, f"stablehlo.select %{predicate}, %{sides[0]}, %{sides[1]} : {mask}, {kind(shape)}")

    def dot(self, name: str, shape: Shape) -> None:
        other = self.choose.choice(list(self.shapes))
        right = self.shapes[other]
        pairs = [(i, j) for i, size in enumerate(shape) for j, length in enumerate(right) if size == length]
        self.choose.shuffle(pairs)
        used: list[tuple[int, int]] = []
        for one, two in pairs:
            if all(one != i and two != j for i, j in used) and len(used) < 2:
                used.append((one, two))
        if not used:
            return
        batch = used[1:]
        free = [size for dim, size in enumerate(shape) if dim not in [i for i, _ in used]]
        free += [size for dim, size in enumerate(right) if dim not in [j for _, j in used]]
        new = (*(shape[i] for i, _ in batch), *free)
        if len(new) > 6 or prod(new) > 3000:
            return
        batching = f"batching_dims = {[i for i, _ in batch]} x {[j for _, j in batch]}, " if batch else ""
        contracting = f"contracting_dims = [{used[0][0]}] x [{used[0][1]}]"
        types = f"({kind(shape)}, {kind(right)}) -> {kind(new)}"
        self.add(new, f"stablehlo.dot_general %{name}, %{other}, {batching}{contracting} : {types}")


def rewrite(text: str, passes: tuple[str, ...]) -> str:
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, passes, Options(size_threshold=1))
        return serialise(module, "text").decode()


@settings(max_examples=60, deadline=None)
@example(24691, ("reshape-sinker",))  # a reader that is folded away ends the last round
@given(st.integers(0, 10**6), st.sampled_from([("rce",), ("reshape-sinker",), ("rce", "reshape-sinker", "rce")]))
def test_random_movements_stay_bit_equal(seed: int, passes: tuple[str, ...]) -> None:
    text = Program(seed).text()
    after = rewrite(text, passes)
    if len(passes) == 1:
        assert rewrite(after, passes) == after, "a second run changes it"
    assert_equal_results(text, after)


def test_every_pattern_fits_somewhere() -> None:
    """The random programs reach every equation of both tables."""
    wanted = {pattern.__name__ for patterns in rce.PATTERNS.values() for pattern in patterns}
    sinking = {
        pattern.__name__ for patterns in make_patterns(Options(size_threshold=1)).values() for pattern in patterns
    }
    reached: set[str] = set()
    for seed in range(400):
        with new_context() as context:
            module = parse_module("<program>", Program(seed).text().encode(), context).module
            block = module.body.operations[0].regions[0].blocks[0]
            for view in list(block.operations):
                op = view.operation
                with ir.InsertionPoint(op), op.location:
                    for pattern in (
                        *rce.PATTERNS.get(op.name, ()),
                        *make_patterns(Options(size_threshold=1)).get(op.name, ()),
                    ):
                        if pattern(op) is not None:
                            reached.add(pattern.__name__)
    absent = {"convert_of_wider", "same_convert", "full_update", "same_dynamic_slice", "slice_of_sort"}
    absent.add("equal_to_extreme")
    assert (wanted | sinking) - reached == absent, "the programs have no converts, dynamic slices, sorts or comparisons"


@given(st.integers(1, 400), st.integers(0, 10**6))
def test_groups_of_a_reshape(elements: int, seed: int) -> None:
    choose = random.Random(seed)
    before, after = factors(elements, choose), factors(elements, choose)
    groups = reassociation_of(before, after)
    assert groups is not None
    assert [dim for group in groups for dim in group.before] == list(range(len(before)))
    assert [dim for group in groups for dim in group.after] == list(range(len(after)))
    for group in groups:
        assert prod(before[dim] for dim in group.before) == prod(after[dim] for dim in group.after)


@pytest.mark.parametrize(("before", "after"), [((2, 0), (0,)), ((0,), (3, 0))])
def test_an_empty_tensor_has_no_groups(before: Shape, after: Shape) -> None:
    assert reassociation_of(before, after) is None
