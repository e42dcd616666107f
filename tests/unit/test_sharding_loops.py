"""Collectives of loops: sums of a stack behind the loop that writes it, and equal ones that become one."""

from __future__ import annotations

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.factor import OpRule
from exla_opt.ops.rules import read_rules
from exla_opt.ops.sent import bytes_sent
from exla_opt.sharding.behind_loops import sum_behind_loops
from exla_opt.sharding.equal import merge_equal_collectives

GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids"
# The sums of what a step makes, each written into a stack; %res stands for what all layers leave for it.
STACK = f"""
func.func @main(%res: tensor<4x64x8xf32>) -> tensor<4x8x4xf32> {{
  %n = stablehlo.constant dense<4> : tensor<i32>
  %0 = stablehlo.constant dense<0> : tensor<i32>
  %1 = stablehlo.constant dense<1> : tensor<i32>
  %z = stablehlo.constant dense<0.0> : tensor<4x8x4xf32>
  %r:2 = stablehlo.while(%i = %0, %s = %z) : tensor<i32>, tensor<4x8x4xf32>
  cond {{ %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
         stablehlo.return %p : tensor<i1> }}
  do {{ %a = stablehlo.dynamic_slice %res, %i, %0, %0, sizes = [1, 4, 8] : (tensor<4x64x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x8xf32>
       %b = "stablehlo.all_reduce"(%a) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, {GROUPS}}}> ({{
         ^bb0(%x: tensor<f32>, %y: tensor<f32>):
           %t = stablehlo.add %x, %y : tensor<f32>
           stablehlo.return %t : tensor<f32>
       }}) : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
       %c = stablehlo.transpose %b, dims = [0, 2, 1] : (tensor<1x4x8xf32>) -> tensor<1x8x4xf32>
       %d = stablehlo.dynamic_update_slice %s, %c, %i, %0, %0 : (tensor<4x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x8x4xf32>
       %j = stablehlo.add %i, %1 : tensor<i32>
       stablehlo.return %j, %d : tensor<i32>, tensor<4x8x4xf32> }}
  return %r#1 : tensor<4x8x4xf32>
}}"""


def moved(text: str) -> bool:
    with new_context() as context:
        module = ir.Module.parse(text, context)
        before = bytes_sent(module)
        sum_behind_loops(module)
        assert module.operation.verify()
        assert bytes_sent(module) == before
        return "(tensor<4x8x4xf32>) -> tensor<4x8x4xf32>" in str(module)


def test_the_sum_of_a_stack_is_taken_behind_the_loop() -> None:
    assert moved(STACK)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("stablehlo.add %x, %y", "stablehlo.multiply %x, %y"),
        ("dense<4> : tensor<i32>", "dense<3> : tensor<i32>"),
        ("%s, %c, %i, %0, %0", "%s, %c, %0, %0, %0"),
        ("4x64x8xf32", "4x4x8xf32"),
        ("return %j, %d : ", "return %j, %e : "),
    ],
    ids=["no sum", "not all is written", "written twice", "nothing larger than the stack", "read by others"],
)
def test_other_sums_stay_where_they_are(old: str, new: str) -> None:
    text = STACK.replace(old, new)
    if "%e" in new:
        text = text.replace("%j = stable", "%e = stablehlo.add %d, %d : tensor<4x8x4xf32>\n %j = stable")
    assert not moved(text)


def test_a_sum_that_is_repeated_stays_for_it_is_smaller() -> None:
    text = STACK.replace("1x4x8xf32", "1x4x1xf32").replace("[1, 4, 8]", "[1, 4, 1]")
    assert not moved(text.replace("stablehlo.transpose %b", "stablehlo.broadcast_in_dim %b"))


@pytest.mark.parametrize(("dim", "groups", "left"), [(0, "[[0, 1]]", 1), (1, "[[0, 1]]", 2), (0, "[[1, 0]]", 2)])
def test_equal_collectives_become_one(dim: int, groups: str, left: int) -> None:
    def gather(name: str, channel: int, dim: int, groups: str) -> str:
        kind = "tensor<8x4xf32>" if dim == 0 else "tensor<4x8xf32>"
        handle = f"channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>"
        return (
            f'{name} = "stablehlo.all_gather"(%x) <{{all_gather_dim = {dim} : i64, {handle}, replica_groups = '
            f"dense<{groups}> : tensor<1x2xi64>, use_global_device_ids}}> : (tensor<4x4xf32>) -> {kind}"
        )

    kind = "tensor<8x4xf32>" if dim == 0 else "tensor<4x8xf32>"
    text = f"""
    func.func @main(%x: tensor<4x4xf32>) -> (tensor<8x4xf32>, {kind}) {{
      {gather("%0", 1, 0, "[[0, 1]]")}
      {gather("%1", 2, dim, groups)}
      return %0, %1 : tensor<8x4xf32>, {kind}
    }}"""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        merge_equal_collectives(module)
        assert module.operation.verify()
        assert str(module).count("stablehlo.all_gather") == left


def loop(carried: str, body: str) -> OpRule:
    """The rule of a loop of five trips that carries %c and %w."""
    text = f"""
    func.func @main(%x: tensor<64x8xf32>, %y: {carried}) -> (tensor<64x8xf32>, {carried}) {{
      %n = stablehlo.constant dense<5> : tensor<i32>
      %0 = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.constant dense<1> : tensor<i32>
      %r:3 = stablehlo.while(%i = %0, %c = %x, %w = %y) : tensor<i32>, tensor<64x8xf32>, {carried}
      cond {{ %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
             stablehlo.return %p : tensor<i1> }}
      do {{ {body}
           %j = stablehlo.add %i, %1 : tensor<i32>
           stablehlo.return %j, %d, %v : tensor<i32>, tensor<64x8xf32>, {carried} }}
      return %r#1, %r#2 : tensor<64x8xf32>, {carried}
    }}"""
    context = new_context()
    module = ir.Module.parse(text, context)
    [number] = [place for place, op in enumerate(walk_functions(module.operation)) if op.name == "stablehlo.while"]
    return read_rules(module)[number]


def gathered(name: str, value: str, dim: int) -> str:
    shape = [64, 8]
    shape[dim] *= 2
    kind = f"tensor<{shape[0]}x{shape[1]}xf32>"
    limits = "0:64, 0:8"
    return f"""
    %g{name} = "stablehlo.all_gather"({value}) <{{all_gather_dim = {dim} : i64, {GROUPS}}}> : (tensor<64x8xf32>) -> {kind}
    %{name} = stablehlo.slice %g{name} [{limits}] : ({kind}) -> tensor<64x8xf32>"""


def test_a_loop_that_talks_is_cut_along_what_it_does_not_move() -> None:
    rule = loop("tensor<8xf32>", gathered("d", "%c", 1) + "\n%v = stablehlo.abs %w : tensor<8xf32>")
    assert rule.at_result(1, 0) is not None
    assert rule.at_result(1, 1) is None


def test_a_loop_is_not_cut_where_it_would_send_as_much_again() -> None:
    other = gathered("v", "%w", 0)
    rule = loop("tensor<64x8xf32>", "%d = stablehlo.abs %c : tensor<64x8xf32>" + other)
    assert rule.at_result(1, 0) is None
    assert "stablehlo.all_gather would send as much again for each slice" in rule.why().text
