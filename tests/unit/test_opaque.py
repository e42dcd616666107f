"""Booleans that wait for a tensor: XLA must not fold them, whatever op computes the tensor."""

from __future__ import annotations

import pytest
from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ir.loops import after_input
from exla_opt.ir.opaque import always
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import main_function
from exla_opt.ir.write import serialise
from exla_opt.runtime.compile import compile_program

_PLACED = {
    "itself": "%y = stablehlo.tanh %x : tensor<4x8xf32>",
    "padded": """%t = stablehlo.tanh %x : tensor<4x8xf32>
        %y = stablehlo.pad %t, %zero, low = [3, 0], high = [1, 0], interior = [0, 0]
            : (tensor<4x8xf32>, tensor<f32>) -> tensor<8x8xf32>""",
    "padded and turned": """%t = stablehlo.tanh %x : tensor<4x8xf32>
        %p = stablehlo.pad %t, %zero, low = [0, 2], high = [0, 0], interior = [0, 0]
            : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x10xf32>
        %q = stablehlo.transpose %p, dims = [1, 0] : (tensor<4x10xf32>) -> tensor<10x4xf32>
        %y = stablehlo.reshape %q : (tensor<10x4xf32>) -> tensor<40xf32>""",
    "behind zeros": """%t = stablehlo.tanh %x : tensor<4x8xf32>
        %y = stablehlo.concatenate %zeros, %t, dim = 0 : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>""",
    "written into zeros": """%t = stablehlo.tanh %x : tensor<4x8xf32>
        %n = stablehlo.constant dense<1> : tensor<i32>
        %z = stablehlo.constant dense<0.0> : tensor<6x9xf32>
        %y = stablehlo.dynamic_update_slice %z, %t, %n, %n
            : (tensor<6x9xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<6x9xf32>""",
}

# What is read instead of the result would be no tensor to wait for: it has no elements, or is known before.
_NOT_PLACED = {
    "nothing is padded": """%t = stablehlo.tanh %x : tensor<4x8xf32>
        %e = stablehlo.slice %t [0:0, 0:8] : (tensor<4x8xf32>) -> tensor<0x8xf32>
        %y = stablehlo.pad %e, %zero, low = [3, 0], high = [0, 0], interior = [0, 0]
            : (tensor<0x8xf32>, tensor<f32>) -> tensor<3x8xf32>""",
    "nothing is joined": """%t = stablehlo.tanh %x : tensor<4x8xf32>
        %e = stablehlo.slice %x [0:0, 0:8] : (tensor<4x8xf32>) -> tensor<0x8xf32>
        %y = stablehlo.concatenate %e, %t, dim = 0 : (tensor<0x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>""",
    "zeros are written": """%t = stablehlo.tanh %x : tensor<4x8xf32>
        %n = stablehlo.constant dense<1> : tensor<i32>
        %y = stablehlo.dynamic_update_slice %t, %zeros, %n, %n
            : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>""",
    "an argument is written": """%t = stablehlo.tanh %x : tensor<4x8xf32>
        %n = stablehlo.constant dense<1> : tensor<i32>
        %e = stablehlo.slice %x [0:2, 0:8] : (tensor<4x8xf32>) -> tensor<2x8xf32>
        %y = stablehlo.dynamic_update_slice %t, %e, %n, %n
            : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>""",
}


def _with(placed: str) -> str:
    return f"""func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {{
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %zeros = stablehlo.constant dense<0.0> : tensor<2x8xf32>
        {placed}
        return %x : tensor<4x8xf32>
    }}"""


def _last_value(module: ir.Module) -> tuple[ir.Operation, ir.Value]:
    """The end of the function, and the result of the op before it."""
    block = main_function(module).regions[0].blocks[0]
    *_, made, end = block.operations
    return end.operation, made.operation.results[0]


def _ops_before(value: ir.Value) -> set[str]:
    """The names of all ops that a value is computed by."""
    names, read = set(), [value]
    while read:
        op = defining_op(read.pop())
        if op is not None:
            names.add(op.name)
            read += op.operands
    return names


@pytest.mark.parametrize("placed", _PLACED.values(), ids=_PLACED)
def test_xla_folds_no_boolean_that_waits(placed: str) -> None:
    with new_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(_with(placed))
        end, value = _last_value(module)
        with ir.InsertionPoint(end):
            number = build.convert(always(value), ir.F32Type.get())
            end.operands[0] = build.broadcast(number, [4, 8])
        text = compile_program(serialise(module, "text")).executable.hlo_modules()[0].to_string()
        assert "tanh(" in text


@pytest.mark.parametrize("placed", _PLACED.values(), ids=_PLACED)
def test_a_delayed_start_waits_too(placed: str) -> None:
    with new_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(_with(placed))
        end, value = _last_value(module)
        with ir.InsertionPoint(end):
            zeros = build.zeros(ir.RankedTensorType.get([1024, 1024], ir.F32Type.get()))
            delayed = after_input(zeros, value, 2**22)
        names = _ops_before(delayed)
        assert "stablehlo.tanh" in names
        assert not names & {"stablehlo.pad", "stablehlo.concatenate", "stablehlo.dynamic_update_slice"}


@pytest.mark.parametrize("placed", _NOT_PLACED.values(), ids=_NOT_PLACED)
def test_what_waits_reads_the_tensor_itself(placed: str) -> None:
    with new_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(_with(placed))
        end, value = _last_value(module)
        with ir.InsertionPoint(end):
            true = always(value)
        assert module.operation.verify()
        assert "stablehlo.tanh" in _ops_before(true)
