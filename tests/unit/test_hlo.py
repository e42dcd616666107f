"""What is read of optimised HLO."""

from __future__ import annotations

import pytest

from exla_opt.runtime.hlo import HloError, Shape, attribute, bits_of, parse_hlo

TEXT = r"""HloModule jit_f, is_scheduled=true, entry_computation_layout={(bf16[4,8]{1,0})->(f32[4]{0}, s4[])}

FileNames
1 "f (x) -> y {"

%fused (param_0: bf16[4,8], param_1: s32[]) -> f32[4] {
  %param_1 = s32[] parameter(1)
  %param_0 = bf16[4,8]{1,0:T(8,128)S(1)} parameter(0)
  ROOT %sum.1 = f32[4]{0} negate(%param_0), metadata={op_name="calls=%lie, {x}\" }" stack_frame_id=3}, backend_config={"a":"b"}
}

ENTRY %main.2 (x: bf16[4,8]) -> (f32[4], s4[]) {
  %x = bf16[4,8]{1,0} parameter(0)
  %c = c64[] constant((1, -2))
  %n = s32[] constant(0)
  %f = f32[4]{0} fusion(%x, /*index=1*/%n), kind=kLoop, calls=%fused, metadata={op_name="calls=%lie"}
  %s = s4[2,3]{1,0} constant({...})
  ROOT %t = (f32[4]{0}, /*index=1*/(s4[2,3]{1,0}, token[])) tuple(%f, %s), control-predecessors={%f}
}, execution_thread="main"
"""


def test_what_is_read_of_a_module() -> None:
    module = parse_hlo(TEXT)
    assert (module.entry, set(module.computations)) == ("main.2", {"fused", "main.2"})
    main = module.computations["main.2"]
    assert (list(main.instructions), main.root) == (["x", "c", "n", "f", "s", "t"], "t")
    fusion, result = main.instructions["f"], main.instructions["t"]
    assert (fusion.opcode, fusion.operands, fusion.shapes) == ("fusion", ("x", "n"), (Shape("f32", (4,)),))
    assert result.shapes == (Shape("f32", (4,)), Shape("s4", (2, 3)), Shape("token", ()))
    assert (result.operands, result.bytes) == (("f", "s"), 16 + 3)
    assert main.instructions["c"].operands == ()
    inner = module.computations["fused"].instructions
    assert [(each.opcode, each.number) for each in inner.values()][:2] == [("parameter", 1), ("parameter", 0)]
    assert inner["param_0"].shape == Shape("bf16", (4, 8))
    assert inner["sum.1"].attributes == ', backend_config={"a":"b"}'


def test_what_a_program_calls_its_ops_is_no_attribute() -> None:
    module = parse_hlo(TEXT)
    assert attribute(module.computations["main.2"].instructions["f"], "calls") == "fused"
    assert attribute(module.computations["fused"].instructions["sum.1"], "calls") == ""


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("pred", 8), ("bf16", 16), ("f32", 32), ("c128", 128), ("f8e4m3fn", 8), ("s4", 4), ("u64", 64), ("token", 0)],
)
def test_the_width_of_element_types(dtype: str, bits: int) -> None:
    assert bits_of(dtype) == bits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no entry computation"),
        ("HloModule x\n%f (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n", "no entry computation"),
        ("ENTRY %f () -> f32[] {\n  hello\n}\n", "line 2 is no instruction"),
        ("ENTRY %f () -> f32[] {\n  ROOT %x = f32[]\n}\n", "line 2 has no opcode"),
        ("ENTRY %f (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n", "no entry computation"),
    ],
)
def test_what_is_no_hlo(text: str, message: str) -> None:
    with pytest.raises(HloError, match=message):
        parse_hlo(text)
