"""Putting a block back in order, and what becomes of one that has none."""

from __future__ import annotations

import pytest

from exla_opt.ir.context import new_context
from exla_opt.ir.order import CannotOrder, restore_order
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.passes import tensor_splitter
from exla_opt.passes.tensor_splitter import driver

PROGRAM = """func.func @main(%x: tensor<4096xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<4096xf32>) -> tensor<4096x4096xf32>
  %b = stablehlo.transpose %a, dims = [1, 0] : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %c = stablehlo.multiply %a, %b : tensor<4096x4096xf32>
  %d = stablehlo.exponential %c : tensor<4096x4096xf32>
  %e = stablehlo.dot_general %d, %c, contracting_dims = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %f = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<f32>
  return %f : tensor<f32>
}"""


def test_ops_that_need_each_other_have_no_order() -> None:
    with new_context() as context:
        module = parse_module("<program>", PROGRAM.encode(), context).module
        [function] = module.body.operations
        block = function.operation.regions[0].blocks[0]
        _, _, transpose, multiply, exponential, *_ = [view.operation for view in block.operations]
        exponential.move_before(multiply)
        restore_order(block, lambda op: False)
        assert module.operation.verify()
        multiply.operands[0] = exponential.results[0]
        with pytest.raises(CannotOrder):
            restore_order(block, lambda op: False)


def test_a_module_whose_loops_have_no_order_is_left_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CannotOrder

    monkeypatch.setattr(driver, "restore_order", refuse)
    with new_context() as context:
        module = parse_module("<program>", PROGRAM.encode(), context).module
        before = serialise(module, "text")
        remarks = tensor_splitter.run(module, Options(size_threshold=2**24))
        assert serialise(module, "text") == before
        assert {remark.code for remark in remarks} == {"EX306"}
