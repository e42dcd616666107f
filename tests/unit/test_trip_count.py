"""How often a loop runs: only where its condition asks for its own counter, and the counter's type holds its end."""

from __future__ import annotations

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.loops import trip_count
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import walk_functions


def trips(kind: str, start: int, step: int, bound: int, asks: str = "%j", goes: str = "%go") -> int | None:
    """The trips of the inner of two loops, whose condition asks for the number `asks` and returns `goes`."""
    text = f"""
    func.func @main() -> tensor<{kind}> {{
      %start = stablehlo.constant dense<{start}> : tensor<{kind}>
      %step = stablehlo.constant dense<{step}> : tensor<{kind}>
      %bound = stablehlo.constant dense<{bound}> : tensor<{kind}>
      %true = stablehlo.constant dense<true> : tensor<i1>
      %false = stablehlo.constant dense<false> : tensor<i1>
      %outer:2 = stablehlo.while(%i = %start, %k = %start) : tensor<{kind}>, tensor<{kind}>
        cond {{
          %go = stablehlo.compare LT, %i, %bound : (tensor<{kind}>, tensor<{kind}>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        }} do {{
          %inner:1 = stablehlo.while(%j = %start) : tensor<{kind}>
            cond {{
              %go = stablehlo.compare LT, {asks}, %bound : (tensor<{kind}>, tensor<{kind}>) -> tensor<i1>
              %both = stablehlo.and %go, {goes} : tensor<i1>
              stablehlo.return %both : tensor<i1>
            }} do {{
              %n = stablehlo.add %j, %step : tensor<{kind}>
              stablehlo.return %n : tensor<{kind}>
            }}
          %m = stablehlo.add %i, %step : tensor<{kind}>
          stablehlo.return %m, %inner#0 : tensor<{kind}>, tensor<{kind}>
        }}
      return %outer#1 : tensor<{kind}>
    }}
    """
    with new_context() as context, ir.Location.unknown(context):
        module = parse_module("<loops>", text.encode(), context).module
        inner = [op for op in walk_functions(module.operation) if op.name == "stablehlo.while"][1]
        return trip_count(inner)


@pytest.mark.parametrize(
    ("kind", "start", "step", "bound", "expected"),
    [
        ("i32", 0, 1, 7, 7),
        ("i32", 2, 3, 7, 2),
        ("i32", 9, 1, 7, 0),
        ("i8", 0, 1, 127, 127),
        ("i8", 0, 3, 127, None),  # 126 + 3 is below zero again
        ("ui8", 0, 3, 127, 43),
        ("ui8", 0, 2, 255, None),
        ("i64", 0, 2**40, 2**62, 2**22),
    ],
)
def test_a_counter_reaches_its_bound(kind: str, start: int, step: int, bound: int, expected: int | None) -> None:
    assert trips(kind, start, step, bound) == expected


@pytest.mark.parametrize("asks", ["%i", "%k"])
def test_another_loop_s_counter_is_not_its_own(asks: str) -> None:
    assert trips("i32", 0, 1, 7, asks) is None


@pytest.mark.parametrize(("goes", "expected"), [("%go", 7), ("%true", 7), ("%false", None)])
def test_a_condition_also_asks_for_itself_or_a_constant(goes: str, expected: int | None) -> None:
    assert trips("i32", 0, 1, 7, goes=goes) == expected
