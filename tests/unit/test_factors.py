"""Every trusted op and every rule of our own, run in slices: slice -> run -> recombine = the whole.

A row is one op: its name, operand and result types, attributes, and the factors that it must have. A factor is written
`i1` (independent, dimension 1 of result 0), `r0.1` (reducing, dimension 1 of operand 0) or `c2.0` (chained,
dimension 0 of operand 2, the first that has it). An operand is a type with what to fill it with:
`6x4xf32` random, `~special` with NaN, infinities and -0, `~spd` positive definite, `~3:9` integers in [3, 9),
`=1.5` a constant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.extend import backend
from jaxlib import lapack, xla_client
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from exla_opt.analysis import factors
from exla_opt.analysis.factors import Factor, Kind, OpRule, Slot
from exla_opt.ir import build
from exla_opt.passes.tensor_splitter import accumulate, tile

DTYPES: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "i4": ml_dtypes.int4, "ui8": np.uint8, "ui32": np.uint32,
    "ui64": np.uint64, "i1": np.bool_, "complex<f32>": np.complex64, "complex<f64>": np.complex128,
}  # fmt: skip
TOLERANCE = {"f64": 1e-11, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2, "complex<f32>": 2e-5, "complex<f64>": 1e-11}
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 1.0, -1.0]


@dataclass(frozen=True)
class Row:
    """One op and what must be true of it. close: the results may differ by rounding."""

    name: str
    operands: str
    results: str
    expected: str
    attributes: str = ""
    region: str = ""
    close: bool = False
    note: str = ""
    op_rules: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> str:
        return "-".join(filter(None, (self.name, self.operands.replace(" ", ","), self.note)))

    @property
    def text(self) -> str:
        """The module: one function, its last op before the return is the one in question."""
        arguments, lines, names = [], [], []
        for index, spec in enumerate(self.operands.split()):
            names.append(f"%a{index}")
            kind, _, number = spec.partition("=")
            if number:
                lines.append(f"%a{index} = stablehlo.constant dense<{number}> : tensor<{kind}>")
            else:
                arguments.append(f"%a{index}: {_tensor(spec)}")
        types = ", ".join(_tensor(spec) for spec in self.operands.split())
        results = [_tensor(spec) for spec in self.results.split()]
        made = f"%r:{len(results)}" if len(results) > 1 else "%r"
        read = ", ".join(f"%r#{k}" for k in range(len(results))) if len(results) > 1 else "%r"
        region = f" ({{{self.region}}})" if self.region else ""
        attributes = f" {{{self.attributes}}}" if self.attributes else ""
        lines.append(f'{made} = "{self.name}"({", ".join(names)}){region}{attributes} : ({types}) -> ({", ".join(results)})')
        body = "\n  ".join(lines)
        returned = ", ".join(results)
        return f"func.func @main({', '.join(arguments)}) -> ({returned}) {{\n  {body}\n  return {read} : {returned}\n}}"


def _tensor(spec: str) -> str:
    return f"tensor<{re.split('[~=]', spec)[0]}>"


def new_context() -> ir.Context:
    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (sdy, chlo, stablehlo):
        dialect.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    return context


def split_spec(spec: str) -> tuple[list[int], str]:
    """`6x4xf32` -> [6, 4], "f32"."""
    found = re.fullmatch(r"((?:\d+x)*)(.+)", re.split("[~=]", spec)[0])
    assert found
    return [int(size) for size in found[1].split("x") if size], found[2]


def fill(spec: str, random: np.random.Generator) -> np.ndarray:
    shape, dtype = split_spec(spec)
    kind = DTYPES[dtype]
    how = spec.partition("~")[2]
    if ":" in how:
        low, high = map(int, how.split(":"))
        return random.integers(low, high, shape).astype(kind)
    if dtype == "i1":
        return random.random(shape) < 0.5
    if how == "bits":
        return random.integers(0, 2**31, shape).astype(kind)
    if dtype.lstrip("u").startswith("i"):
        return random.integers(0 if dtype.startswith("u") else -4, 5, shape).astype(kind)
    values = random.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * random.standard_normal(shape)
    if how == "positive":
        values = np.abs(values) + 0.5
    if how == "spd":
        values = values @ np.conj(np.swapaxes(values, -1, -2)) + shape[-1] * np.eye(shape[-1])
    if how == "triangle":
        values = values + 4 * np.eye(shape[-1])
    if how == "ties":
        values = np.round(values)
    if how in ("special", "ties"):
        mask = random.random(shape) < (0.5 if how == "special" else 0.2)
        with np.errstate(invalid="ignore"):
            values = np.where(mask, random.choice(SPECIAL, shape), values)
    return np.asarray(values).astype(kind)


def pieces(size: int) -> list[tuple[int, int]]:
    """n - 3, 1 and 2 indices; for fewer than four, one and the rest."""
    borders = [0, size - 3, size - 2, size] if size > 3 else [0, 1, size]
    return [(a, b) for a, b in zip(borders, borders[1:], strict=False) if b > a]


def clip(slot: Slot | None, low: int, high: int) -> tuple[int, int] | None:
    """Which of the factor's indices [low, high) the tensor has, counted from low; an empty range is (0, 0)."""
    if slot is None:
        return None
    first, last = max(low, slot.low), min(high, slot.low + slot.length)
    return (first - low, last - low) if first < last else (0, 0)


def cut(value: ir.Value, slot: Slot | None, low: int, place: tuple[int, int] | None) -> ir.Value:
    if slot is None or place is None or place == (0, 0):
        return value
    start = (low + place[0] - slot.low) * slot.inner
    return build.slice_along(value, slot.dim, build.scalar_i32(start), (place[1] - place[0]) * slot.inner)


def recombine(op: ir.Operation, factor: Factor) -> list[ir.Value]:
    """The op's results, made in slices along one factor: straight-line code at the insertion point."""
    state: list[ir.Value] = []
    if factor.kind is not Kind.INDEPENDENT:
        state = accumulate.initial_state(op, factor)
    parts: list[list[ir.Value]] = [[] for _ in op.results]
    for low, high in pieces(factor.size):
        before = [clip(slot, low, high) for slot in factor.operands]
        after = [clip(slot, low, high) for slot in factor.results]
        if any(place == (0, 0) for place in after):
            continue
        operands = [cut(*given) for given in zip(op.operands, factor.operands, [low] * len(before), before, strict=True)]
        for index, value in zip(factor.chained, state, strict=False):
            operands[index] = value
        made = tile.build_tile(op, factor, operands, build.scalar_i32(low), before, after)
        for value in made:
            assert value.owner.operation.verify()
        if factor.kind is Kind.INDEPENDENT:
            for part, value in zip(parts, made, strict=True):
                part.append(value)
        else:
            state = accumulate.combine(op, factor, state, made)
    if factor.kind is not Kind.INDEPENDENT:
        return accumulate.finish(op, factor, state)
    joined = []
    for part, slot, result in zip(parts, factor.results, op.results, strict=True):
        assert slot is not None
        joined.append(stablehlo.ConcatenateOp(part, slot.dim, results=[result.type]).result)
    return joined


def last_op(module: ir.Module) -> tuple[ir.Operation, ir.Operation]:
    """The op in question, and the function's return."""
    function = module.body.operations[0].operation
    operations = [view.operation for view in function.regions[0].blocks[0].operations]
    return operations[-2], operations[-1]


def read_rule(module: ir.Module, op_rules: tuple[tuple[str, str], ...] = ()) -> OpRule:
    return factors.read_rules(module, op_rules)[-2]


def letters(factor: Factor) -> str:
    """The factor in the words of a row."""
    if factor.kind is Kind.INDEPENDENT:
        slot = factor.results[0]
        assert slot is not None
        return f"i{slot.dim}"
    index, slot = next((k, s) for k, s in enumerate(factor.operands) if s is not None)
    return f"{factor.kind.value[0]}{index}.{slot.dim}"


def compile_and_run(module: ir.Module, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with jax.enable_x64(True):
        client = backend.get_backend("cpu")
        device = client.local_devices()[0]
        executable = client.compile_and_load(str(module), [device], xla_client.CompileOptions())
        buffers = [jax.device_put(array, device) for array in inputs]
        outputs = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [np.asarray(shards[0]) for shards in outputs]


def assert_same(expected: np.ndarray, found: np.ndarray, close: bool, dtype: str, what: str) -> None:
    assert expected.shape == found.shape and expected.dtype == found.dtype, what
    if expected.dtype.kind not in "fcV" and not dtype.startswith(("bf", "f8", "f16")):
        np.testing.assert_array_equal(expected, found, err_msg=what)
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = expected.astype(wide), found.astype(wide)
    if close:
        scale = np.nanmax(np.abs(left), initial=1.0, where=np.isfinite(left))
        np.testing.assert_allclose(right, left, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale, err_msg=what)
        return
    np.testing.assert_array_equal(left, right, err_msg=what)
    if wide is np.float64:
        zero = left == 0
        np.testing.assert_array_equal(np.signbit(left)[zero], np.signbit(right)[zero], err_msg=what)


def check(row: Row) -> None:
    """Run the row's op whole, and in slices along every factor, all in one module; compare."""
    context = new_context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(row.text)
        rule = read_rule(module, row.op_rules)
        assert " ".join(sorted(map(letters, rule.factors))) == row.expected
        op, terminator = last_op(module)
        outputs = list(op.results)
        with ir.InsertionPoint(terminator), op.location:
            for factor in rule.factors:
                outputs += recombine(op, factor)
            ir.Operation.create("func.return", operands=outputs)
        terminator.erase()
        function = module.body.operations[0].operation
        old = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        kind = ir.FunctionType.get(old.inputs, [value.type for value in outputs])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        assert module.operation.verify()
        random = np.random.default_rng(7)
        inputs = [fill(spec, random) for spec in row.operands.split() if "=" not in spec]
        found = compile_and_run(module, inputs)
    count = len(row.results.split())
    for number, factor in enumerate(rule.factors, 1):
        for result, spec in enumerate(row.results.split()):
            close = row.close and split_spec(spec)[1] in TOLERANCE
            what = f"{row.id}: result {result} along {letters(factor)}"
            assert_same(found[result], found[number * count + result], close, split_spec(spec)[1], what)


def body(dtype: str, lines: str, count: int = 1, dtypes: str = "") -> str:
    """The region of a reduce: arguments %x, %y (or %x0, %y0, %x1, ...), the last line is what is returned."""
    kinds = dtypes.split() or [dtype] * count
    names = [f"%{letter}{index if count > 1 else ''}" for letter in "xy" for index in range(count)]
    arguments = ", ".join(f"{name}: tensor<{kind}>" for name, kind in zip(names, kinds * 2, strict=True))
    *steps, returned = [line.strip() for line in lines.split(";")]
    types = ", ".join(f"tensor<{kind}>" for kind in kinds)
    return f"^bb0({arguments}):\n" + "\n".join(steps) + f'\n"stablehlo.return"({returned}) : ({types}) -> ()\n'


def monoid(name: str, dtype: str) -> str:
    return body(dtype, f"%z = stablehlo.{name} %x, %y : tensor<{dtype}>; %z")


def ints(name: str, *numbers: int) -> str:
    return f"{name} = array<i64{':' if numbers else ''} {', '.join(map(str, numbers))}>"


def unary(names: str, spec: str, close: bool = False, dialect: str = "stablehlo", result: str = "") -> list[Row]:
    rank = len(split_spec(spec)[0])
    expected = " ".join(f"i{dim}" for dim in range(rank))
    return [Row(f"{dialect}.{name}", spec, result or spec.partition("~")[0], expected, close=close) for name in names.split()]


def binary(names: str, spec: str, dialect: str = "stablehlo") -> list[Row]:
    return [Row(f"{dialect}.{name}", f"{spec} {spec}", spec.partition("~")[0], "i0 i1") for name in names.split()]


POINTWISE = [
    *unary(
        "abs cbrt ceil cosine exponential exponential_minus_one floor log log_plus_one logistic negate round_nearest_afz "
        "round_nearest_even rsqrt sign sine sqrt tan tanh",
        "6x4xf32~special",
    ),
    *unary("exponential tanh log sqrt sine", "6x4xf64~special"),
    *unary("exponential tanh abs negate", "6x4xbf16~special"),
    *unary("exponential logistic floor", "6x4xf16~special"),
    *unary("exponential negate sine", "6x4xcomplex<f32>"),
    *unary("abs negate sign not popcnt count_leading_zeros", "6x4xi32"),
    *unary("not", "6x4xi1"),
    *unary("is_finite", "6x4xf32~special", result="6x4xi1"),
    *unary("real imag abs", "6x4xcomplex<f32>", result="6x4xf32"),
    *binary("add atan2 divide maximum minimum multiply power remainder subtract", "6x4xf32~special"),
    *binary("add divide maximum", "6x4xbf16~special"),
    *binary("add multiply minimum", "6x4xf64~special"),
    *binary("add multiply divide", "6x4xcomplex<f32>"),
    *binary("add multiply maximum and or xor", "6x4xi32"),
    *binary("shift_left shift_right_arithmetic shift_right_logical", "6x4xi32~0:9"),
    *binary("and or xor", "6x4xi1"),
    Row("stablehlo.complex", "6x4xf32 6x4xf32", "6x4xcomplex<f32>", "i0 i1"),
    Row("stablehlo.reduce_precision", "6x4xf32~special", "6x4xf32", "i0 i1", "exponent_bits = 5 : i32, mantissa_bits = 7 : i32"),
    *[
        Row("stablehlo.convert", f"6x4x{source}", f"6x4x{target}", "i0 i1", note=f"to-{target}")
        for source, target in (
            ("f32", "bf16"), ("bf16", "f32"), ("f32", "i32"), ("i32", "f64"), ("f32", "i1"), ("f32", "f8E4M3FN"),
            ("i32", "complex<f32>"), ("f32", "i4"),
        )
    ],
    *[
        Row(
            "stablehlo.compare", "6x4xf32~special 6x4xf32~special", "6x4xi1", "i0 i1", note=f"{direction}-{kind}",
            attributes=f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
            f"compare_type = #stablehlo<comparison_type {kind}>",
        )
        for direction, kind in (("EQ", "FLOAT"), ("NE", "FLOAT"), ("LT", "FLOAT"), ("GE", "TOTALORDER"))
    ],
    Row("stablehlo.select", "6x4xi1 6x4xf32 6x4xf32", "6x4xf32", "i0 i1"),
    Row("stablehlo.select", "i1 6x4xf32 6x4xf32", "6x4xf32", "i0 i1"),
    Row("stablehlo.clamp", "6x4xf32 6x4xf32~special 6x4xf32", "6x4xf32", "i0 i1"),
    Row("stablehlo.clamp", "f32 6x4xf32~special f32", "6x4xf32", "i0 i1"),
    Row("stablehlo.clamp", "f32 6x4xf32 6x4xf32", "6x4xf32", "i0 i1") if False else
    Row("stablehlo.bitcast_convert", "6x4xf32", "6x4xi32", "i0 i1"),
    Row("stablehlo.bitcast_convert", "6x4xf32", "6x4x2xi16", "i0 i1", note="split"),
    Row("stablehlo.bitcast_convert", "6x4xi8", "6xf32", "i0", note="joined"),
    Row(
        "stablehlo.map", "6x4xf32 6x4xf32", "6x4xf32", "i0 i1", ints("dimensions", 0, 1),
        body("f32", "%s = stablehlo.add %x, %y : tensor<f32>; %s"),
    ),
    Row("stablehlo.optimization_barrier", "6x4xf32", "6x4xf32", "i0 i1"),
    *unary(
        "acos acosh asin asinh atan atanh bessel_i1e cosh digamma erf erf_inv erfc lgamma sinh square tan",
        "6x4xf32~special", dialect="chlo",
    ),
    *unary("erf square lgamma", "6x4xf64", dialect="chlo"),
    *unary("erf square", "6x4xbf16", dialect="chlo"),
    *unary("conj", "6x4xcomplex<f32>", dialect="chlo"),
    *unary("is_inf is_neg_inf is_pos_inf", "6x4xf32~special", dialect="chlo", result="6x4xi1"),
    *binary("next_after zeta", "6x4xf32~positive", "chlo"),
    *binary("polygamma", "6x4xf32~1:4", "chlo"),
    *[
        Row(f"chlo.broadcast_{name}", "6x4xf32 4xf32", "6x4xf32", "i0 i1")
        for name in "add atan2 divide maximum minimum multiply next_after polygamma power remainder subtract".split()
    ],
    *[
        Row(f"chlo.broadcast_{name}", "6x4xi32 4xi32", "6x4xi32", "i0 i1")
        for name in "and or xor shift_left shift_right_arithmetic shift_right_logical".split()
    ],
    Row("chlo.broadcast_add", "6x1xf32 1x4xf32", "6x4xf32", "i0 i1"),
    Row("chlo.broadcast_zeta", "6x4xf32~positive 4xf32~positive", "6x4xf32", "i0 i1"),
    Row("chlo.broadcast_complex", "6x4xf32 4xf32", "6x4xcomplex<f32>", "i0 i1"),
    Row("chlo.broadcast_select", "6x4xi1 4xf32 6x4xf32", "6x4xf32", "i0 i1"),
    Row(
        "chlo.broadcast_compare", "6x4xf32 4xf32", "6x4xi1", "i0 i1",
        "comparison_direction = #chlo<comparison_direction LT>",
    ),
    Row("chlo.constant_like", "6x4xf32", "6x4xf32", "i0 i1", "value = 2.5 : f32"),
]  # fmt: skip

SHAPES = [
    Row("stablehlo.broadcast_in_dim", "f32", "6x4xf32", "i0 i1", ints("broadcast_dimensions")),
    Row("stablehlo.broadcast_in_dim", "6xf32", "6x4xf32", "i0 i1", ints("broadcast_dimensions", 0)),
    Row("stablehlo.broadcast_in_dim", "4xf32", "6x4xf32", "i0 i1", ints("broadcast_dimensions", 1)),
    Row("stablehlo.broadcast_in_dim", "6x1xf32", "6x4xf32", "i0 i1", ints("broadcast_dimensions", 0, 1)),
    Row("stablehlo.broadcast_in_dim", "6x1xf32", "5x6x1xf32", "i0 i1", ints("broadcast_dimensions", 1, 2)),
    Row("stablehlo.broadcast_in_dim", "4x6xf32", "6x5x4xf32", "i0 i1 i2", ints("broadcast_dimensions", 2, 0)),
    Row("stablehlo.broadcast_in_dim", "1x6xf32", "6x3x5xf32", "i0 i1 i2", ints("broadcast_dimensions", 2, 0), note="x")
    if False else Row("stablehlo.broadcast_in_dim", "1x6xbf16", "6x3x5xbf16", "i0 i1 i2", ints("broadcast_dimensions", 1, 0)),
    Row("stablehlo.reshape", "6x4x3xf32", "6x12xf32", "i0 i1"),
    Row("stablehlo.reshape", "24x3xf32", "6x4x3xf32", "i0 i2"),
    Row("stablehlo.reshape", "6x4x5xf32", "120xf32", "i0"),
    Row("stablehlo.reshape", "6x1x4xf32", "6x4xf32", "i0 i1"),
    Row("stablehlo.reshape", "1x6x4xi32", "6x4x1x1xi32", "i0 i1"),
    Row("stablehlo.reshape", "2x3xf32", "3x2xf32", "", note="one-sided factors"),
    Row("stablehlo.reshape", "6x4xf32", "4x6xf32", "i0"),
    Row("stablehlo.reshape", "6x10xf32", "15x4xf32", "i0"),
    Row("stablehlo.transpose", "3x6x4xf32", "6x4x3xf32", "i0 i1 i2", ints("permutation", 1, 2, 0)),
    Row("stablehlo.transpose", "6x1x4xi4", "4x6x1xi4", "i0 i1", ints("permutation", 2, 0, 1)),
    Row("stablehlo.reverse", "6x4xf32", "6x4xf32", "i0", ints("dimensions", 1)),
    Row(
        "stablehlo.slice", "6x9xf32", "6x4xf32", "i0 i1",
        ", ".join([ints("start_indices", 0, 3), ints("limit_indices", 6, 7), ints("strides", 1, 1)]),
    ),
    Row(
        "stablehlo.slice", "6x9xf32", "6x1xf32", "i0 i1", note="one column",
        attributes=", ".join([ints("start_indices", 0, 3), ints("limit_indices", 6, 4), ints("strides", 1, 1)]),
    ),
    Row(
        "stablehlo.slice", "6x9xf32", "6x4xf32", "i0", note="strided",
        attributes=", ".join([ints("start_indices", 0, 1), ints("limit_indices", 6, 9), ints("strides", 1, 2)]),
    ),
    *[
        Row(
            "stablehlo.pad", "6x4xf32 f32", result, expected, note=f"{low},{high},{inside}",
            attributes=", ".join(
                [ints("edge_padding_low", *low), ints("edge_padding_high", *high), ints("interior_padding", *inside)]
            ),
        )
        for result, low, high, inside, expected in (
            ("6x9xf32", (0, 2), (0, 3), (0, 0), "i0 i1"),
            ("8x4xf32", (1, 0), (1, 0), (0, 0), "i0 i1"),
            ("13x4xf32", (0, 0), (7, 0), (0, 0), "i0 i1"),
            ("13x4xf32", (7, 0), (0, 0), (0, 0), "i0 i1"),
            ("6x4xf32", (1, 0), (-1, 0), (0, 0), "i1"),
            ("6x4xf32", (-2, 0), (-3, 0), (1, 0), "i1"),
            ("6x7xf32", (0, 0), (0, 0), (0, 1), "i0"),
        )
    ],
    Row("stablehlo.concatenate", "6x4xf32 6x3xf32", "6x7xf32", "i0", "dimension = 1 : i64"),
    Row("stablehlo.concatenate", "6x4xf32 6x4xf32 6x4xf32", "18x4xf32", "i1", "dimension = 0 : i64"),
    Row("stablehlo.concatenate", "6x4xf32", "6x4xf32", "i1", "dimension = 0 : i64"),
    *[
        Row("stablehlo.iota", "", f"6x4x{dtype}", "i0 i1", f"iota_dimension = {dim} : i64", note=f"{dtype}-{dim}")
        for dtype, dim in (("i32", 0), ("f32", 1), ("i64", 0), ("ui8", 0), ("complex<f32>", 0), ("f64", 1))
    ],
    Row("stablehlo.iota", "", "3000xbf16", "i0", "iota_dimension = 0 : i64", note="more than bf16 can count"),
    Row("stablehlo.iota", "", "3000xf16", "i0", "iota_dimension = 0 : i64", note="more than f16 can count"),
    Row("stablehlo.iota", "", "300xi8", "i0", "iota_dimension = 0 : i64", note="more than i8 can count"),
    *[
        Row("stablehlo.constant", "", f"6x4x{dtype}", "i0 i1", f"value = dense<{value}> : tensor<6x4x{dtype}>", note=dtype)
        for dtype, value in (
            ("f32", "1.5"), ("bf16", "-0.0"), ("i1", "true"), ("i4", "-3"), ("complex<f32>", "(1.5, -2.0)"), ("f64", "0x7FF8000000000000"),
        )
    ],
    Row("stablehlo.constant", "", "3xf32", "", "value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>", note="dense"),
    Row("stablehlo.constant", "", "2xcomplex<f32>", "", "value = dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f32>>", note="dense complex"),
    Row("chlo.constant", "", "6x4xf32", "i0 i1", "value = dense<1.5> : tensor<6x4xf32>"),
]  # fmt: skip
