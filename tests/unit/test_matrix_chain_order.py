"""Products in another order: upstream's cases by name, and random products, executed; costs in scalar
multiplications of dots (two vectors over the same index are multiplied and summed, which is none)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import jax
import jax.numpy as jnp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import ChainCost, Options
from exla_opt.passes.matrix_chain_order.cost import CLEARLY, Cost, is_better
from exla_opt.passes.matrix_chain_order.factor import product
from exla_opt.pipeline import run_pipeline
from exla_opt.remarks import Kind
from tests.execute import assert_equal_results


def rewrite(text: str, options: Options | None = None) -> str:
    with new_context() as context:
        module = parse_module("<product>", text.encode(), context).module
        run_pipeline(module, ("matrix-chain-order",), options or Options())
        return serialise(module, "text").decode()


def plain(text: str) -> str:
    with new_context() as context:
        return serialise(parse_module("<product>", text.encode(), context).module, "text").decode()


def multiplications(text: str, *, and_additions: bool = False) -> int:
    """The scalar multiplications of all dots of a module. and_additions: whether those of its sums count as well."""
    total = 0

    def add(op: ir.Operation) -> ir.WalkResult:
        nonlocal total
        if op.name == "stablehlo.dot_general":
            numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
            left = ir.RankedTensorType(op.operands[0].type).shape
            result = ir.RankedTensorType(op.results[0].type).shape
            total += prod(result) * prod(left[dim] for dim in numbers.lhs_contracting_dimensions)
        if and_additions and op.name == "stablehlo.reduce":
            total += prod(ir.RankedTensorType(op.operands[0].type).shape)
        return ir.WalkResult.ADVANCE

    with new_context() as context:
        ir.Module.parse(text, context).operation.walk(add)
    return total


class Writer:
    """Writes @main op by op; values are names, their shapes are kept."""

    def __init__(self, **arguments: str):
        self.shapes = {name: tuple(map(int, sizes.split("x"))) for name, sizes in arguments.items()}
        self.arguments = ", ".join(f"%{name}: {self.kind(shape)}" for name, shape in self.shapes.items())
        self.lines = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>"]

    @staticmethod
    def kind(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, (*shape, 'f32')))}>"

    def add(self, shape: tuple[int, ...], text: str) -> str:
        name = f"v{len(self.lines)}"
        self.shapes[name] = shape
        self.lines.append(f"%{name} = stablehlo.{text}")
        return name

    def dot(self, left: str, right: str, one: int | None = None, other: int = 0) -> str:
        """The sum over dimension `one` of left (its last by default) and `other` of right."""
        a, b = self.shapes[left], self.shapes[right]
        one = len(a) - 1 if one is None else one
        shape = tuple(size for dim, size in enumerate(a) if dim != one)
        shape += tuple(size for dim, size in enumerate(b) if dim != other)
        kinds = f"({self.kind(a)}, {self.kind(b)}) -> {self.kind(shape)}"
        return self.add(shape, f"dot_general %{left}, %{right}, contracting_dims = [{one}] x [{other}] : {kinds}")

    def transpose(self, value: str) -> str:
        shape = self.shapes[value]
        kinds = f"({self.kind(shape)}) -> {self.kind(shape[::-1])}"
        return self.add(shape[::-1], f"transpose %{value}, dims = [1, 0] : {kinds}")

    def plus(self, left: str, right: str) -> str:
        return self.add(self.shapes[left], f"add %{left}, %{right} : {self.kind(self.shapes[left])}")

    def total(self, value: str, dim: int) -> str:
        shape = self.shapes[value]
        rest = tuple(size for place, size in enumerate(shape) if place != dim)
        kinds = f"({self.kind(shape)}, tensor<f32>) -> {self.kind(rest)}"
        body = f"reduce(%{value} init: %zero) applies stablehlo.add across dimensions = [{dim}] : {kinds}"
        return self.add(rest, body)

    def reshape(self, value: str, *shape: int) -> str:
        return self.add(shape, f"reshape %{value} : ({self.kind(self.shapes[value])}) -> {self.kind(shape)}")

    def outer(self, left: str, right: str) -> str:
        a, b = self.shapes[left], self.shapes[right]
        kinds = f"({self.kind(a)}, {self.kind(b)}) -> {self.kind(a + b)}"
        return self.add(a + b, f"dot_general %{left}, %{right}, contracting_dims = [] x [] : {kinds}")

    def main(self, *results: str) -> str:
        kinds = ", ".join(self.kind(self.shapes[result]) for result in results)
        lines = "\n  ".join(self.lines)
        names = ", ".join(f"%{result}" for result in results)
        return f"func.func @main({self.arguments}) -> ({kinds}) {{\n  {lines}\n  return {names} : {kinds}\n}}"


@dataclass(frozen=True)
class Case:
    """One program, its cost as it is written and as it should become."""

    name: str
    text: str
    before: int
    after: int


def largest_between(text: str) -> int:
    """The elements of the largest result of a dot that another op reads."""
    made = re.findall(r"%\w+ = stablehlo.dot_general .*-> tensor<([0-9x]*)x?f32>", text)
    return max((prod(map(int, shape.strip("x").split("x"))) for shape in made[:-1]), default=0)


def left_to_right(writer: Writer, *values: str) -> str:
    product = values[0]
    for value in values[1:]:
        product = writer.dot(product, value)
    return product


def _chain(name: str, after: int, **arguments: str) -> Case:
    writer = Writer(**arguments)
    text = writer.main(left_to_right(writer, *arguments))
    return Case(name, text, multiplications(text), after)


def _cases() -> list[Case]:
    cases = [
        _chain("PureOptimalMatrixChain", 30_000, a="10x20", b="20x30", c="30x40", d="40x30"),
        _chain("PureMatrixChain", 26_000, a="40x20", b="20x30", c="30x10", d="10x30"),
    ]

    def add(name: str, writer: Writer, result: str | tuple[str, ...], after: int) -> None:
        text = writer.main(*((result,) if isinstance(result, str) else result))
        cases.append(Case(name, text, multiplications(text), after))

    w = Writer(a="40x20", b="20x30", c="30x10", d="10x30", e="40x30")
    add("MatrixChainAsSubgraph", w, w.plus(left_to_right(w, "a", "b", "c", "d"), "e"), 26_000)

    w = Writer(a="40x20", b="20x30", c="30x10", d="10", e="40", f="1")
    product = w.dot(left_to_right(w, "a", "b", "c", "d"), "e")
    add("MatrixVectorChainAsSubgraph", w, w.plus(w.reshape(product, 1), "f"), 1_700)

    w = Writer(a="40x20", b="20x30", c="30x10", d="10x30", e="10x30")
    shared = left_to_right(w, "a", "b", "c")
    add("ReusedSameSubMatrixAfterOptimizationChain", w, w.plus(w.dot(shared, "d"), w.dot(shared, "e")), 38_000)

    w = Writer(a="40x20", b="20x30", c="30x10", d="10x30", e="30x30")
    shared = w.dot("a", "b")
    result = w.plus(w.dot(w.dot(shared, "c"), "d"), w.dot(shared, "e"))
    add("ReusedDiffSubMatrixAfterOptimizationChain", w, result, 68_000)

    for name in ("ComplexChainWithRewrittenTranspose", "ComplexChainWithTranspose"):
        w = Writer(a="40x20", b="20x30", c="30x10", d="30x10", g="10x20", h="20x10", e="10x30", f="40x30")
        shared, other = left_to_right(w, "a", "b", "c"), left_to_right(w, "d", "g", "h")
        turned = w.dot(shared, w.transpose(other)) if name.endswith("WithTranspose") else w.dot(shared, other, 1, 1)
        add(name, w, w.plus(w.plus(turned, w.dot(shared, "e")), "f"), 43_000)

    w = Writer(a="40x20", b="20x30", c="30x10", d="15x10", e="20x15", f="30x20")
    nested = w.dot("f", w.dot("e", "d"))
    add("NestedRewrittenTransposeChain", w, w.dot(left_to_right(w, "a", "b", "c"), nested, 1, 1), 35_000)

    w = Writer(a="20x30", b="30", c="20x15", d="10x15")
    add("OptimalMatrixVectorTransDotChain", w, w.dot("d", w.dot(w.dot("a", "b"), "c")), 1_050)
    w = Writer(a="20x30", b="30", c="20x15", d="10x15")
    add("MatrixVectorTransDotChain", w, w.dot(w.dot("d", "c", 1, 1), w.dot("a", "b")), 1_050)

    w = Writer(a="40x20", b="20x30", c="30x10")
    add("ReduceSumDotChain", w, w.total(w.dot("a", w.dot("b", "c")), 1), 1_400)
    w = Writer(a="40x20", b="20x30", c="30x10", v="15")
    summed = w.reshape(w.total(w.reshape(w.dot("a", w.dot("b", "c")), 40, 10), 1), 40)
    add("ReduceSumOuterDotChain", w, w.outer(summed, "v"), 1_400)

    w = Writer(a="1000x2", b="1000x2", c="1000x2")
    add("MatrixVectorDotLhs", w, w.dot(w.dot("a", "b", 1, 1), "c"), 8_000)
    w = Writer(a="1000x2", b="1000x2", c="1000x2")
    add("MatrixVectorDotRhs", w, w.dot("a", w.dot("b", "c", 1, 1), 0), 8_000)
    return cases


CASES = _cases()


def test_all_of_upstreams_cases_are_here() -> None:
    assert len({case.name for case in CASES}) == 13 + 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_upstreams_case(case: Case) -> None:
    after = rewrite(case.text)
    assert multiplications(after) == case.after
    assert rewrite(after) == after, "a second run changes it"
    if case.before == case.after:
        assert after == plain(case.text), "what was optimal is left as it was"
    assert_equal_results(case.text, after)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
@example(59281)
def test_random_products(seed: int) -> None:
    """Chains with transposes, sums, shared parts and batches never cost more than before, and stay equal."""
    choose = random.Random(seed)
    sizes = [choose.choice([1, 2, 5, 9, 16]) for _ in range(8)]
    writer = Writer(**{f"a{k}": f"{sizes[k]}x{sizes[k + 1]}" for k in range(7)})
    values = [f"a{k}" for k in range(7)]
    for _ in range(choose.randint(2, 9)):
        left = choose.choice(values)
        if choose.random() < 0.2 and len(writer.shapes[left]) == 2:
            values.append(writer.transpose(left))
            continue
        if choose.random() < 0.1 and len(writer.shapes[left]) > 1:
            values.append(writer.total(left, choose.randrange(len(writer.shapes[left]))))
            continue
        pairs = [
            (right, one, other)
            for right in values
            for one, size in enumerate(writer.shapes[left])
            for other, length in enumerate(writer.shapes[right])
            if size == length and len(writer.shapes[left]) + len(writer.shapes[right]) <= 5
        ]
        if pairs:
            right, one, other = choose.choice(pairs)
            values.append(writer.dot(left, right, one, other))
    text = writer.main(*values[-2:])
    with new_context() as context:
        module = parse_module("<product>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        before = serialise(module, "text").decode()
    after = rewrite(before)
    # The sum of a product that others read as well may be a smaller product: more multiplications, fewer additions.
    assert multiplications(after, and_additions=True) <= multiplications(before, and_additions=True)
    assert rewrite(after) == after
    assert_equal_results(before, after)


def test_batches_and_scalar_factors() -> None:
    text = """
func.func @main(%q: tensor<3x50x4xf32>, %k: tensor<3x60x4xf32>, %v: tensor<3x60x4xf32>) -> tensor<3x50x4xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<3x50x60xf32>
  %0 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<3x50x4xf32>, tensor<3x60x4xf32>) -> tensor<3x50x60xf32>
  %1 = stablehlo.multiply %half, %0 : tensor<3x50x60xf32>
  %2 = stablehlo.dot_general %1, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<3x50x60xf32>, tensor<3x60x4xf32>) -> tensor<3x50x4xf32>
  return %2 : tensor<3x50x4xf32>
}
"""
    after = rewrite(text)
    assert "50x60" not in after and "60x50" not in after
    assert_equal_results(text, after)


def test_floats_stay_in_order_where_that_is_asked_for() -> None:
    case = next(case for case in CASES if case.name == "PureMatrixChain")
    assert rewrite(case.text, Options(reassociate=False)) == plain(case.text)


@pytest.mark.parametrize(
    ("new", "old", "measure", "better"),
    [
        (Cost(100, 50), Cost(200, 10), "flops", True),
        (Cost(190, 5), Cost(200, 10), "flops", False),
        (Cost(900, 5), Cost(200, 10), "bytes", True),
        (Cost(100, 50), Cost(200, 10), "both", True),  # larger, but it fits
        (Cost(100, 5000), Cost(200, 10), "both", False),  # larger than what fits
        (Cost(200, 900), Cost(200, 5000), "both", True),  # as fast, and smaller where it did not fit
        (Cost(200, 5), Cost(200, 10), "both", False),
    ],
)
def test_which_cost_is_better(new: Cost, old: Cost, measure: ChainCost, better: bool) -> None:
    assert is_better(new, old, 1000, measure) is better


def matrix_vector(kind: str, *between: str) -> str:
    """((A B) between) v of one element type; each line of `between` makes %n from %(n - 1), %0 being A B, and may read %k."""
    lines = "\n  ".join(between)
    return f"""
func.func @main(%a: tensor<40x4x{kind}>, %b: tensor<4x30x{kind}>, %v: tensor<30x{kind}>) -> tensor<40x{kind}> {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<40x4x{kind}>, tensor<4x30x{kind}>) -> tensor<40x30x{kind}>
  {lines}
  %last = stablehlo.dot_general %{len(between) // 2}, %v, contracting_dims = [1] x [0] : (tensor<40x30x{kind}>, tensor<30x{kind}>) -> tensor<40x{kind}>
  return %last : tensor<40x{kind}>
}}
"""


def scaled(kind: str, *steps: tuple[str, str]) -> str:
    """A B is multiplied or divided by one constant after another before it meets v."""
    lines = []
    for number, (name, value) in enumerate(steps):
        lines.append(f"%k{number} = stablehlo.constant dense<{value}> : tensor<40x30x{kind}>")
        lines.append(f"%{number + 1} = stablehlo.{name} %{number}, %k{number} : tensor<40x30x{kind}>")
    return matrix_vector(kind, *lines)


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("i8", [("multiply", "100"), ("multiply", "77")]),
        ("ui8", [("multiply", "200"), ("multiply", "200")]),
        ("i64", [("multiply", "4611686018427387905"), ("multiply", "4611686018427387905")]),
        ("f64", [("multiply", "3.0"), ("divide", "7.0")]),
    ],
)
def test_scalar_factors(kind: str, steps: list[tuple[str, str]]) -> None:
    text = scaled(kind, *steps)
    after = rewrite(text)
    assert "tensor<40x30x" not in after
    assert_equal_results(text, after)


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("i32", [("divide", "3")]),
        ("f32", [("multiply", "1.0e20")]),
        ("f32", [("multiply", "0.0")]),
        ("f32", [("multiply", "0x7F800000")]),
        ("f32", [("divide", "0.0")]),
    ],
)
def test_factors_that_stay(kind: str, steps: list[tuple[str, str]]) -> None:
    text = scaled(kind, *steps)
    assert rewrite(text) == plain(text)


def test_a_factor_is_exact_or_near_one() -> None:
    with new_context():
        byte, unsigned = ir.IntegerType.get_signless(8), ir.IntegerType.get_unsigned(8)
        assert [product(byte, 100, 2), product(unsigned, 100, 2), product(unsigned, -1, 1)] == [-56, 200, 255]
        assert product(ir.IntegerType.get_signless(1), 1, 1) is None
        assert product(ir.F32Type.get(), 2, 0.25) == 0.5
        assert [product(ir.F32Type.get(), 1.0, bad) for bad in (0.0, 1e20, float("inf"), float("nan"))] == [None] * 4


@pytest.mark.parametrize("kind", ["i1", "i8", "ui32", "i64", "f32", "f64", "complex<f32>"])
def test_element_types(kind: str) -> None:
    text = matrix_vector(kind)
    after = rewrite(text)
    assert "tensor<40x30x" not in after
    assert_equal_results(text, after)


@pytest.mark.parametrize("kind", ["bf16", "f16", "f8E4M3FN"])
def test_narrow_floats_keep_their_order(kind: str) -> None:
    assert rewrite(matrix_vector(kind)) == plain(matrix_vector(kind))


@pytest.mark.parametrize("kind", ["f32", "complex<f64>"])
def test_a_refusal_has_a_remark_where_something_big_stays(kind: str) -> None:
    for threshold, count in ((100, 1), (10**6, 0)):
        with new_context() as context:
            module = parse_module("<product>", matrix_vector(kind).encode(), context).module
            options = Options(threshold, reassociate=False)
            remarks = run_pipeline(module, ("matrix-chain-order",), options).remarks
        assert [remark.kind for remark in remarks] == [Kind.MISSED] * count
        assert all("--no-reassociate" in remark.message for remark in remarks)


def test_products_of_nothing() -> None:
    text = matrix_vector("f32").replace("40x4x", "40x0x").replace("4x30x", "0x30x")
    after = rewrite(text)
    assert rewrite(after) == after
    assert_equal_results(text, after)


A, B = jax.ShapeDtypeStruct((60, 8), "float32"), jax.ShapeDtypeStruct((8, 60), "float32")
MANY_A, MANY_B = jax.ShapeDtypeStruct((3, 60, 8), "float32"), jax.ShapeDtypeStruct((3, 8, 60), "float32")


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (lambda a, b: jnp.diag(a @ b), (A, B)),
        (lambda a, b: jnp.diagonal(a @ b), (A, B)),
        (lambda a, b: jnp.diag(a @ b @ a @ b), (A, B)),
        (lambda a, b: jnp.trace(a @ b), (A, B)),
        (lambda a, b: jnp.einsum("ii->i", a @ b), (A, B)),
        (lambda a, b: jnp.einsum("ii->", a @ b), (A, B)),
        (lambda a, b: jnp.outer(a[:, 0], b[0]) @ b[1], (A, B)),
        (lambda a, b: (a @ b) @ ((a @ b) @ b[0]), (A, B)),
        (lambda a, b: jnp.diagonal(a @ b, axis1=1, axis2=2), (MANY_A, MANY_B)),
        (lambda a, b: jax.vmap(jnp.diag)(a @ b), (MANY_A, MANY_B)),
        (lambda a, b: jax.vmap(jnp.trace)(a @ b), (MANY_A, MANY_B)),
        (lambda a, b: jnp.einsum("bii->bi", a @ b), (MANY_A, MANY_B)),
    ],
)
def test_what_jax_writes(function: Callable[..., jax.Array], kinds: tuple[jax.ShapeDtypeStruct, ...]) -> None:
    """No matrix of 60 x 60 is left of diagonals, traces, outer and repeated products."""
    text = jax.jit(function).lower(*kinds).as_text()
    with new_context() as context:
        module = parse_module("<product>", text.encode(), context).module
        run_pipeline(module, ("normalise", "matrix-chain-order"), Options())
        after = serialise(module, "text").decode()
    assert "60x60xf32" not in after
    assert_equal_results(text, after)


def test_a_squared_product_stays() -> None:
    """Sums of squares in another order would be sums of terms that cancel: of nearly orthogonal rows, even negative."""
    text = jax.jit(lambda a, b: jnp.sqrt(jnp.sum((a @ b) ** 2, axis=1))).lower(A, B).as_text()
    assert plain(rewrite(text)) == plain(text)


def test_a_gather_that_is_no_diagonal() -> None:
    """Its places are joined the other way round: it reads (0, 1) twice."""
    text = """
func.func @main(%a: tensor<2x300xf32>, %b: tensor<300x2x7xf32>) -> tensor<7x2xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x300xf32>, tensor<300x2x7xf32>) -> tensor<2x2x7xf32>
  %1 = stablehlo.iota dim = 0 : tensor<2xi32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<2xi32>) -> tensor<1x2xi32>
  %3 = stablehlo.concatenate %2, %2, dim = 0 : (tensor<1x2xi32>, tensor<1x2xi32>) -> tensor<2x2xi32>
  %4 = "stablehlo.gather"(%0, %3) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1, 7>}> : (tensor<2x2x7xf32>, tensor<2x2xi32>) -> tensor<7x2xf32>
  return %4 : tensor<7x2xf32>
}
"""
    after = rewrite(text)
    assert after == plain(text)
    assert_equal_results(text, after)


def test_an_op_with_notes_is_not_read_through() -> None:
    kind = "tensor<40x30xf32>"
    note = 'mhlo.sharding = "{replicated}"'
    moved = f"%1 = stablehlo.transpose %0, dims = [0, 1] {{{note}}} : ({kind}) -> {kind}"
    text = matrix_vector("f32", f"%k0 = stablehlo.constant dense<2.0> : {kind}", moved)
    assert note in text and "40x30" in rewrite(text)
    assert "40x30" not in rewrite(text.replace(note, ""))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([2, 3, 7, 20, 100]), min_size=4, max_size=7))
def test_the_cost_that_is_asked_for_is_the_lowest(sizes: list[int]) -> None:
    writer = Writer(**{f"a{k}": f"{one}x{other}" for k, (one, other) in enumerate(pairwise(sizes))})
    text = writer.main(left_to_right(writer, *(f"a{k}" for k in range(len(sizes) - 1))))
    found = {cost: rewrite(text, Options(chain_cost=cost)) for cost in ("flops", "bytes", "both")}
    for after in found.values():
        assert_equal_results(text, after)
    operations = {cost: multiplications(after) for cost, after in found.items()}
    assert operations["flops"] <= operations["bytes"] * CLEARLY
    assert largest_between(found["bytes"]) <= largest_between(found["flops"]) * CLEARLY


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: jnp.diag(a @ b, 1),
        lambda a, b: jnp.sum(jnp.eye(60) * (a @ b), axis=1),
        lambda a, b: jnp.diag(jnp.exp(a @ b)),
    ],
)
def test_what_only_looks_like_a_diagonal(function: Callable[..., jax.Array]) -> None:
    text = jax.jit(function).lower(A, B).as_text()
    with new_context() as context:
        module = parse_module("<product>", text.encode(), context).module
        run_pipeline(module, ("normalise",), Options())
        before = serialise(module, "text").decode()
    assert rewrite(before) == before
