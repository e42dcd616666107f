"""The communication for the weights of all layers, moved out of the loops over them.

The programs of tests/sharded/fully_sharded.py run with it, in test_sharding.
"""

from __future__ import annotations

import re

import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.collectives import talks
from exla_opt.ops.sent import bytes_sent
from exla_opt.sharding.out_of_loops import communicate_outside_loops

GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids"
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>"
STARTS = "tensor<i32>, tensor<i32>, tensor<i32>"
# Four layers: rows of states in a stack, gathered weights, and in the second loop the sums of their gradients. Each of
# two devices holds half of a weight's rows.
STEP = f"""
func.func @main(%ws: tensor<4x4x8xf32>, %x: tensor<ROWSx8xf32>, %table: tensor<2xi32>) -> (tensor<4x4x8xf32>, tensor<ROWSx8xf32>) {{
  %n = stablehlo.constant dense<4> : tensor<i32>
  %0 = stablehlo.constant dense<0> : tensor<i32>
  %1 = stablehlo.constant dense<1> : tensor<i32>
  %id = stablehlo.partition_id : tensor<ui32>
  %own = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
  %hs0 = stablehlo.constant dense<0.0> : tensor<4xROWSx8xf32>
  %ds0 = stablehlo.constant dense<0.0> : tensor<4x4x8xf32>
  %f:3 = stablehlo.while(%i = %0, %h = %x, %hs = %hs0) : tensor<i32>, tensor<ROWSx8xf32>, tensor<4xROWSx8xf32>
  cond {{ %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
         stablehlo.return %p : tensor<i1> }}
  do {{ %a = stablehlo.dynamic_slice %ws, %i, %0, %0, sizes = [1, 4, 8] : (tensor<4x4x8xf32>, {STARTS}) -> tensor<1x4x8xf32>
       %b = stablehlo.reshape %a : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
       %w = "stablehlo.all_gather"(%b) <{{all_gather_dim = 0 : i64, {CHANNEL.format(1)}, {GROUPS}}}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
       %g = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<ROWSx8xf32>, tensor<8x8xf32>) -> tensor<ROWSx8xf32>
       %k = stablehlo.reshape %h : (tensor<ROWSx8xf32>) -> tensor<1xROWSx8xf32>
       %u = stablehlo.dynamic_update_slice %hs, %k, %i, %0, %0 : (tensor<4xROWSx8xf32>, tensor<1xROWSx8xf32>, {STARTS}) -> tensor<4xROWSx8xf32>
       %j = stablehlo.add %i, %1 : tensor<i32>
       stablehlo.return %j, %g, %u : tensor<i32>, tensor<ROWSx8xf32>, tensor<4xROWSx8xf32> }}
  %r:3 = stablehlo.while(%i = %0, %d = %f#1, %ds = %ds0) : tensor<i32>, tensor<ROWSx8xf32>, tensor<4x4x8xf32>
  cond {{ %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
         stablehlo.return %p : tensor<i1> }}
  do {{ %l = stablehlo.subtract %n, %i : tensor<i32>
       %m = stablehlo.subtract %l, %1 : tensor<i32>
       %k = stablehlo.dynamic_slice %f#2, %m, %0, %0, sizes = [1, ROWS, 8] : (tensor<4xROWSx8xf32>, {STARTS}) -> tensor<1xROWSx8xf32>
       %h = stablehlo.reshape %k : (tensor<1xROWSx8xf32>) -> tensor<ROWSx8xf32>
       %a = stablehlo.dynamic_slice %ws, %m, %0, %0, sizes = [1, 4, 8] : (tensor<4x4x8xf32>, {STARTS}) -> tensor<1x4x8xf32>
       %b = stablehlo.reshape %a : (tensor<1x4x8xf32>) -> tensor<4x8xf32>
       %w = "stablehlo.all_gather"(%b) <{{all_gather_dim = 0 : i64, {CHANNEL.format(2)}, {GROUPS}}}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
       %g = stablehlo.dot_general %d, %w, contracting_dims = [1] x [1] : (tensor<ROWSx8xf32>, tensor<8x8xf32>) -> tensor<ROWSx8xf32>
       %q = stablehlo.dot_general %d, %h, contracting_dims = [0] x [0] : (tensor<ROWSx8xf32>, tensor<ROWSx8xf32>) -> tensor<8x8xf32>
       %s = "stablehlo.all_reduce"(%q) <{{{CHANNEL.format(3)}, {GROUPS}}}> ({{
         ^bb0(%y: tensor<f32>, %z: tensor<f32>):
           %t = stablehlo.add %y, %z : tensor<f32>
           stablehlo.return %t : tensor<f32>
       }}) : (tensor<8x8xf32>) -> tensor<8x8xf32>
       %v = stablehlo.transpose %s, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
       %four = stablehlo.constant dense<4> : tensor<i32>
       %at = stablehlo.multiply %own, %four : tensor<i32>
       %o = stablehlo.dynamic_slice %v, %at, %0, sizes = [4, 8] : (tensor<8x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
       %c = stablehlo.reshape %o : (tensor<4x8xf32>) -> tensor<1x4x8xf32>
       %e = stablehlo.dynamic_update_slice %ds, %c, %m, %0, %0 : (tensor<4x4x8xf32>, tensor<1x4x8xf32>, {STARTS}) -> tensor<4x4x8xf32>
       %j = stablehlo.add %i, %1 : tensor<i32>
       stablehlo.return %j, %g, %e : tensor<i32>, tensor<ROWSx8xf32>, tensor<4x4x8xf32> }}
  return %r#2, %r#1 : tensor<4x4x8xf32>, tensor<ROWSx8xf32>
}}"""
_MANY = "64"


def moved(text: str) -> tuple[int, int, int]:
    """The loops that talk, and the bytes sent before and after."""
    with new_context() as context:
        module = ir.Module.parse(text, context)
        before = bytes_sent(module)
        communicate_outside_loops(module)
        assert module.operation.verify()
        loops = [op for op in walk_functions(module.operation) if op.name == "stablehlo.while"]
        return sum(map(talks, loops)), before, bytes_sent(module)


def test_weights_are_gathered_once_and_gradients_summed_behind_the_loop() -> None:
    # Twice gathered weights and the sums, of four layers of 256 bytes; then only one of the two gathers.
    assert moved(STEP.replace("ROWS", _MANY)) == (0, 3 * 4 * 256, 2 * 4 * 256)


def test_a_barrier_around_a_recomputed_step_lets_gathers_pass() -> None:
    barrier = "%kept:2 = stablehlo.optimization_barrier %h, %b : tensor<ROWSx8xf32>, tensor<4x8xf32>"
    first, last = STEP.rsplit('%w = "stablehlo.all_gather"(%b)', 1)
    text = f'{first}{barrier}\n %w = "stablehlo.all_gather"(%kept#1){last}'.replace("%d, %h,", "%d, %kept#0,")
    assert moved(text.replace("ROWS", _MANY))[0] == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ROWS", "8"),
        ("%ws, %m", "%ws, %own"),
        ("tensor<4x4x8xf32>", "tensor<5x4x8xf32>"),
        ("%ds, %c, %m", "%ds, %c, %0"),
        ("%own, %four", "%m, %four"),
        ("add %y, %z", "subtract %y, %z"),
        ("(%b) <", "(%abs) <"),
        ("%r#2, %r#1", "%r#2, %f#1"),
    ],
    ids=[
        "the states are no larger than the weights",
        "each device reads another layer",
        "more layers than steps",
        "one layer is written in all steps",
        "the part is not the device's own",
        "no sum",
        "computed in the step",
        "the states are read by no loop",
    ],
)
def test_others_stay_in_the_loops(old: str, new: str) -> None:
    text = STEP.replace(old, new).replace("ROWS", _MANY)
    if "%abs" in new:
        text = re.sub(r"(%b = .*)", r"\1\n %abs = stablehlo.exponential %b : tensor<4x8xf32>", text)
    if "%f#1" in new:  # the loop backwards has no state of the one before, nor its stack
        text = text.replace("%f#2, %m", "%hs0, %m")
    loops, before, after = moved(text)
    assert loops == 2 and before == after


def test_sums_of_two_readings_of_a_bias_are_moved() -> None:
    # The gradient of what a layer reads twice: two sums over devices are added, one of them with dimensions of size 1.
    sum_of = STEP[STEP.index('%s = "stablehlo.all_reduce"') : STEP.index("%v = stablehlo.transpose")]
    other = sum_of.replace("%s =", "%s2 =").replace("(%q)", "(%q2)").replace("handle = 3", "handle = 4")
    text = STEP.replace(
        "%v = stablehlo.transpose %s,",
        f"""%q2 = stablehlo.negate %q : tensor<8x8xf32>
        {other}
        %s3 = stablehlo.reshape %s2 : (tensor<8x8xf32>) -> tensor<1x8x8xf32>
        %none = stablehlo.constant dense<0.0> : tensor<f32>
        %s4 = stablehlo.reduce(%s3 init: %none) applies stablehlo.add across dimensions = [0] : (tensor<1x8x8xf32>, tensor<f32>) -> tensor<8x8xf32>
        %both = stablehlo.add %s, %s4 : tensor<8x8xf32>
        %v = stablehlo.transpose %both,""",
    )
    assert moved(text.replace("ROWS", _MANY)) == (0, 4 * 4 * 256, 3 * 4 * 256)
