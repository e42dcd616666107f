"""Integers that constants alone determine, and those that are not known."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import main_function, terminator
from exla_opt.ops.known import known_number

HEAD = """
  %shape = stablehlo.constant dense<[3, 8, 5]> : tensor<3xi32>
  %two = stablehlo.constant dense<2> : tensor<3xi32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %none = stablehlo.constant dense<0> : tensor<3xi32>
  %false = stablehlo.constant dense<false> : tensor<i1>
  %mixed = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
"""
ODD = """
  %rest = stablehlo.remainder %shape, %two : tensor<3xi32>
  %odd = stablehlo.compare NE, %rest, %none : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
"""
KNOWN = {
    "any": ODD
    + "%r = stablehlo.reduce(%odd init: %false) applies stablehlo.or across dimensions = [0] : (tensor<3xi1>, tensor<i1>) -> tensor<i1>",
    "a constant of truths": "%r = stablehlo.reduce(%mixed init: %false) applies stablehlo.or across dimensions = [0] : (tensor<3xi1>, tensor<i1>) -> tensor<i1>",
}
NUMBERS = {
    "sum": (
        "%r = stablehlo.reduce(%shape init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<3xi32>, tensor<i32>) -> tensor<i32>",
        16,
    ),
    "part": (
        "%p = stablehlo.slice %shape [1:2] : (tensor<3xi32>) -> tensor<1xi32>\n"
        "%r = stablehlo.reshape %p : (tensor<1xi32>) -> tensor<i32>",
        8,
    ),
    "joined and spread": (
        "%j = stablehlo.concatenate %shape, %two, dim = 0 : (tensor<3xi32>, tensor<3xi32>) -> tensor<6xi32>\n"
        "%b = stablehlo.broadcast_in_dim %j, dims = [1] : (tensor<6xi32>) -> tensor<2x6xi32>\n"
        "%r = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x6xi32>, tensor<i32>) -> tensor<i32>",
        44,
    ),
    "rest of a negative number": (
        "%n = stablehlo.constant dense<[-7, 7, 6]> : tensor<3xi32>\n%m = stablehlo.constant dense<[2, -2, 4]> : tensor<3xi32>\n"
        "%d = stablehlo.remainder %n, %m : tensor<3xi32>\n%q = stablehlo.divide %n, %m : tensor<3xi32>\n"
        "%s = stablehlo.add %d, %q : tensor<3xi32>\n"
        "%r = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<3xi32>, tensor<i32>) -> tensor<i32>",
        -1 + 1 + 2 - 3 - 3 + 1,
    ),
    "the largest of none": (
        "%e = stablehlo.constant dense<> : tensor<0xi32>\n"
        "%r = stablehlo.reduce(%e init: %zero) applies stablehlo.maximum across dimensions = [0] : (tensor<0xi32>, tensor<i32>) -> tensor<i32>",
        None,
    ),
    "four bits": (
        "%f = stablehlo.constant dense<[1, -2]> : tensor<2xi4>\n%w = stablehlo.convert %f : (tensor<2xi4>) -> tensor<2xi32>\n"
        "%r = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2xi32>, tensor<i32>) -> tensor<i32>",
        None,
    ),
    "above int64": (
        "%h = stablehlo.constant dense<18446744073709551615> : tensor<ui64>\n%r = stablehlo.convert %h : (tensor<ui64>) -> tensor<i32>",
        None,
    ),
    "one of several above int64": (
        "%h = stablehlo.constant dense<[18446744073709551615, 1]> : tensor<2xui64>\n"
        "%o = stablehlo.slice %h [1:2] : (tensor<2xui64>) -> tensor<1xui64>\n%p = stablehlo.reshape %o : (tensor<1xui64>) -> tensor<ui64>\n"
        "%r = stablehlo.convert %p : (tensor<ui64>) -> tensor<i32>",
        None,
    ),
    "of an argument": ("%r = stablehlo.add %zero, %x : tensor<i32>", None),
    "above its type": (
        "%big = stablehlo.constant dense<2147483647> : tensor<i32>\n%r = stablehlo.add %big, %big : tensor<i32>",
        None,
    ),
}


def known(body: str, kind: str) -> int | None:
    text = f"func.func @main(%x: tensor<i32>) -> tensor<{kind}> {{ {HEAD} {body}\n return %r : tensor<{kind}> }}"
    with new_context() as context:
        module = parse_module("<numbers>", text.encode(), context).module
        return known_number(terminator(main_function(module).regions[0].blocks[0]).operands[0])


@pytest.mark.parametrize("name", KNOWN)
def test_truths(name: str) -> None:
    assert known(KNOWN[name], "i1") == 1


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    body, expected = NUMBERS[name]
    assert known(body, "i32") == expected
