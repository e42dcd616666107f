"""Dimensions that must be equal become smaller together, and the module stays valid."""

from math import prod
from pathlib import Path

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module, read_module
from exla_opt.ir.write import serialise
from exla_opt.resize.apply import resize
from exla_opt.resize.dimensions import Bound, Dimensions, Relation, consistent, read_dimensions
from tests.execute import random_arguments, run_module
from tests.unit.test_goldens import LIT, RUN

ROOT = Path(__file__).parents[2]


def shrunken(text: str, wanted: dict[int, int]) -> str:
    """The module with dimensions of these sizes made smaller, where nothing stands against it."""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        dimensions = read_dimensions(module)
        sizes = {n: wanted[dimensions.sizes[n]] for n in dimensions.free if dimensions.sizes[n] in wanted}
        resize(module, dimensions, consistent(dimensions, sizes))
        module.operation.verify()
        return str(module)


def main(arguments: str, body: str) -> str:
    """A module with one function."""
    return f"func.func @main({arguments} {{\n{body}\n}}"


# The function, the sizes wanted, and types that must come out.
CASES = {
    "dot": (
        main(
            "%x: tensor<60x4xf32>, %y: tensor<80x4xf32>) -> tensor<60x80xf32>",
            "%0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<60x4xf32>, tensor<80x4xf32>) -> tensor<60x80xf32>\nreturn %0 : tensor<60x80xf32>",
        ),
        {60: 6, 80: 5},
        ["%arg0: tensor<6x4xf32>", "%arg1: tensor<5x4xf32>", "-> tensor<6x5xf32>"],
    ),
    "reshape": (
        main(
            "%x: tensor<60x8xf32>) -> tensor<60x2x4xf32>",
            "%0 = stablehlo.reshape %x : (tensor<60x8xf32>) -> tensor<480xf32>\n%1 = stablehlo.reshape %0 : (tensor<480xf32>) -> tensor<60x2x4xf32>\nreturn %1 : tensor<60x2x4xf32>",
        ),
        {60: 6},
        ["(tensor<6x8xf32>) -> tensor<48xf32>", "(tensor<48xf32>) -> tensor<6x2x4xf32>"],
    ),
    "next token": (
        main(
            "%x: tensor<60xf32>) -> tensor<60xf32>",
            """%c = stablehlo.constant dense<0.0> : tensor<1xf32>
               %0 = stablehlo.slice %x [1:60] : (tensor<60xf32>) -> tensor<59xf32>
               %1 = stablehlo.concatenate %0, %c, dim = 0 : (tensor<59xf32>, tensor<1xf32>) -> tensor<60xf32>
               return %1 : tensor<60xf32>""",
        ),
        {60: 6, 59: 5},
        ["stablehlo.slice %arg0 [1:6] : (tensor<6xf32>) -> tensor<5xf32>", "-> tensor<6xf32>"],
    ),
    "a part holds the whole up": (
        main(
            "%x: tensor<60xf32>) -> tensor<30xf32>",
            "%0 = stablehlo.slice %x [0:60:2] : (tensor<60xf32>) -> tensor<30xf32>\nreturn %0 : tensor<30xf32>",
        ),
        {60: 6},
        ["stablehlo.slice %arg0 [0:59:2] : (tensor<59xf32>) -> tensor<30xf32>"],
    ),
    "constants keep their first elements": (
        main(
            ") -> (tensor<4xi32>, tensor<4xcomplex<f32>>, tensor<4xbf16>)",
            """%0 = stablehlo.constant dense<[3, 1, 4, 1]> : tensor<4xi32>
               %1 = stablehlo.constant dense<(1.0, 2.0)> : tensor<4xcomplex<f32>>
               %2 = stablehlo.constant dense<[3.0, 1.0, 4.0, 1.0]> : tensor<4xbf16>
               return %0, %1, %2 : tensor<4xi32>, tensor<4xcomplex<f32>>, tensor<4xbf16>""",
        ),
        {4: 2},
        ["dense<[3, 1]> : tensor<2xi32>", "dense<(1.000000e+00,2.000000e+00)> : tensor<2xcomplex<f32>>", "tensor<4xbf16>"],
    ),
    "a triangular solve is square": (
        main(
            "%a: tensor<20x20xf32>, %b: tensor<20x60xf32>) -> tensor<20x60xf32>",
            """%0 = stablehlo.cholesky %a, lower = true : tensor<20x20xf32>
               %1 = "stablehlo.triangular_solve"(%0, %b) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<20x20xf32>, tensor<20x60xf32>) -> tensor<20x60xf32>
               return %1 : tensor<20x60xf32>""",
        ),
        {20: 3, 60: 6},
        ["%arg0: tensor<3x3xf32>", "%arg1: tensor<3x6xf32>"],
    ),
    "what draws numbers is left alone": (
        main(
            "%s: tensor<2xui64>) -> tensor<60xui32>",
            "%0, %1 = stablehlo.rng_bit_generator %s, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<60xui32>)\nreturn %1 : tensor<60xui32>",
        ),
        {2: 1, 60: 6},
        ["tensor<2xui64>", "tensor<60xui32>"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_dimensions_become_smaller_together(name: str) -> None:
    text, wanted, expected = CASES[name]
    out = shrunken(text, wanted)
    for part in expected:
        assert part in out


def test_products_and_sums_follow_what_they_are_made_of() -> None:
    dimensions = Dimensions((), {0: 8, 1: 4, 2: 32, 3: 40}, frozenset(), (Relation(prod, (2,), (0, 1)), Relation(sum, (3,), (2, 0))), ())  # fmt: skip
    assert dimensions.free == [0, 1]
    assert consistent(dimensions, {0: 2, 1: 3, 2: 1, 3: 1}) == {0: 2, 1: 3, 2: 6, 3: 8}


def test_what_cannot_be_consistent_stays() -> None:
    two_products = Dimensions((), {0: 6, 1: 4, 2: 3, 3: 8}, frozenset(), (Relation(prod, (0, 1), (2, 3)),), ())
    assert consistent(two_products, {0: 2}) == two_products.sizes
    fixed = Dimensions((), {0: 6, 1: 4, 2: 24}, frozenset({2}), (Relation(prod, (2,), (0, 1)),), ())
    assert consistent(fixed, {0: 2, 1: 2}) == fixed.sizes
    part = Dimensions((), {0: 60, 1: 30}, frozenset({1}), (), (Bound(0, 1),))
    assert consistent(part, {0: 6, 1: 3}) == {0: 30, 1: 30}


@pytest.mark.parametrize("name", RUN)
def test_every_golden_stays_a_module(name: str) -> None:
    with new_context() as context:
        module = read_module(str(LIT / name), context).module
        for divisor in (3, 1000):
            dimensions = read_dimensions(module)
            sizes = consistent(dimensions, {n: max(dimensions.sizes[n] // divisor, 1) for n in dimensions.free})
            assert all(1 <= sizes[n] <= size or size == 0 for n, size in dimensions.sizes.items())
            resize(module, dimensions, sizes)
            module.operation.verify()
            parse_module(name, serialise(module, "bytecode"), context)


@pytest.mark.parametrize(
    "name", ["tensor-splitter/while-body.mlir", "tensor-splitter/gather.mlir", "normalise/calls.mlir"]
)
def test_a_smaller_module_runs(name: str) -> None:
    if not (LIT / name).exists():
        pytest.fail(f"there is no {name}")
    with new_context() as context:
        module = read_module(str(LIT / name), context).module
        dimensions = read_dimensions(module)
        sizes = consistent(dimensions, {n: max(dimensions.sizes[n] // 5, 1) for n in dimensions.free})
        assert sizes != dimensions.sizes
        resize(module, dimensions, sizes)
        text = str(module)
    assert len(run_module(text, random_arguments(text))) > 0
