"""The op of one tile, and what a loop carries: the details that slicing and recombining alone do not show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from exla_opt.ir import build
from exla_opt.ops import rules as factors
from exla_opt.ops import tiling
from exla_opt.ops.rules import Factor
from tests.execute import defined_by


@pytest.fixture(autouse=True)
def in_context() -> Iterator[None]:
    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (sdy, chlo, stablehlo):
        dialect.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    with context, ir.Location.unknown():
        yield


class Example:
    """A function of one op and its return; `op` is the op, at which new ops are put."""

    def __init__(self, signature: str, line: str, *before: str):
        result = signature.rpartition("-> ")[2]
        body = "\n".join([*before, f'%r = {line} loc("here")', f"return %r : {result}"])
        self.module = ir.Module.parse(f"func.func @main{signature} {{\n{body}\n}}")
        operations = list(self.module.body.operations[0].operation.regions[0].blocks[0].operations)
        self.op = operations[-2].operation
        self.terminator = operations[-1]
        self.factors = factors.read_rules(self.module)[-2].factors

    def tile(
        self,
        factor: Factor,
        operands: list[tuple[int, int] | None],
        results: list[tuple[int, int] | None],
        start: int = 0,
    ) -> ir.Operation:
        """The op that makes the tile's first result. Ranges as for build_tile; whole operands are given, unsliced."""
        with ir.InsertionPoint(self.terminator), self.op.location:
            cut = [
                value
                if place is None or mapping is None
                else build.slice_along(value, mapping.dim, build.scalar_i32(start), place[1] - place[0])
                for value, mapping, place in zip(self.op.operands, factor.operands, operands, strict=True)
            ]
            made = tiling.build_tile(self.op, factor, cut, build.scalar_i32(start), operands, results)
        return defined_by(made[0])

    def text(self) -> str:
        assert self.module.operation.verify()
        return str(self.module)


def test_the_tile_keeps_the_location_of_its_op() -> None:
    example = Example("(%a: tensor<6x4xf32>) -> tensor<6x4xf32>", "stablehlo.tanh %a : tensor<6x4xf32>")
    made = example.tile(example.factors[0], [(0, 2)], [(0, 2)])
    assert str(made.location) == 'loc("here")'
    assert str(made.results[0].type) == "tensor<2x4xf32>"


def test_a_sharding_rule_is_dropped_for_it_tells_the_sizes_of_the_whole() -> None:
    rule = "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {i=6, j=4}, custom>"
    example = Example(
        "(%a: tensor<6x4xf32>) -> tensor<6x4xf32>",
        f"stablehlo.custom_call @mine(%a) {{{rule}}} : (tensor<6x4xf32>) -> tensor<6x4xf32>",
    )
    assert len(example.factors) == 2
    made = example.tile(example.factors[0], [(0, 2)], [(0, 2)])
    assert "sdy.sharding_rule" not in made.attributes
    assert "sdy.sharding_rule" in example.op.attributes


def test_a_slice_of_a_slice_starts_at_the_difference_of_the_ranges() -> None:
    example = Example(
        "(%a: tensor<9xf32>) -> tensor<5xf32>", "stablehlo.slice %a [2:7] : (tensor<9xf32>) -> tensor<5xf32>"
    )
    made = example.tile(example.factors[0], [(0, 4)], [(2, 4)])
    assert list(ir.DenseI64ArrayAttr(made.attributes["start_indices"])) == [2]
    assert list(ir.DenseI64ArrayAttr(made.attributes["limit_indices"])) == [4]
    assert made.verify()


PAD = (
    "(%a: tensor<4xf32>, %p: tensor<f32>) -> tensor<9xf32>",
    "stablehlo.pad %a, %p, low = [2], high = [3], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<9xf32>",
)


def test_a_pad_at_the_border_pads_what_the_operand_lacks() -> None:
    example = Example(*PAD)
    made = example.tile(example.factors[0], [(2, 3), None], [(0, 3)])
    assert list(ir.DenseI64ArrayAttr(made.attributes["edge_padding_low"])) == [2]
    assert list(ir.DenseI64ArrayAttr(made.attributes["edge_padding_high"])) == [0]
    assert made.verify()


def test_a_pad_beyond_the_operand_is_the_padding_value() -> None:
    example = Example(*PAD)
    with ir.InsertionPoint(example.terminator), example.op.location:
        (made,) = tiling.build_tile(
            example.op, example.factors[0], list(example.op.operands), build.scalar_i32(7), [(0, 0), None], [(0, 2)]
        )
    assert defined_by(made).name == "stablehlo.broadcast_in_dim"
    assert str(made.type) == "tensor<2xf32>"


def test_an_iota_across_the_cut_needs_no_offset() -> None:
    example = Example("() -> tensor<6x4xi32>", "stablehlo.iota dim = 1 : tensor<6x4xi32>")
    assert example.tile(example.factors[0], [], [(0, 2)], start=3).name == "stablehlo.iota"
    assert example.tile(example.factors[1], [], [(0, 2)], start=3).name == "stablehlo.add"


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("f32", "1.5"), ("i1", "true"), ("complex<f32>", "(1.5, -2.0)"), ("bf16", "0x7FC0"), ("i4", "-3")],
)
def test_a_constant_is_made_again_in_the_type_of_the_tile(dtype: str, value: str) -> None:
    example = Example(f"() -> tensor<6x4x{dtype}>", f"stablehlo.constant dense<{value}> : tensor<6x4x{dtype}>")
    made = example.tile(example.factors[1], [], [(0, 3)])
    assert str(made.results[0].type) == f"tensor<6x3x{dtype}>"
    before, after = (str(op.clone(ip=False)).split("dense<")[1].rpartition(" : ")[0] for op in (example.op, made))
    assert before == after


REDUCE = "stablehlo.reduce(%a init: {init}) applies stablehlo.{name} across dimensions = [1] : (tensor<6x4x{t}>, tensor<{t}>) -> tensor<6x{t}>"


def reduce_of(name: str, dtype: str, init: str) -> Example:
    signature = f"(%a: tensor<6x4x{dtype}>, %i: tensor<{dtype}>) -> tensor<6x{dtype}>"
    constant = f"%c = stablehlo.constant dense<{init}> : tensor<{dtype}>" if init else ""
    return Example(signature, REDUCE.format(init="%c" if init else "%i", name=name, t=dtype), constant)


@pytest.mark.parametrize(
    ("name", "dtype", "init", "start"),
    [
        ("add", "f32", "1.5", "-0.000000e+00"),
        ("add", "f32", "", "-0.000000e+00"),
        ("add", "f32", "0.0", "0.000000e+00"),
        ("multiply", "f32", "1.5", "1.000000e+00"),
        ("add", "i32", "3", "0"),
        ("multiply", "i32", "3", "1"),
        ("xor", "i32", "3", "0"),
        ("xor", "i1", "true", "false"),
        ("maximum", "f32", "1.5", "1.500000e+00"),
        ("and", "i32", "6", "6"),
        ("add", "complex<f32>", "(1.5, 0.0)", "(-0.000000e+00,0.000000e+00)"),
    ],
)
def test_a_partial_reduction_starts_so_that_the_init_counts_once(name: str, dtype: str, init: str, start: str) -> None:
    example = reduce_of(name, dtype, init)
    reducing = example.factors[1]
    made = example.tile(reducing, [(0, 2), None], [None])
    assert f"dense<{start}>" in str(defined_by(made.operands[1]).clone(ip=False))
    with ir.InsertionPoint(example.terminator):
        (state,) = tiling.initial_state(example.op, reducing)
    assert defined_by(state).operands[0] == example.op.operands[1]


@pytest.mark.parametrize(
    ("example", "which", "wide"),
    [
        (("(%a: tensor<6x4xbf16>, %b: tensor<4x5xbf16>) -> tensor<6x5xbf16>",
          "stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<6x4xbf16>, tensor<4x5xbf16>) -> tensor<6x5xbf16>"), 2, True),
        (("(%a: tensor<6x4xf32>, %b: tensor<4x5xf32>) -> tensor<6x5xf32>",
          "stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<6x5xf32>"), 2, False),
        (("(%a: tensor<6x4xbf16>, %b: tensor<4x5xbf16>) -> tensor<6x5xbf16>",
          "stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<6x4xbf16>, tensor<4x5xbf16>) -> tensor<6x5xbf16>"), 0, False),
        (("(%a: tensor<6x4xf16>, %i: tensor<f16>) -> tensor<6xf16>", REDUCE.format(init="%i", name="add", t="f16")), 1, True),
        (("(%a: tensor<6x4xf16>, %i: tensor<f16>) -> tensor<6xf16>", REDUCE.format(init="%i", name="maximum", t="f16")), 1, False),
        (("(%a: tensor<6x4xi8>, %i: tensor<i8>) -> tensor<6xi8>", REDUCE.format(init="%i", name="add", t="i8")), 1, False),
    ],
)  # fmt: skip
def test_narrow_floats_are_summed_in_f32(example: tuple[str, str], which: int, wide: bool) -> None:
    made = Example(*example)
    factor = made.factors[which]
    assert tiling.is_widened(made.op, factor) is wide
    places = [None if mapping is None else (0, 2) for mapping in factor.operands]
    results = [None if mapping is None else (0, 2) for mapping in factor.results]
    dtype = str(ir.RankedTensorType(made.tile(factor, places, results).results[0].type).element_type)
    own = str(ir.RankedTensorType(made.op.results[0].type).element_type)
    assert dtype == ("f32" if wide else own)
    if wide:
        with ir.InsertionPoint(made.terminator):
            state = tiling.initial_state(made.op, factor)
            (result,) = tiling.finish(
                made.op, factor, tiling.combine(made.op, factor, state, state, build.scalar_i32(1))
            )
        assert state[0].type == tiling.state_types(made.op, factor)[0]
        assert result.type == made.op.results[0].type


def test_combining_runs_the_body_on_whole_tensors_state_first() -> None:
    example = reduce_of("maximum", "f32", "0xFF800000")
    with ir.InsertionPoint(example.terminator), example.op.location:
        first, second = build.zeros(example.op.results[0].type), build.splat(example.op.results[0].type, 1)
        (made,) = tiling.combine(example.op, example.factors[1], [first], [second], build.scalar_i32(1))
    combined = defined_by(made)
    assert combined.name == "stablehlo.maximum"
    assert list(combined.operands) == [first, second]
    assert str(made.type) == "tensor<6xf32>"
    assert "reduce" in example.text()


def test_an_update_that_is_cut_is_clamped_as_the_whole_is() -> None:
    example = Example(
        "(%a: tensor<9xf32>, %u: tensor<6xf32>, %i: tensor<i64>) -> tensor<9xf32>",
        "stablehlo.dynamic_update_slice %a, %u, %i : (tensor<9xf32>, tensor<6xf32>, tensor<i64>) -> tensor<9xf32>",
    )
    (chain,) = example.factors
    made = example.tile(chain, [None, (0, 2), None], [None], start=4)
    moved = defined_by(made.operands[2])
    assert moved.name == "stablehlo.add"
    clamped = defined_by(moved.operands[0])
    assert clamped.name == "stablehlo.clamp" and "dense<3>" in str(defined_by(clamped.operands[2]).clone(ip=False))
    assert tiling.combine(example.op, chain, [], [made.results[0]], example.op.operands[0]) == [made.results[0]]
    assert tiling.initial_state(example.op, chain) == [example.op.operands[0]]
    assert not tiling.reassociates(example.op, chain)


@pytest.mark.parametrize(
    ("name", "dtype", "rounds"),
    [("add", "f32", True), ("multiply", "f64", True), ("maximum", "f32", False), ("add", "i32", False)],
)
def test_only_sums_and_products_of_floats_round_otherwise_in_pieces(name: str, dtype: str, rounds: bool) -> None:
    example = reduce_of(name, dtype, "")
    kept, reduced = example.factors
    assert tiling.reassociates(example.op, reduced) is rounds
    assert tiling.reassociates(example.op, kept) is rounds, "the init, which is unknown, is added last"
    identity = {"add": "0", "multiply": "1", "maximum": "2"}[name] + ("" if dtype == "i32" else ".0")
    known = reduce_of(name, dtype, identity)
    assert not tiling.reassociates(known.op, known.factors[0])
