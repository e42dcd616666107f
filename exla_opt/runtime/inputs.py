"""The input arrays of a run: from a .npz file, or random."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from jaxlib.mlir import ir

from exla_opt.ir.attributes import replicas_of
from exla_opt.ir.diagnostics import InputError, error_at

Array = npt.NDArray[Any]

_DTYPES: dict[str, type] = {
    "i1": np.bool_,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
    "i2": ml_dtypes.int2,
    "i4": ml_dtypes.int4,
    "ui2": ml_dtypes.uint2,
    "ui4": ml_dtypes.uint4,
    **{f"i{bits}": np.dtype(f"int{bits}").type for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}").type for bits in (8, 16, 32, 64)},
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "f8E3M4": ml_dtypes.float8_e3m4,
    "f8E4M3": ml_dtypes.float8_e4m3,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
}

# Random integers often are indices or labels, so most are small and not negative.
_INTEGER_LOW, _INTEGER_HIGH = -2, 10

# Products of larger matrices take long.
_MATRIX_RANK, _MOST_DEFINITE = 2, 2**22


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A tensor's shape and NumPy dtype, printed as in `float32[4,3]`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """The argument and result types of @main, and how many replicas of it run."""

    arguments: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]
    replicas: int = 1


def read_signature(module: ir.Module) -> Signature:
    """The signature of @main.

    Raises InputError if there is no @main, which XLA runs, or if NumPy has no arrays of one of its types.
    """
    for view in module.body.operations:
        function = view.operation
        if function.name == "func.func" and ir.StringAttr(function.attributes["sym_name"]).value == "main":
            kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
            return Signature(
                tuple(_array_type(f"argument {number}", item, function) for number, item in enumerate(kind.inputs)),
                tuple(_array_type(f"result {number}", item, function) for number, item in enumerate(kind.results)),
                replicas_of(module),
            )
    raise InputError("the module has no function @main, which is the one that XLA runs")


def difference(signatures: Sequence[Signature], names: Sequence[str]) -> str:
    """The first difference between the signatures of two modules of these names, as a clause; "" if there is none."""
    (one, other), (name, other_name) = signatures, names
    for what, mine, others in (("argument", one.arguments, other.arguments), ("result", one.results, other.results)):
        if len(mine) != len(others):
            return f"{len(mine)} {what}{'s' * (len(mine) != 1)} in {name}, {len(others)} in {other_name}"
        for number, (kind, other_kind) in enumerate(zip(mine, others, strict=True)):
            if kind != other_kind:
                return f"{what} {number} is {kind} in {name} and {other_kind} in {other_name}"
    if one.replicas != other.replicas:
        counts = [f"{count} replica{'s' * (count != 1)}" for count in (one.replicas, other.replicas)]
        return f"{counts[0]} in {name}, {counts[1]} in {other_name}"
    return ""


def _array_type(name: str, kind: ir.Type, function: ir.Operation) -> ArrayType:
    if isinstance(kind, ir.RankedTensorType) and (dtype := _DTYPES.get(str(kind.element_type))) is not None:
        return ArrayType(tuple(kind.shape), np.dtype(dtype))
    raise error_at(function.location, f"{name} of @main has type {kind}, which is not an array")


class Kind(Enum):
    """The kind of an argument's random floats: standard normal, between 0 and 1, or positive definite matrices."""

    NORMAL = "normal"
    UNIT = "between 0 and 1"
    DEFINITE = "positive definite"


def can_be(kind: Kind, argument: ArrayType) -> bool:
    """Whether an argument can be drawn so: any float can, as matrices only if square in the last two dimensions."""
    dtype, shape = argument.dtype, argument.shape
    if dtype == np.bool_ or dtype.kind == "c" or "int" in dtype.name:
        return kind is Kind.NORMAL
    square = len(shape) >= _MATRIX_RANK and shape[-1] == shape[-2] > 1 and prod(shape) <= _MOST_DEFINITE
    return kind is not Kind.DEFINITE or square


def random_inputs(
    signature: Signature, seed: int, scales: Mapping[int, float] | None = None, kinds: Mapping[int, Kind] | None = None
) -> list[Array]:
    """Draw one array for each argument, the same for the same seed.

    Floats and both parts of complex numbers are standard normal, integers small and mostly not negative, booleans
    equally often true and false. Raises InputError when they do not fit in memory.

    scales: by argument number, the factor of its normal numbers. kinds: of the arguments that are not normal.
    """
    generator = np.random.default_rng(seed)
    scales, kinds = scales or {}, kinds or {}
    try:
        return [
            _random_array(generator, argument, scales.get(number, 1.0), kinds.get(number, Kind.NORMAL))
            for number, argument in enumerate(signature.arguments)
        ]
    except MemoryError:
        raise InputError("the arguments of @main do not fit in this machine's memory") from None


def _random_array(generator: np.random.Generator, argument: ArrayType, scale: float, kind: Kind) -> Array:
    dtype, shape = argument.dtype, argument.shape
    if dtype == np.bool_:
        return generator.integers(0, 2, shape).astype(dtype)
    if integer := re.fullmatch(r"(u?)int(\d+)", dtype.name):
        low = 0 if integer[1] else _INTEGER_LOW
        high = min(_INTEGER_HIGH, 2 ** (int(integer[2]) - (not integer[1])))
        return generator.integers(low, high, shape).astype(dtype)
    if dtype.kind == "c":
        parts = generator.standard_normal((2, *shape)) * scale
        return np.asarray(parts[0] + 1j * parts[1]).astype(dtype)
    # Half the memory of float64; every narrower float is rounded from it just as well.
    drawn = np.float64 if dtype == np.float64 else np.float32
    numbers: npt.NDArray[np.floating[Any]] = np.asarray(generator.standard_normal(shape, drawn))
    if kind is Kind.UNIT:  # by the logistic function, away from 0 and 1
        numbers = 0.05 + 0.9 / (1 + np.exp(-numbers))
    elif kind is Kind.DEFINITE:
        numbers = numbers @ np.swapaxes(numbers, -1, -2) / shape[-1] + np.eye(shape[-1], dtype=drawn)
    elif scale != 1.0:
        numbers = numbers * drawn(scale)
    return numbers.astype(dtype, copy=False)


def load_inputs(path: str, signature: Signature) -> list[Array]:
    """The arrays `arg0`, `arg1`, ... of the .npz file at `path`, one for each argument; other entries are ignored.

    Raises InputError when the file cannot be read, or an array is missing or of another shape or dtype.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            names = [f"arg{number}" for number in range(len(signature.arguments))]
            _check_names(path, names, archive.files)
            arrays = [archive[name] for name in names]
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot open the inputs: {error.strerror or error}", file=path) from None
    except Exception:  # of a damaged archive NumPy and zipfile raise nearly anything
        raise InputError("the inputs are not an .npz archive of plain arrays", file=path) from None
    return [
        _checked(path, name, array, kind) for name, array, kind in zip(names, arrays, signature.arguments, strict=True)
    ]


def _check_names(path: str, names: Sequence[str], found: Sequence[str]) -> None:
    if missing := [name for name in names if name not in found]:
        raise InputError(
            f"the inputs have no {missing[0]}: @main takes {len(names)} argument{'s' * (len(names) != 1)}",
            file=path,
            help=f"the archive holds {', '.join(found) or 'nothing'}",
        )
    if f"arg{len(names)}" in found:
        raise InputError(f"the inputs have arg{len(names)}, but @main takes {len(names)} arguments", file=path)


def _checked(path: str, name: str, array: Array, kind: ArrayType) -> Array:
    if array.dtype.kind == "V" and array.dtype.itemsize == kind.dtype.itemsize and array.dtype.names is None:
        array = array.view(kind.dtype)  # .npz keeps the bytes of bfloat16 and similar types, but not their name
    if (array.shape, array.dtype) != (kind.shape, kind.dtype):
        actual = ArrayType(array.shape, array.dtype)
        raise InputError(f"{name} is {actual}, but @main takes {kind}", file=path)
    return array
