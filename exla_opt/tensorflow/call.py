"""A StableHLO module as a TensorFlow op."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from jaxlib.mlir import ir
from tensorflow.compiler.tf2xla.python.xla import call_module

from exla_opt.ir.context import new_context
from exla_opt.ir.copies import drop_copies
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import inside_out
from exla_opt.ir.write import serialise
from exla_opt.tensorflow.platform import check_release, platform, stablehlo_version

# The version of the op: no later feature is used.
_VERSION = 5
_DTYPES = {
    "i1": tf.bool,
    "i8": tf.int8,
    "i16": tf.int16,
    "i32": tf.int32,
    "i64": tf.int64,
    "ui8": tf.uint8,
    "ui16": tf.uint16,
    "ui32": tf.uint32,
    "ui64": tf.uint64,
    "f16": tf.float16,
    "bf16": tf.bfloat16,
    "f32": tf.float32,
    "f64": tf.float64,
    "complex<f32>": tf.complex64,
    "complex<f64>": tf.complex128,
}


@dataclass(frozen=True, slots=True)
class Module:
    """A program that TensorFlow runs. artifact: a portable artifact in a StableHLO version that TensorFlow reads.

    parameters, results: their (tf.DType, shape), in order. assigned: maps the number of a result to the number of the
    parameter whose variable it is assigned to. draws: whether it draws random numbers, so that a second run differs.
    """

    artifact: bytes
    parameters: tuple[tuple[Any, list[int]], ...]
    results: tuple[tuple[Any, list[int]], ...]
    assigned: dict[int, int]
    draws: bool

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """Run it. tensors: with the parameters' types and shapes."""
        dtypes, shapes = [dtype for dtype, _ in self.results], [shape for _, shape in self.results]
        if not dtypes:
            return []
        found = call_module(
            list(tensors),
            version=_VERSION,
            module=self.artifact,
            Tout=dtypes,
            Sout=shapes,
            platforms=(platform(),),
        )
        return list(found)


def call(module: bytes | str, tensors: Sequence[Any]) -> list[Any]:
    """Run a StableHLO module, such as one from `export` rewritten by `exla-opt`, and return its results.

    module: MLIR text, MLIR bytecode or a portable artifact. tensors: its arguments; variables are read. Works eagerly,
    in tf.function, with jit_compile=True and in a SavedModel; has no gradient. Raises InputError for a module that
    cannot be read, ValueError for arguments of other types or shapes.
    """
    check_release()
    found = _read(module.encode() if isinstance(module, str) else module)
    if len(tensors) != len(found.parameters):
        raise ValueError(f"the module takes {len(found.parameters)} tensors, and {len(tensors)} were given")
    given = [tf.convert_to_tensor(tensor, dtype) for tensor, (dtype, _) in zip(tensors, found.parameters, strict=True)]
    for number, (tensor, (_, shape)) in enumerate(zip(given, found.parameters, strict=True)):
        if not tensor.shape.is_compatible_with(shape):
            raise ValueError(f"tensor {number} is {tensor.shape}, and the module takes {tuple(shape)}")
    return found(given)


@functools.lru_cache(maxsize=64)
def _read(data: bytes) -> Module:
    module = parse_module("<module>", data, new_context()).module
    drop_copies(module)
    return as_module(module)


def as_module(module: ir.Module) -> Module:
    """Convert a module for TensorFlow. Raises InputError for ops that its StableHLO version lacks."""
    main = next(
        view for view in module.body.operations if ir.StringAttr(view.operation.attributes["sym_name"]).value == "main"
    )
    signature = ir.FunctionType(ir.TypeAttr(main.operation.attributes["function_type"]).value)
    return Module(
        serialise(module, "portable", stablehlo_version()),
        tuple(map(_type_of, signature.inputs)),
        tuple(map(_type_of, signature.results)),
        _assigned(module),
        bool(inside_out(module, "stablehlo.rng")),
    )


def _type_of(value_type: ir.Type) -> tuple[Any, list[int]]:
    ranked = ir.RankedTensorType(value_type)
    name = str(ranked.element_type)
    if name not in _DTYPES:
        raise ValueError(f"TensorFlow has no type for {name}, which the module takes or returns")
    return _DTYPES[name], list(ranked.shape)


def _assigned(module: ir.Module) -> dict[int, int]:
    """Map result numbers to the numbers of the parameters whose variables they are assigned to."""
    attributes = module.operation.attributes
    if "mhlo.input_output_alias" not in attributes:
        return {}
    found: dict[int, int] = {}
    for entry in ir.ArrayAttr(attributes["mhlo.input_output_alias"]):
        pair = ir.DictAttr(entry)
        place = list(ir.DenseI64ArrayAttr(pair["output_index"]))
        parameter = ir.IntegerAttr(ir.DictAttr(pair["alias"])["parameter_number"]).value
        found[place[0] if place else 0] = parameter
    return found
