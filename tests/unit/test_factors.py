"""Every trusted op and every rule of our own, run in slices: slice -> run -> recombine = the whole.

A row is one op: its name, operand and result types, attributes, and the factors that it must have. A factor is written
`i1` (independent, dimension 1 of result 0), `s1` (a scan along dimension 1), `r0.1` (reducing, dimension 1 of operand 0) or `c2.0` (chained, dimension 0 of operand
2, the first that has it). An operand is a type with what to fill it with: `6x4xf32` random, `~special` with NaN,
infinities and -0, `~spd` positive definite, `~3:9` integers in [3, 9), `=1.5` a constant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
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

from exla_opt.ir import build
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.walk import walk
from exla_opt.ops import rules as factors
from exla_opt.ops import tiling
from exla_opt.ops.factor import Einsum, Shapes, factors_of
from exla_opt.ops.rules import DimMapping, Factor, Kind, OpRule
from tests.execute import defined_by

DTYPES: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "i4": ml_dtypes.int4, "ui8": np.uint8, "ui32": np.uint32,
    "ui64": np.uint64, "i1": np.bool_, "complex<f32>": np.complex64, "complex<f64>": np.complex128,
}  # fmt: skip
TOLERANCE = {"f64": 1e-11, "f32": 2e-5, "f16": 4e-3, "bf16": 3e-2, "complex<f32>": 2e-5, "complex<f64>": 1e-11}
SMALLEST_NORMAL = 2.0**-126  # of bfloat16, as of float32
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
    more: str = ""

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
        lines.append(
            f'{made} = "{self.name}"({", ".join(names)}){region}{attributes} : ({types}) -> ({", ".join(results)})'
        )
        body = "\n  ".join(lines)
        returned = ", ".join(results)
        return f"func.func @main({', '.join(arguments)}) -> ({returned}) {{\n  {body}\n  return {read} : {returned}\n}}\n{self.more}"


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
    return [(a, b) for a, b in pairwise(borders) if b > a]


def clip(mapping: DimMapping | None, low: int, high: int) -> tuple[int, int] | None:
    """Which of the factor's indices [low, high) the tensor has, counted from low; an empty range is (0, 0)."""
    if mapping is None:
        return None
    first, last = max(low, mapping.low), min(high, mapping.low + mapping.length)
    return (first - low, last - low) if first < last else (0, 0)


def cut(value: ir.Value, mapping: DimMapping | None, low: int, place: tuple[int, int] | None) -> ir.Value:
    if mapping is None or place is None or place == (0, 0):
        return value
    start = (low + place[0] - mapping.low) * mapping.inner
    return build.slice_along(value, mapping.dim, build.scalar_i32(start), (place[1] - place[0]) * mapping.inner)


def recombine(op: ir.Operation, factor: Factor) -> list[ir.Value]:
    """The op's results, made in slices along one factor: straight-line code at the insertion point."""
    state: list[ir.Value] = []
    concatenated = factor.kind in (Kind.INDEPENDENT, Kind.SCAN)
    if factor.kind is not Kind.INDEPENDENT:
        state = tiling.initial_state(op, factor)
    parts: list[list[ir.Value]] = [[] for _ in op.results]
    for low, high in pieces(factor.size):
        before = [clip(mapping, low, high) for mapping in factor.operands]
        after = [clip(mapping, low, high) for mapping in factor.results]
        if any(place == (0, 0) for place in after):
            continue
        operands = [
            cut(*given) for given in zip(op.operands, factor.operands, [low] * len(before), before, strict=True)
        ]
        for index, value in zip(factor.chained, state, strict=False):
            operands[index] = value
        made = tiling.build_tile(op, factor, operands, build.scalar_i32(low), before, after)
        for value in made:
            assert defined_by(value).verify()
        if factor.kind is Kind.SCAN:
            made, state = tiling.resume(op, factor, state, made)
        if concatenated:
            for part, value in zip(parts, made, strict=True):
                part.append(value)
        else:
            state = tiling.combine(op, factor, state, made, build.scalar_i32(low))
    if not concatenated:
        return tiling.finish(op, factor, state)
    joined: list[ir.Value] = []
    for part, mapping, result in zip(parts, factor.results, op.results, strict=True):
        joined.append(
            part[-1] if mapping is None else stablehlo.ConcatenateOp(part, mapping.dim, results=[result.type]).result
        )
    return joined


def last_op(module: ir.Module) -> tuple[ir.Operation, ir.Operation]:
    """The op in question, and the function's return."""
    function = module.body.operations[0].operation
    operations = [view.operation for view in function.regions[0].blocks[0].operations]
    return operations[-2], operations[-1]


def read_rule(module: ir.Module, op_rules: tuple[tuple[str, str], ...] = ()) -> OpRule:
    first = module.body.operations[0].operation.regions[0].blocks[0]
    return factors.read_rules(module, op_rules)[len(list(walk(first))) - 2]


def letters(factor: Factor) -> str:
    """The factor in the words of a row."""
    if factor.kind in (Kind.INDEPENDENT, Kind.SCAN):
        mapping = next(mapping for mapping in factor.results if mapping is not None)
        return f"{factor.kind.value[0]}{mapping.dim}"
    index, mapping = next((k, s) for k, s in enumerate(factor.operands) if s is not None)
    return f"{factor.kind.value[0]}{index}.{mapping.dim}"


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
    if dtype == "bf16":
        # XLA:CPU flushes subnormals in the elements of a tensor that it computes as a vector, and keeps them in the rest.
        for values in (left, right):
            small = np.abs(values) < SMALLEST_NORMAL
            values[small] = np.copysign(0.0, values[small])
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
        rule = read_rule(module)
        assert " ".join(sorted(map(letters, rule.factors))) == row.expected
        op, terminator = last_op(module)
        outputs: list[ir.Value] = list(op.results)
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
    return [
        Row(f"{dialect}.{name}", spec, result or spec.partition("~")[0], expected, close=close)
        for name in names.split()
    ]


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
    *binary("add divide", "6x4xcomplex<f32>"),
    # XLA:CPU fuses the multiplications with the additions in some elements of a tensor and not in others.
    Row("stablehlo.multiply", "6x4xcomplex<f32> 6x4xcomplex<f32>", "6x4xcomplex<f32>", "i0 i1", close=True),
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
        # XLA divides by a broadcast row with a reciprocal, and by a column of it without
        Row(f"chlo.broadcast_{name}", "6x4xf32 4xf32", "6x4xf32", "i0 i1", close=name == "divide")
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
    Row("stablehlo.broadcast_in_dim", "1x6xbf16", "6x3x5xbf16", "i0 i1 i2", ints("broadcast_dimensions", 1, 0)),
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
    Row("stablehlo.reverse", "6x4xf32", "6x4xf32", "i0 i1", ints("dimensions", 1)),
    Row("stablehlo.reverse", "6x4xf32", "6x4xf32", "i0 i1", ints("dimensions", 0, 1)),
    Row(
        "stablehlo.slice", "6x9xf32", "6x4xf32", "i0 i1",
        ", ".join([ints("start_indices", 0, 3), ints("limit_indices", 6, 7), ints("strides", 1, 1)]),
    ),
    Row(
        "stablehlo.slice", "6x9xf32", "6x1xf32", "i0 i1", note="one column",
        attributes=", ".join([ints("start_indices", 0, 3), ints("limit_indices", 6, 4), ints("strides", 1, 1)]),
    ),
    Row(
        "stablehlo.slice", "6x9xf32", "6x4xf32", "i0 i1", note="stride that does not divide",
        attributes=", ".join([ints("start_indices", 0, 1), ints("limit_indices", 6, 9), ints("strides", 1, 2)]),
    ),
    *[
        Row(
            "stablehlo.slice", "6x24xf32", f"6x{length}xf32", "i0 i1", note=f"strided {start}",
            attributes=", ".join([ints("start_indices", 0, start), ints("limit_indices", 6, limit), ints("strides", 1, 3)]),
        )
        for start, limit, length in ((0, 24, 8), (1, 23, 8), (2, 24, 8), (5, 20, 5), (6, 13, 3))
    ],
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
            ("6x4xf32", (1, 0), (-1, 0), (0, 0), "i0 i1"),
            ("6x4xf32", (-1, 0), (1, 0), (0, 0), "i0 i1"),
            ("6x2xf32", (0, -1), (0, -1), (0, 0), "i0 i1"),
            ("6x4xf32", (-2, 0), (-3, 0), (1, 0), "i0 i1"),
            ("6x7xf32", (0, 0), (0, 0), (0, 1), "i0 i1"),
            ("6x9xf32", (0, 3), (0, -4), (0, 2), "i0 i1"),
            ("6x17xf32", (0, -2), (0, 9), (0, 2), "i0 i1"),
            ("6x8xf32", (0, 0), (0, 1), (0, 1), "i0 i1"),
            ("6x8xf32", (0, 1), (0, 0), (0, 1), "i0 i1"),
            ("6x21xf32", (0, 5), (0, 6), (0, 2), "i0 i1"),
        )
    ],
    Row("stablehlo.concatenate", "6x4xf32 6x3xf32", "6x7xf32", "i0 i1", "dimension = 1 : i64"),
    Row("stablehlo.concatenate", "6x4xf32 6x4xf32 6x4xf32", "18x4xf32", "i0 i1", "dimension = 0 : i64"),
    Row("stablehlo.concatenate", "6x4xf32", "6x4xf32", "i0 i1", "dimension = 0 : i64"),
    Row("stablehlo.concatenate", "1xf32 6xf32 2xf32", "9xf32", "i0", "dimension = 0 : i64"),
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


def gather_numbers(
    offset: str, collapsed: str, index_map: str, vector: int, batching: str = "", index_batching: str = ""
) -> str:
    return (
        f"dimension_numbers = #stablehlo.gather<offset_dims = [{offset}], collapsed_slice_dims = [{collapsed}], "
        f"operand_batching_dims = [{batching}], start_indices_batching_dims = [{index_batching}], "
        f"start_index_map = [{index_map}], index_vector_dim = {vector}>"
    )


def scatter_numbers(
    window: str, inserted: str, index_map: str, vector: int, batching: str = "", index_batching: str = ""
) -> str:
    return (
        f"scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [{window}], inserted_window_dims = [{inserted}], "
        f"input_batching_dims = [{batching}], scatter_indices_batching_dims = [{index_batching}], "
        f"scatter_dims_to_operand_dims = [{index_map}], index_vector_dim = {vector}>"
    )


INDEXING = [
    Row("stablehlo.dynamic_slice", "9x4xf32 i32=2 i32=1", "6x4xf32", "i0 i1", ints("slice_sizes", 6, 4), note="full start 1"),
    *[
        Row("stablehlo.dynamic_slice", f"9x4xf32 {kind}~{start}:{start + 1} {kind}", "6x4xf32", "i0 i1", ints("slice_sizes", 6, 4))
        for kind, start in (("i32", 1), ("i64", 17), ("i32", -4), ("i8", 100), ("ui32", 7))
    ],
    Row("stablehlo.dynamic_update_slice", "9x4xf32 6x4xf32 i32=2 i32=1", "9x4xf32", "c1.0 i1"),
    *[
        Row("stablehlo.dynamic_update_slice", f"9x4xf32 6x4xf32 {kind}~{start}:{start + 1} {kind}", "9x4xf32", "c1.0 i1")
        for kind, start in (("i32", 3), ("i32", 17), ("i64", -4))
    ],
    *[
        Row(name, f"300xf32 {update} {kind}=90", result, expected, ints("slice_sizes", 200) if not update else "", note=f"narrow {kind}")
        for kind in ("i8", "ui8")
        for name, update, result, expected in (
            ("stablehlo.dynamic_slice", "", "200xf32", "i0"),
            ("stablehlo.dynamic_update_slice", "200xf32", "300xf32", "c1.0"),
        )
    ],
    Row("stablehlo.dynamic_update_slice", "9x4xf32 1x4xf32 i32=3 i32=0", "9x4xf32", "i1", note="one row"),
    Row(
        "stablehlo.gather", "9x4xf32 6x1xi32~-3:14", "6x4xf32", "i0 i1", note="rows",
        attributes=gather_numbers("1", "0", "0", 1) + ", " + ints("slice_sizes", 1, 4),
    ),
    Row(
        "stablehlo.gather", "4x9xf32 6xi32~-3:14", "4x6xf32", "i0 i1", note="columns, no vector",
        attributes=gather_numbers("0", "1", "1", 1) + ", " + ints("slice_sizes", 4, 1),
    ),
    Row(
        "stablehlo.gather", "9x4xcomplex<f32> 6x5x2xi32~-3:14", "6x5xcomplex<f32>", "i0 i1", note="elements",
        attributes=gather_numbers("", "0, 1", "1, 0", 2) + ", " + ints("slice_sizes", 1, 1),
    ),
    Row(
        "stablehlo.gather", "9x4xf32 2x6xi32~-3:14", "6xf32", "i0", note="vector first",
        attributes=gather_numbers("", "0, 1", "0, 1", 0) + ", " + ints("slice_sizes", 1, 1),
    ),
    Row(
        "stablehlo.gather", "9x4xf32 6x1xi32~-3:14", "6x3x4xf32", "i0 i1 i2", note="partial window",
        attributes=gather_numbers("1, 2", "", "0", 1) + ", " + ints("slice_sizes", 3, 4),
    ),
    Row(
        "stablehlo.gather", "9x8xf32 6x2xi64~-3:14", "6x3x5xf32", "i0 i1 i2", note="two partial windows",
        attributes=gather_numbers("1, 2", "", "1, 0", 1) + ", " + ints("slice_sizes", 3, 5),
    ),
    Row(
        "stablehlo.gather", "9x4xf32 6xi32~-3:14", "6x3x4xf32", "i0 i1 i2", note="partial window, no vector",
        attributes=gather_numbers("1, 2", "", "0", 1) + ", " + ints("slice_sizes", 3, 4),
    ),
    Row(
        "stablehlo.gather", "300xf32 4x1xi8~80:120", "4x200xf32", "i0 i1", note="partial window, narrow index",
        attributes=gather_numbers("1", "", "0", 1) + ", " + ints("slice_sizes", 200),
    ),
    Row(
        "stablehlo.gather", "6x9xf32 6x5x1xi32~-3:14", "6x5xf32", "i0 i1", note="batching",
        attributes=gather_numbers("", "1", "1", 2, "0", "0") + ", " + ints("slice_sizes", 1, 1),
    ),
    Row(
        "stablehlo.gather", "6x9x4xf32 5x6x1xi32~-3:14", "5x6x4xf32", "i0 i1 i2", note="batching swapped, a window",
        attributes=gather_numbers("2", "1", "1", 2, "0", "1") + ", " + ints("slice_sizes", 1, 1, 4),
    ),
    *[
        Row(
            "stablehlo.scatter", "9x4xf32 6x1xi32~-2:11 6x4xf32", "9x4xf32", "c1.0 i0 i1", note=f"rows {name}",
            attributes=scatter_numbers("1", "0", "0", 1), region=monoid(name, "f32"), close=True,
        )
        for name in "add multiply minimum maximum subtract".split()
    ],
    Row(
        "stablehlo.scatter", "9x4xf32 6x1xi32~-2:4 6x4xf32", "9x4xf32", "c1.0 i0 i1", note="rows overwritten, twice some",
        attributes=scatter_numbers("1", "0", "0", 1), region=body("f32", "%y"),
    ),
    Row(
        "stablehlo.scatter", "9x4xi32 6x1xi32~0:9 6x4xi32", "9x4xi32", "c1.0 i0 i1", note="rows of integers",
        attributes=scatter_numbers("1", "0", "0", 1), region=monoid("xor", "i32"),
    ),
    *[
        Row(
            "stablehlo.scatter", f"300x4xf32 6x1x{kind}~{low}:{high} 6x4xf32", "300x4xf32", "c1.0 i0 i1", note=f"rows by {kind}",
            attributes=scatter_numbers("1", "0", "0", 1), region=body("f32", "%y"),
        )
        for kind, low, high in (("i8", -128, 127), ("ui8", 0, 255), ("ui32", 250, 2**32), ("i64", -(2**63), 299))
    ],
    Row(
        "stablehlo.scatter", "9x4xf32 6xi32~-2:11 6x4xf32", "9x4xf32", "c1.0 i0 i1", note="rows by numbers",
        attributes=scatter_numbers("1", "0", "0", 1), region=body("f32", "%y"),
    ),
    Row(
        "stablehlo.scatter", "9x4x7xf32 6x2xi32~-2:8 6x2x4xf32", "9x4x7xf32", "c1.0 i0", note="an element, a window of several",
        attributes=scatter_numbers("1, 2", "0", "2, 0", 1), region=body("f32", "%y"),
    ),
    Row(
        "stablehlo.scatter", "9x4xf32 6x5x1xi32~0:9 6x5x4xf32", "9x4xf32", "c1.0 c1.1 i0 i1", note="two update dimensions",
        attributes=scatter_numbers("2", "0", "0", 2), region=monoid("add", "f32"), close=True,
    ),
    Row(
        "stablehlo.scatter", "9x4xf32 6x5x1xi32~0:4 6x5x4xf32", "9x4xf32", "c1.0 i0 i1", note="two, overwritten",
        attributes=scatter_numbers("2", "0", "0", 2), region=body("f32", "%y"),
    ),
    Row(
        "stablehlo.scatter", "9x4xf32 2x6xi32~-2:9 6xf32", "9x4xf32", "c1.1 i0 i1", note="elements, vector first",
        attributes=scatter_numbers("", "0, 1", "0, 1", 0), region=monoid("add", "f32"), close=True,
    ),
    Row(
        "stablehlo.scatter", "6x9xf32 6x5x1xi32~-2:11 6x5xf32", "6x9xf32", "c1.1 i0 i1", note="batching",
        attributes=scatter_numbers("", "1", "1", 2, "0", "0"), region=monoid("add", "f32"), close=True,
    ),
    Row(
        "stablehlo.scatter", "9x4xf32 9x4xf32 6x1xi32~0:9 6x4xf32 6x4xf32", "9x4xf32 9x4xf32", "c2.0 i0 i1", note="two tensors",
        attributes=scatter_numbers("1", "0", "0", 1), close=True,
        region=body("f32", "%z0 = stablehlo.add %x0, %y0 : tensor<f32>; %z1 = stablehlo.maximum %x1, %y1 : tensor<f32>; %z0, %z1", 2),
    ),
]  # fmt: skip


def dot_numbers(batch: str, left: str, right: str, right_batch: str = "") -> str:
    return (
        f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{batch}], rhs_batching_dimensions = "
        f"[{right_batch or batch}], lhs_contracting_dimensions = [{left}], rhs_contracting_dimensions = [{right}]>"
    )


ARG_MAX = (
    "%g = stablehlo.compare GT, %x0, %y0 : (tensor<f32>, tensor<f32>) -> tensor<i1>; "
    "%n = stablehlo.compare NE, %x0, %x0 : (tensor<f32>, tensor<f32>) -> tensor<i1>; "
    "%o = stablehlo.or %g, %n : tensor<i1>; "
    "%e = stablehlo.compare EQ, %x0, %y0 : (tensor<f32>, tensor<f32>) -> tensor<i1>; "
    "%l = stablehlo.compare LT, %x1, %y1 : (tensor<i32>, tensor<i32>) -> tensor<i1>; "
    "%a = stablehlo.and %e, %l : tensor<i1>; "
    "%p = stablehlo.or %o, %a : tensor<i1>; "
    "%v = stablehlo.select %o, %x0, %y0 : tensor<i1>, tensor<f32>; "
    "%i = stablehlo.select %p, %x1, %y1 : tensor<i1>, tensor<i32>; %v, %i"
)
WIDENING = (
    "%u = stablehlo.convert %x : (tensor<bf16>) -> tensor<f32>; %v = stablehlo.convert %y : (tensor<bf16>) -> tensor<f32>; "
    "%w = stablehlo.add %u, %v : tensor<f32>; %z = stablehlo.convert %w : (tensor<f32>) -> tensor<bf16>; %z"
)

CONTRACTIONS = [
    *[
        Row(
            "stablehlo.dot_general", f"6x5x{source} 5x4x{source}", f"6x4x{target}", "i0 i1 r0.1", dot_numbers("", "1", "0"),
            close=True, note=f"to-{target}",
        )
        for source, target in (
            ("f32", "f32"), ("f64", "f64"), ("bf16", "bf16"), ("f16", "f16"), ("i32", "i32"), ("complex<f32>", "complex<f32>"),
            ("bf16", "f32"), ("i8", "i32"),
        )
    ],
    Row("stablehlo.dot_general", "3x6x5xf32 3x5x4xf32", "3x6x4xf32", "i0 i1 i2 r0.2", dot_numbers("0", "2", "1"), close=True),
    Row("stablehlo.dot_general", "6x3x5xf32 3x5x4xf32", "3x6x4xf32", "i0 i1 i2 r0.2", dot_numbers("1", "2", "1", "0"), close=True),
    Row("stablehlo.dot_general", "6x3x5xf32 4x5x3xf32", "6x4xf32", "i0 i1 r0.1 r0.2", dot_numbers("", "1, 2", "2, 1"), close=True),
    Row("stablehlo.dot_general", "6xf32 4xf32", "6x4xf32", "i0 i1", dot_numbers("", "", ""), close=True),
    Row("stablehlo.dot_general", "6xf32 6xf32", "f32", "r0.0", dot_numbers("", "0", "0"), close=True),
    Row("stablehlo.dot_general", "6x5xf32~special 5x4xf32", "6x4xf32", "i0 i1 r0.1", dot_numbers("", "1", "0"), close=True, note="special"),
    Row("stablehlo.dot_general", "6x0xf32 0x4xf32", "6x4xf32", "", dot_numbers("", "1", "0"), note="empty"),
    Row("stablehlo.dot", "6x5xf32 5x4xf32", "6x4xf32", "i0 i1 r0.1", close=True),
    Row("stablehlo.dot", "5xf32 5x4xf32", "4xf32", "i0 r0.0", close=True),
    Row("stablehlo.dot", "6x5xf32 5xf32", "6xf32", "i0 r0.1", close=True),
    Row("stablehlo.dot", "6x5xbf16 5x4xbf16", "6x4xbf16", "i0 i1 r0.1", close=True),
    Row("stablehlo.einsum", "6x5xf32 5x4xf32", "6x4xf32", "i0 i1 r0.1", 'einsum_config = "ij,jk->ik"', close=True),
    Row("stablehlo.einsum", "3x6x5xf32 3x5x4xf32", "3x6x4xf32", "i0 i1 i2 r0.2", 'einsum_config = "bij,bjk->bik"', close=True),
    *[
        Row("stablehlo.reduce", f"6x5x{dtype} {dtype}={init}", f"6x{dtype}", "i0 r0.1", ints("dimensions", 1), monoid(name, dtype), close=True, note=name)
        for name, dtype, init in (
            ("add", "f32", "0.0"), ("add", "f32", "-0.0"), ("add", "f32", "1.5"), ("multiply", "f32", "1.5"), ("multiply", "f32", "1.0"),
            ("minimum", "f32", "1.5"), ("maximum", "f32", "-1.5"), ("maximum", "f32", "0xFF800000"), ("add", "f64", "0.0"),
            ("add", "bf16", "1.5"), ("add", "f16", "0.0"), ("maximum", "bf16", "0xFF80"), ("add", "i32", "3"), ("multiply", "i32", "3"),
            ("and", "i32", "-2"), ("or", "i32", "5"), ("xor", "i32", "5"), ("and", "i1", "true"), ("or", "i1", "false"), ("xor", "i1", "true"),
            ("add", "complex<f32>", "(1.5,2.0)"), ("add", "complex<f32>", "(0.0,0.0)"), ("minimum", "i8", "127"),
        )
    ],
    Row("stablehlo.reduce", "6x5xf32~special f32=0xFF800000", "6xf32", "i0 r0.1", ints("dimensions", 1), monoid("maximum", "f32"), note="special"),
    Row("stablehlo.reduce", "6x5xf32~special f32=0.0", "6xf32", "i0 r0.1", ints("dimensions", 1), monoid("add", "f32"), close=True, note="special sum"),
    Row("stablehlo.reduce", "6x5xf32 f32", "6xf32", "i0 r0.1", ints("dimensions", 1), monoid("add", "f32"), close=True, note="init from outside"),
    Row("stablehlo.reduce", "6x5x4xf32 f32=0.0", "5xf32", "i0 r0.0 r0.2", ints("dimensions", 0, 2), monoid("add", "f32"), close=True),
    Row("stablehlo.reduce", "6x5xf32 f32=0.0", "f32", "r0.0 r0.1", ints("dimensions", 0, 1), monoid("add", "f32"), close=True),
    Row("stablehlo.reduce", "6x5xf32 f32=0.0", "6x5xf32", "i0 i1", ints("dimensions"), monoid("add", "f32")),
    Row("stablehlo.reduce", "6x5xbf16 bf16=0.0", "6xbf16", "i0 r0.1", ints("dimensions", 1), body("bf16", WIDENING), close=True, note="widening body"),
    Row("stablehlo.reduce", "6x5xf32 f32=0.0", "6xf32", "i0", ints("dimensions", 1), monoid("subtract", "f32"), close=True, note="no monoid"),
    Row(
        "stablehlo.reduce", "6x5xf32~ties 6x5xi32~0:99 f32=0xFF800000 i32=0", "6xf32 6xi32", "i0 r0.1", ints("dimensions", 1),
        body("", ARG_MAX, 2, "f32 i32"), note="argmax",
    ),
    Row(
        "stablehlo.reduce", "6x5xf32 6x5xf32 f32=0.5 f32=0.0", "6xf32 6xf32", "i0 r0.1", ints("dimensions", 1), close=True, note="sum and maximum",
        region=body("f32", "%z0 = stablehlo.add %x0, %y0 : tensor<f32>; %z1 = stablehlo.maximum %x1, %y1 : tensor<f32>; %z0, %z1", 2),
    ),
    Row(
        "stablehlo.reduce", "6x5xf32 6x5xf32 f32=0.0 f32=0.0", "6xf32 6xf32", "i0", ints("dimensions", 1), close=True, note="mixed up",
        region=body("f32", "%z0 = stablehlo.add %x0, %y1 : tensor<f32>; %z1 = stablehlo.maximum %x1, %y0 : tensor<f32>; %z0, %z1", 2),
    ),
]  # fmt: skip


def window(
    sizes: tuple[int, ...],
    strides: tuple[int, ...] = (),
    padding: str = "",
    base: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
) -> str:
    parts = [ints("window_dimensions", *sizes)]
    for name, given in (("window_strides", strides), ("base_dilations", base), ("window_dilations", dilations)):
        parts += [ints(name, *given)] if given else []
    parts += [f"padding = dense<{padding}> : tensor<{len(sizes)}x2xi64>"] if padding else []
    return ", ".join(parts)


def conv(
    numbers: str,
    kernel: int,
    strides: tuple[int, ...] = (),
    padding: str = "",
    groups: int = 1,
    batches: int = 1,
    more: str = "",
) -> str:
    parts = [
        f"dimension_numbers = #stablehlo.conv<{numbers}>",
        f"feature_group_count = {groups} : i64",
        f"batch_group_count = {batches} : i64",
    ]
    parts += [ints("window_strides", *strides)] if strides else []
    parts += [f"padding = dense<{padding}> : tensor<{kernel}x2xi64>"] if padding else []
    return ", ".join(parts) + more


NHWC = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
NCHW = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
SELECT_AND_SCATTER = (
    "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%c = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
    '"stablehlo.return"(%c) : (tensor<i1>) -> ()\n}, {\n' + monoid("add", "f32")
)

WINDOWS = [
    Row("stablehlo.reduce_window", "12x8xf32 f32=0.0", "6x4xf32", "i0 i1", window((2, 2), (2, 2)), monoid("maximum", "f32")),
    Row("stablehlo.reduce_window", "12x8xf32 f32=0.5", "6x4xf32", "i0 i1", window((2, 1), (2, 2)), monoid("add", "f32"), close=True),
    Row("stablehlo.reduce_window", "6x8xf32 f32=0.0", "6x7xf32", "i0 i1", window((1, 2)), monoid("add", "f32"), close=True, note="overlapping"),
    Row("stablehlo.reduce_window", "6x9xf32 f32=0.0", "6x4xf32", "i0 i1", window((1, 2), (1, 2)), monoid("add", "f32"), close=True, note="a rest"),
    Row("stablehlo.reduce_window", "18x4xf32 f32=0.0", "6x4xf32", "i0 i1", window((2, 1), (3, 1), dilations=(2, 1)), monoid("add", "f32"), close=True),
    Row("stablehlo.reduce_window", "6x5xf32 f32=0.0", "6x5xf32", "i0 s1", window((1, 5), (1, 1), "[[0, 0], [4, 0]]"), monoid("add", "f32"), close=True, note="cumsum"),
    Row("stablehlo.reduce_window", "6x4xf32 f32=0.0", "6x4xf32", "i0 i1", window((1, 1), (1, 1), "[[1, -1], [0, 0]]"), monoid("add", "f32"), note="shifted"),
    Row("stablehlo.reduce_window", "6x4xf32 f32=0.0", "11x4xf32", "i0 i1", window((1, 1), (1, 1), base=(2, 1)), monoid("add", "f32"), note="base dilation"),
    *[
        Row("stablehlo.reduce_window", "9x4xf32 f32=0.0", f"{count}x4xf32", "i0 i1", window((size, 1), (stride, 1), f"[[{low}, {high}], [0, 0]]", (base, 1), (dilation, 1)), monoid("add", "f32"), close=True, note=f"{size},{stride},{low},{high},{base},{dilation}")
        for count, size, stride, low, high, base, dilation in (
            (9, 3, 1, 1, 1, 1, 1), (5, 3, 2, 1, 1, 1, 1), (4, 4, 2, 2, 2, 1, 2), (12, 2, 1, 3, 1, 1, 1), (17, 2, 1, 0, 1, 2, 1), (9, 3, 2, 1, 2, 2, 1), (6, 3, 1, -1, 0, 1, 1),
        )
    ],
    Row("stablehlo.reduce_window", "9x4xf32~special f32=0xFF800000", "9x4xf32", "i0 i1", window((3, 1), (1, 1), "[[1, 1], [0, 0]]"), monoid("maximum", "f32"), note="max"),
    Row("stablehlo.reduce_window", "9x4xi32 i32=3", "9x4xi32", "i0 i1", window((3, 1), (1, 1), "[[1, 1], [0, 0]]"), monoid("minimum", "i32"), note="min from 3"),
    Row("stablehlo.reduce_window", "9x4xf32 f32=0.5", "9x4xf32", "i1", window((3, 1), (1, 1), "[[1, 1], [0, 0]]"), monoid("add", "f32"), note="padding that is no identity", close=True),
    Row("stablehlo.reduce_window", "9x4xf32 f32=0.5", "7x4xf32", "i0 i1", window((3, 1)), monoid("add", "f32"), note="from 0.5", close=True),
    Row("stablehlo.reduce_window", "9x4xf32~ties 9x4xi32 f32=0xFF800000 i32=0", "7x4xf32 7x4xi32", "i0 i1", window((3, 1)), body("", ARG_MAX, 2, "f32 i32"), note="the place of the maximum"),
    Row("stablehlo.reduce_window", "9x4xf32~ties 9x4xi32 f32=0xFF800000 i32=0", "9x4xf32 9x4xi32", "i1", window((3, 1), (1, 1), "[[1, 1], [0, 0]]"), body("", ARG_MAX, 2, "f32 i32"), note="the place of the maximum, padded"),
    Row("stablehlo.reduce_window", "6x5xf32 f32=0.0", "6x5xf32", "i0", window((1, 5), (1, 1), "[[0, 0], [0, 4]]"), monoid("add", "f32"), close=True, note="cumsum from the end"),
    Row("stablehlo.reduce_window", "6x5xf32 f32=0.5", "6x5xf32", "i0", window((1, 5), (1, 1), "[[0, 0], [4, 0]]"), monoid("add", "f32"), close=True, note="cumsum from 0.5"),
    Row("stablehlo.reduce_window", "7x3x5xf32 f32=1.0", "7x3x5xf32", "i1 i2 s0", window((7, 1, 1), (1, 1, 1), "[[6, 0], [0, 0], [0, 0]]"), monoid("multiply", "f32"), close=True, note="cumprod"),
    Row("stablehlo.reduce_window", "6x9xf32~special f32=0xFF800000", "6x9xf32", "i0 s1", window((1, 9), (1, 1), "[[0, 0], [8, 0]]"), monoid("maximum", "f32"), note="cummax"),
    Row("stablehlo.reduce_window", "9xi32 i32=0", "9xi32", "s0", window((9,), (1,), "[[8, 0]]"), monoid("add", "i32"), note="cumsum of integers"),
    Row("stablehlo.select_and_scatter", "12x4xf32 6x4xf32 f32=0.0", "12x4xf32", "i0 i1", window((2, 1), (2, 1)), SELECT_AND_SCATTER),
    Row("stablehlo.select_and_scatter", "7x4xf32 6x4xf32 f32=0.0", "7x4xf32", "i1", window((2, 1), (1, 1)), SELECT_AND_SCATTER, note="overlapping", close=True),
    Row("stablehlo.convolution", "6x8x8x4xf32 3x3x4x5xf32", "6x6x6x5xf32", "i0 i1 i2 i3 r0.3", conv(NHWC, 2), close=True),
    Row("stablehlo.convolution", "6x8x8x4xbf16 3x3x4x5xbf16", "6x6x6x5xbf16", "i0 i1 i2 i3 r0.3", conv(NHWC, 2), close=True),
    Row("stablehlo.convolution", "6x4x8x8xf32 5x4x3x3xf32", "6x5x4x4xf32", "i0 i1 i2 i3 r0.1", conv(NCHW, 2, (2, 2), "1"), close=True),
    Row("stablehlo.convolution", "6x4x8xf32 5x4x3xf32", "6x5x6xf32", "i0 i1 i2 r0.1", conv("[b, f, 0]x[o, i, 0]->[b, f, 0]", 1), close=True),
    Row("stablehlo.convolution", "6x8x8x4xf32 3x3x4x5xf32", "6x13x13x5xf32", "i0 i1 i2 i3 r0.3", conv(NHWC, 2, more=", " + ints("lhs_dilation", 2, 2)), close=True, note="base dilation"),
    Row("stablehlo.convolution", "6x8x8x4xf32 3x3x4x5xf32", "6x4x4x5xf32", "i0 i1 i2 i3 r0.3", conv(NHWC, 2, more=", " + ints("rhs_dilation", 2, 2) + ", window_reversal = array<i1: true, false>"), close=True, note="dilated, reversed"),
    Row("stablehlo.convolution", "2x9x8x4xf32 3x3x4x5xf32", "2x6x10x5xf32", "i0 i1 i2 i3 r0.3", conv(NHWC, 2, (2, 1), "2"), close=True, note="stride, padding"),
    Row("stablehlo.convolution", "2x9x8x4xf32 3x3x4x5xf32", "2x19x6x5xf32", "i0 i1 i2 i3 r0.3", conv(NHWC, 2, more=", " + ints("lhs_dilation", 2, 1) + ", padding = dense<[[3, 1], [1, -1]]> : tensor<2x2xi64>"), close=True, note="transposed"),
    Row("stablehlo.convolution", "6x7x8x4xf32 1x1x4x5xf32", "6x7x8x5xf32", "i0 i1 i2 i3 r0.3", conv(NHWC, 2), close=True, note="1x1"),
    Row("stablehlo.convolution", "6x8x12x4xf32 2x3x4x5xf32", "6x4x4x5xf32", "i0 i1 i2 i3 r0.3", conv(NHWC, 2, (2, 3)), close=True, note="patches"),
    Row("stablehlo.convolution", "6x8x12x4xf32 2x3x4x5xf32", "6x4x4x5xf32", "i0 i1 i2 i3 r0.3", conv(NHWC, 2, (2, 3), more=", window_reversal = array<i1: true, true>"), close=True, note="patches reversed"),
    Row("stablehlo.convolution", "6x3x3x4xf32 3x3x4x5xf32", "6x1x1x5xf32", "i0 i3 r0.3", conv(NHWC, 2), close=True, note="kernel is all"),
    Row("stablehlo.convolution", "3x8x8x8xf32 3x3x2x4xf32", "3x6x6x4xf32", "i0 i1 i2 i3", conv(NHWC, 2, groups=4), close=True, note="feature groups"),
    Row("stablehlo.convolution", "3x8x8x8xf32 3x3x2x12xf32", "3x6x6x12xf32", "i0 i1 i2 i3", conv(NHWC, 2, groups=4), close=True, note="feature groups of 3"),
    Row("stablehlo.convolution", "3x8x8x6xf32 3x3x1x6xf32", "3x6x6x6xf32", "i0 i1 i2 i3", conv(NHWC, 2, groups=6), close=True, note="depthwise"),
    Row("stablehlo.convolution", "4x8x8x3xf32 3x3x3x4xf32", "1x6x6x4xf32", "i1 i2 i3 r0.3", conv(NHWC, 2, batches=4), close=True, note="batch groups"),
    Row("stablehlo.convolution", "8x8x8x3xf32 3x3x3x12xf32", "2x6x6x12xf32", "i1 i2 i3 r0.3", conv(NHWC, 2, batches=4), close=True, note="batch groups of 2 and 3"),
]  # fmt: skip


def comparator(kind: str, count: int = 1) -> str:
    others = "".join(f", %u{k}: tensor<i32>, %w{k}: tensor<i32>" for k in range(count - 1))
    return (
        f"^bb0(%x: tensor<f32>, %y: tensor<f32>{others}):\n"
        f"%p = stablehlo.compare LT, %x, %y, {kind} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        '"stablehlo.return"(%p) : (tensor<i1>) -> ()\n'
    )


def triangular(left: bool, lower: bool, unit: bool, transpose: str) -> str:
    flags = {"left_side": left, "lower": lower, "unit_diagonal": unit}
    return ", ".join(f"{name} = {str(value).lower()}" for name, value in flags.items()) + (
        f", transpose_a = #stablehlo<transpose {transpose}>"
    )


LINEAR = [
    Row("stablehlo.sort", "6x5xf32~ties", "6x5xf32", "i0", "dimension = 1 : i64, is_stable = true", comparator("TOTALORDER")),
    Row("stablehlo.sort", "6x5xf32", "6x5xf32", "i1", "dimension = 0 : i64", comparator("FLOAT")),
    Row("stablehlo.sort", "6x5xf32~ties 6x5xi32", "6x5xf32 6x5xi32", "i0", "dimension = 1 : i64, is_stable = true", comparator("TOTALORDER", 2)),
    Row("chlo.top_k", "6x3x5xf32~ties", "6x3x2xf32 6x3x2xi32", "i0 i1 r0.2", "k = 2 : i64"),
    Row("chlo.top_k", "9xf32~special", "3xf32 3xi32", "r0.0", "k = 3 : i64"),
    Row("chlo.top_k", "6x9xf32~ties", "6x4xf32 6x4xi32", "i0 r0.1", "k = 4 : i64"),
    Row("chlo.top_k", "6x5xf32~special", "6x5xf32 6x5xi32", "i0", "k = 5 : i64"),
    Row("chlo.top_k", "6x8xf32~ties", "6x4xf32 6x4xi32", "i0", "k = 4 : i64", note="as long as two tiles joined"),
    Row("stablehlo.cholesky", "6x4x4xf32~spd", "6x4x4xf32", "i0", "lower = true", close=True),
    Row("stablehlo.cholesky", "6x4x4xf64~spd", "6x4x4xf64", "i0", "lower = false", close=True),
    Row("stablehlo.cholesky", "6x4x4xcomplex<f32>~spd", "6x4x4xcomplex<f32>", "i0", "lower = true", close=True),
    *[
        Row(
            "stablehlo.triangular_solve", "4x4xf64~triangle 4x6xf64" if left else "4x4xf64~triangle 6x4xf64", "4x6xf64" if left else "6x4xf64",
            "i1" if left else "i0", triangular(left, lower, unit, transpose), close=True, note=f"{left}-{lower}-{unit}-{transpose}",
        )
        for left in (True, False) for lower in (True, False) for unit in (True, False) for transpose in ("NO_TRANSPOSE", "TRANSPOSE")
    ],
    Row(
        "stablehlo.triangular_solve", "3x4x4xcomplex<f64>~triangle 3x4x6xcomplex<f64>", "3x4x6xcomplex<f64>", "i0 i2",
        triangular(True, True, False, "ADJOINT"), close=True,
    ),
    Row("stablehlo.fft", "6x8xcomplex<f32>", "6x8xcomplex<f32>", "i0", "fft_type = #stablehlo<fft_type FFT>, " + ints("fft_length", 8), close=True),
    Row("stablehlo.fft", "6x4x8xf32", "6x4x5xcomplex<f32>", "i0", "fft_type = #stablehlo<fft_type RFFT>, " + ints("fft_length", 4, 8), close=True),
    Row("stablehlo.fft", "6x5xcomplex<f32>", "6x8xf32", "i0", "fft_type = #stablehlo<fft_type IRFFT>, " + ints("fft_length", 8), close=True),
    Row(
        "stablehlo.batch_norm_inference", "3x6x4xf32 6xf32 6xf32 6xf32 6xf32~positive", "3x6x4xf32", "i0 i1 i2",
        "epsilon = 1.0e-3 : f32, feature_index = 1 : i64", close=True,
    ),
    Row(
        "stablehlo.batch_norm_training", "3x6x4xf32 6xf32 6xf32", "3x6x4xf32 6xf32 6xf32", "i1",
        "epsilon = 1.0e-3 : f32, feature_index = 1 : i64", close=True,
    ),
    Row(
        "stablehlo.batch_norm_grad", "3x6x4xf32 6xf32 6xf32 6xf32~positive 3x6x4xf32", "3x6x4xf32 6xf32 6xf32", "i1",
        "epsilon = 1.0e-3 : f32, feature_index = 1 : i64", close=True,
    ),
]  # fmt: skip


def trsm(left: bool, diag: int, trans: int, uplo: int, batch: bool) -> Row:
    b, layout = ("3x", "[1, 2, 0]") if batch else ("", "[0, 1]")
    right = f"{b}4x6xf64" if left else f"{b}6x4xf64"
    layouts = f"dense<{layout}> : tensor<{3 if batch else 2}xindex>"
    free = ("i2" if batch else "i1") if left else ("i1" if batch else "i0")
    return Row(
        "stablehlo.custom_call",
        f"{b}4x4xf64~triangle {right}",
        right,
        f"i0 {free}" if batch else free,
        close=True,
        note=f"trsm-{left}-{diag}-{trans}-{uplo}",
        attributes='call_target_name = "lapack_dtrsm_ffi", backend_config = "", '
        f"mhlo.backend_config = {{diag = {diag} : ui8, side = {76 if left else 82} : ui8, trans_x = {trans} : ui8, uplo = {uplo} : ui8}}, "
        f"operand_layouts = [{layouts}, {layouts}], result_layouts = [{layouts}], "
        "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, operand_tuple_indices = []>]",
    )


POTRF = Row(
    "stablehlo.custom_call", "6x4x4xf64~spd", "6x4x4xf64 6xi32", "i0", close=True, note="potrf by its author's rule",
    attributes='call_target_name = "lapack_dpotrf_ffi", backend_config = "", mhlo.backend_config = {uplo = 76 : ui8}, '
    "operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], "
    "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], "
    "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i]) {i=6, j=4, k=4, l=4, m=4}, custom>",
)  # fmt: skip

GETRF = Row(
    "stablehlo.custom_call", "6x4x4xf64", "6x4x4xf64 6x4xi32 6xi32", "i0", close=True, note="getrf by its author's rule",
    attributes='call_target_name = "lapack_dgetrf_ffi", backend_config = "", mhlo.backend_config = {}, '
    "operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], "
    "result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>], "
    "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], "
    "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i]) {i=6, j=4, k=4, l=4, m=4, n=4}, custom>",
)  # fmt: skip

GTSV = Row(
    "stablehlo.custom_call", "3x5xf64 3x5xf64~positive 3x5xf64 3x5x6xf64", "3x5xf64 3x5xf64 3x5xf64 3x5x6xf64 3xi32", "i0 i2", close=True, note="gtsv",
    attributes='call_target_name = "lapack_dgtsv_ffi", backend_config = "", mhlo.backend_config = {}, '
    f"operand_layouts = [{', '.join(['dense<[1, 0]> : tensor<2xindex>'] * 3)}, dense<[1, 2, 0]> : tensor<3xindex>], "
    f"result_layouts = [{', '.join(['dense<[1, 0]> : tensor<2xindex>'] * 3)}, dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], "
    "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j], [i, k], [i, l], [i, m, n])->([i, o], [i, p], [i, q], [i, r, s], [i]) "
    "{i=3, j=5, k=5, l=5, m=5, n=6, o=5, p=5, q=5, r=5, s=6}, custom>",
)  # fmt: skip

CALLS = [
    GTSV,
    *[trsm(left, diag, trans, uplo, batch) for left in (True, False) for diag, trans, uplo, batch in (
        (78, 78, 76, False), (85, 84, 76, False), (78, 84, 85, True), (78, 78, 85, False),
    )],
    POTRF,
    GETRF,
    Row(
        "stablehlo.custom_call", "6x5xf32~ties", "6x2xf32 6x2xi32", "i0", note="TopK",
        attributes='call_target_name = "TopK", mhlo.attributes = {k = 2 : i64, largest = true}, mhlo.version = 1 : i64',
    ),
    Row("stablehlo.custom_call", "3x5x4xf32", "3x5x4xf32 3x4xf32", "i0", note="Qr", close=True, attributes='call_target_name = "Qr"'),
    Row(
        "stablehlo.custom_call", "3x5x4xf32 3x4xf32", "3x5x4xf32", "i0", note="Householder", close=True,
        attributes='call_target_name = "ProductOfElementaryHouseholderReflectors"',
    ),
    Row(
        "stablehlo.custom_call", "6x16xf32 6x16xi32 f32=0xFF800000 i32=-1", "6x2xf32 6x2xi32", "i0", note="ApproxTopK",
        attributes='call_target_name = "ApproxTopK", backend_config = "", called_computations = [@greater], mhlo.backend_config = '
        "{aggregate_to_topk = true, is_fallback = true, recall_target = 0.95 : f32, reduction_dim = 1 : i64, "
        "reduction_input_size_override = -1 : i64, top_k = 2 : i64}",
        more="func.func @greater(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>) -> tensor<i1> {\n"
        "%p = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\nreturn %p : tensor<i1>\n}",
    ),
]  # fmt: skip

ROWS = [*POINTWISE, *SHAPES, *INDEXING, *CONTRACTIONS, *WINDOWS, *LINEAR, *CALLS]


@pytest.fixture(scope="session", autouse=True)
def lapack_ready() -> None:
    lapack._lapack.initialize()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_slices_make_the_whole(row: Row) -> None:
    check(row)


REFUSALS = [
    (Row("stablehlo.rng", "f32 f32 2xi64", "6x4xf32", "", "rng_distribution = #stablehlo<rng_distribution UNIFORM>"), "position"),
    (
        Row("stablehlo.rng_bit_generator", "2xui64", "2xui64 6x4xui32", "", "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>"),
        "stablehlo.rng_bit_generator draws random numbers that depend on their position, such as those of jax.random",
    ),
    (
        Row(
            "stablehlo.all_reduce", "6x4xf32", "6x4xf32", "", "replica_groups = dense<0> : tensor<1x1xi64>", monoid("add", "f32")
        ),
        "communicates with other devices",
    ),
    (
        Row(
            "stablehlo.collective_permute", "6x4xf32", "6x4xf32", "",
            "source_target_pairs = dense<0> : tensor<1x2xi64>",
        ),
        "communicates with other devices",
    ),
    (Row("stablehlo.custom_call", "6x4xf32", "6x4xf32", "", 'call_target_name = "Sharding"'), "no splitting rule for custom_call @Sharding"),
    (Row("stablehlo.custom_call", "6x4xf32", "6x4xf32", "", 'call_target_name = "my_kernel"'), "custom_call @my_kernel"),
    (Row("stablehlo.custom_call", "6x4xf32", "6x4xf32", "", 'call_target_name = "mhlo.erf"'), "custom_call @mhlo.erf"),
    (
        Row(
            "stablehlo.custom_call", "6x4xf32", "6x4xf32", "",
            'call_target_name = "my_kernel", has_side_effect = true, '
            "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {i=6, j=4}, custom>",
        ),
        "custom_call @my_kernel",
    ),
    (
        Row(
            "stablehlo.custom_call", "4x4xf64", "4x4xf64 4xi32 i32", "",
            'call_target_name = "lapack_dgetrf_ffi", '
            "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([k, l], [m], []) {i=4, j=4, k=4, l=4, m=4}, custom>",
        ),
        "custom_call @lapack_dgetrf_ffi needs its dimensions 0 and 1 unsplit",
    ),
    (Row("stablehlo.optimization_barrier", "6x4xf32 6x4xf32", "6x4xf32 6x4xf32", ""), "holds tensors that are split in different ways"),
    (Row("stablehlo.unary_einsum", "6x4xf32", "6xf32", "", 'einsum_config = "ij->i"'), "no splitting rule for stablehlo.unary_einsum"),
    (Row("stablehlo.torch_index_select", "6x4xf32 5xi32", "5x4xf32", "", "dim = 0 : i64, batch_dims = 0 : i64"), "torch_index_select"),
    (Row("stablehlo.add", "f32 f32", "f32", ""), "stablehlo.add has no other dimension to split"),
    (Row("stablehlo.add", "0x4xf32 0x4xf32", "0x4xf32", ""), "needs its dimension 1 unsplit"),
    (Row("stablehlo.sort", "6xf32", "6xf32", "", "dimension = 0 : i64", comparator("FLOAT")), "compares all elements"),
    (
        Row("stablehlo.reduce", "6xf32 f32=0.0", "f32", "", ints("dimensions", 0), monoid("subtract", "f32")),
        "stablehlo.reduce needs dimension 0 of its operand 0 unsplit",
    ),
    (Row("stablehlo.reshape", "2x3xf32", "3x2xf32", ""), "stablehlo.reshape needs its dimensions 0 and 1 unsplit"),
    (Row("stablehlo.constant", "", "3xf32", "", "value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>"), "read in slices"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "reason"), REFUSALS, ids=[f"{row.id}-{number}" for number, (row, _) in enumerate(REFUSALS)]
)
def test_what_is_refused_says_why(row: Row, reason: str) -> None:
    with new_context(), ir.Location.unknown():
        rule = read_rule(ir.Module.parse(row.text))
    assert rule.factors == ()
    assert reason in rule.reason.text


KERNEL = Row("stablehlo.custom_call", "6x4xf32 4xf32", "6xf32", "", 'call_target_name = "my_kernel"')


def test_a_rule_of_the_user_cuts_a_custom_call() -> None:
    with new_context(), ir.Location.unknown():
        rule = read_rule(ir.Module.parse(KERNEL.text), (("my_kernel", "([i,j], [j]) -> ([i])"),))
    assert rule.factors == (Factor(Kind.INDEPENDENT, 6, (DimMapping(0, 6), None), (DimMapping(0, 6),)),)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("([i,j],[j])", "is not of the form"),
        ("[i,j],[j]->[i]", "is not of the form"),
        ("([i,2],[j])->([i])", "where a letter must stand"),
        ("([i,j])->([i])", "names 1 operands and 1 results, the call has 2 and 1"),
        ("([i],[j])->([i])", "has \\[1, 1, 1\\] letters"),
        ("([i,j],[i])->([i])", "gives i to dimensions of 6 and 4"),
    ],
)
def test_a_bad_rule_of_the_user_is_told(text: str, sentence: str) -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(KERNEL.text)
        with pytest.raises((ValueError, InputError), match=sentence):
            factors.read_rules(module, (("my_kernel", text),))


LOOP = """
func.func @main(%a: tensor<6x4xf32>, %p: tensor<i1>) -> tensor<6x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.while(%x = %a) : tensor<6x4xf32>
   cond {
    %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x4xf32>, tensor<f32>) -> tensor<f32>
    %c = stablehlo.compare LT, %s, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
   } do {
    %y = "stablehlo.if"(%p) ({
      %t = stablehlo.tanh %x : tensor<6x4xf32>
      stablehlo.return %t : tensor<6x4xf32>
    }, {
      stablehlo.return %x : tensor<6x4xf32>
    }) : (tensor<i1>) -> tensor<6x4xf32>
    stablehlo.return %y : tensor<6x4xf32>
   }
  %1 = stablehlo.negate %0 : tensor<6x4xf32>
  return %1 : tensor<6x4xf32>
}
func.func private @other(%a: tensor<6xf32>) -> tensor<6xf32> {
  %0 = stablehlo.abs %a : tensor<6xf32>
  return %0 : tensor<6xf32>
}
"""


def test_rules_come_in_the_order_of_the_walk_and_leave_the_module_alone() -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(LOOP)
        before = str(module)
        rules = factors.read_rules(module)
        assert str(module) == before
        blocks = [view.operation.regions[0].blocks[0] for view in module.body.operations]
        names = [op.name.removeprefix("stablehlo.") for block in blocks for op in walk(block)]
    assert names == (
        "constant while reduce compare return if tanh return return return negate func.return abs func.return".split()
    )
    assert len(rules) == len(names)
    counts = dict(zip(names, (len(rule.factors) for rule in rules), strict=True))
    assert (counts["tanh"], counts["reduce"], counts["while"], counts["negate"], counts["abs"]) == (2, 2, 0, 2, 1)
    assert rules[1].reason.text == "stablehlo.while carries it from one step to the next, or returns it unsplit"


def test_slots_of_a_slice_a_pad_and_a_merged_dimension() -> None:
    attributes = ", ".join([ints("start_indices", 2), ints("limit_indices", 7), ints("strides", 1)])
    edges = ", ".join([ints("edge_padding_low", 2), ints("edge_padding_high", 3), ints("interior_padding", 0)])
    with new_context(), ir.Location.unknown():
        (sliced,) = read_rule(ir.Module.parse(Row("stablehlo.slice", "9xf32", "5xf32", "", attributes).text)).factors
        (padded,) = read_rule(ir.Module.parse(Row("stablehlo.pad", "4xf32 f32", "9xf32", "", edges).text)).factors
        (merged,) = read_rule(ir.Module.parse(Row("stablehlo.reshape", "6x4xf32", "24xf32", "").text)).factors
    assert sliced == Factor(Kind.INDEPENDENT, 9, (DimMapping(0, 9),), (DimMapping(0, 5, low=2),))
    assert padded == Factor(Kind.INDEPENDENT, 9, (DimMapping(0, 4, low=2), None), (DimMapping(0, 9),))
    assert merged == Factor(Kind.INDEPENDENT, 6, (DimMapping(0, 6),), (DimMapping(0, 6, inner=4),))


@pytest.mark.parametrize(
    ("einsum", "shapes", "cut"),
    [
        # the letters' sizes must multiply to the dimension's
        (Einsum([[["i"]]], [[["i"]]], {"i": 6}), Shapes(((6,),), ((8,),)), []),
        (Einsum([[["i", "j"]]], [[["i"], ["j"]]], {"i": 3, "j": 2}), Shapes(((7,),), ((3, 2),)), []),
        # only the major letter of a merged dimension is a run of elements
        (Einsum([[["i", "j"]]], [[["i"], ["j"]]], {"i": 3, "j": 2}), Shapes(((6,),), ((3, 2),)), [3]),
        (Einsum([[["u", "i"]]], [[["u"], ["i"]]], {"u": 1, "i": 6}), Shapes(((6,),), ((1, 6),)), [6]),
        # twice in one tensor: a diagonal
        (Einsum([[["i"], ["i"]]], [[["i"]]]), Shapes(((6, 6),), ((6,),)), []),
        # an operand's letter that is missing in the results must be summed over
        (Einsum([[["i"], ["k"]]], [[["i"]]]), Shapes(((6, 5),), ((6,),)), [6]),
        (Einsum([[["i"], ["k"]]], [[["i"]]], summed="k"), Shapes(((6, 5),), ((6,),)), [6, 5]),
        # a letter that only some of the results have, or no operand
        (Einsum([[["i"]]], [[["i"]], []]), Shapes(((6,),), ((6,), ())), []),
        (Einsum([[]], [[["i"]]]), Shapes(((),), ((6,),)), []),
        (Einsum([[["i"]]], [[["i"]]], uncut="i"), Shapes(((6,),), ((6,),)), []),
    ],
)
def test_the_guards_of_a_factor(einsum: Einsum, shapes: Shapes, cut: list[int]) -> None:
    assert [factor.size for factor in factors_of(einsum, shapes)] == cut
