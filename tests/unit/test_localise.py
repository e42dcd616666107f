"""How values and ops get their local forms, apart from whole programs (test_sharding, which also runs them)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pytest
from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import main_function
from exla_opt.sharding.collectives import Collectives
from exla_opt.sharding.forms import FORMS
from exla_opt.sharding.localise import Form, Localiser, NoLocalForm, Results
from exla_opt.sharding.mesh import Axis, Mesh, Sharding

MESH = Mesh("mesh", (("d", 2),), (0, 1))
D = Axis("d", 2)
ROWS, COLUMNS = ((D,), ()), ((), (D,))


def localised(
    text: str, argument: Sharding, build_more: Callable[[Localiser, ir.Block], None], forms: Mapping[str, Form] = FORMS
) -> str:
    """The text of the function that is written for one of one argument.

    build_more: gets the function's block, after its argument.
    """
    with new_context() as context:
        module = ir.Module.parse(text, context)
        function = main_function(module)
        [value] = function.regions[0].blocks[0].arguments
        made = ir.Module.create(ir.Location.unknown())
        with ir.Location.unknown(), ir.InsertionPoint(made.body):
            localiser = Localiser(MESH, Collectives(MESH, 0), forms, lenient=True)
            kind = localiser.local_type(value, argument)
            new = ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get("main"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get([kind], [])),
                },
                regions=1,
            )
            block = new.regions[0].blocks.append(kind, arg_locs=[ir.Location.unknown()])
            localiser.local[value], localiser.shardings[value] = block.arguments[0], argument
            with ir.InsertionPoint(block):
                top = defining_op(build.scalar_i32(0))
                assert top is not None
                localiser.collectives.top = top
                build_more(localiser, function.regions[0].blocks[0])
                ir.Operation.create("func.return")
        assert made.operation.verify()
        return str(new)


SINE = """
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = stablehlo.sine %x : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}"""


@pytest.mark.parametrize(("before", "after"), [(ROWS, COLUMNS), (COLUMNS, ROWS)], ids=["later", "earlier"])
def test_an_axis_that_moves_to_another_dimension_is_gathered_before_it_cuts(before: Sharding, after: Sharding) -> None:
    def reshard(localiser: Localiser, block: ir.Block) -> None:
        localiser.resharded(block.arguments[0], after)

    text = localised(SINE, before, reshard)
    assert re.search(r'(%\w+) = "stablehlo.all_gather"\(%arg0\)', text)
    [kind] = re.findall(r"dynamic_slice %\d+, .* : \(tensor<4x4xf32>, .*\) -> tensor<(\w+)xf32>", text)
    assert kind == ("4x2" if after == COLUMNS else "2x4")


def _fails(localiser: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    """A form that gives up after it replaced an operand, as for indices of a device's own rows."""
    localiser.local[op.operands[0]] = build.zeros(localiser.local[op.operands[0]].type)
    raise NoLocalForm("for a test")


def test_what_is_computed_complete_reads_the_operands_as_they_were() -> None:
    text = localised(SINE, ROWS, lambda localiser, block: localiser.block(block), {"stablehlo.sine": _fails})
    [gathered] = re.findall(r'(%\w+) = "stablehlo.all_gather"\(%arg0\)', text)
    assert f"stablehlo.sine {gathered} : tensor<4x4xf32>" in text
    assert text.count("stablehlo.constant") == 1  # the top: nothing is left of what failed


def test_calls_that_stand_for_other_ops_are_not_computed_complete() -> None:
    text = SINE.replace("stablehlo.sine %x :", "stablehlo.custom_call @exla_opt.shift(%x) : (tensor<4x4xf32>) ->")
    with pytest.raises(NoLocalForm, match="for a test"):
        localised(text, ROWS, lambda localiser, block: localiser.block(block), {"stablehlo.custom_call": _fails})
