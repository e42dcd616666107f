"""StableHLO's own self-checking modules, from an archive of its folder stablehlo/testdata: EXLA_OPT_TESTDATA names it.

Each calls `@inputs` and `@expected` and ends in `check.expect_*(result, expected)`. Here its inputs become arguments,
so that XLA does not fold all away, and what is checked is returned. Results and arguments cannot be cut, so there is
a second form, in which the inputs come out of products with identity matrices and the results go into others.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from exla_opt.ir.context import new_context
from exla_opt.ir.write import serialise
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.inputs import Array, read_signature
from tests.corpus.check import Export

_BESIDE = Path(__file__).parents[2].parent / "shared" / "corpus" / "stablehlo-testdata.tar.xz"
ARCHIVE = Path(os.environ.get("EXLA_OPT_TESTDATA", _BESIDE))
_NUMBERS = "f16 bf16 f32 f64 i8 i16 i32 i64 ui8 ui16 ui32 ui64 complex<f32> complex<f64>".split()


@dataclass(frozen=True, slots=True)
class Checked:
    """A module that returns (result, ...), in both forms, and what the results should be."""

    direct: Export
    within: Export
    expected: tuple[Array, ...]


@cache
def names() -> list[str]:
    """The names of the modules, in order."""
    return sorted(_texts())


def load(name: str) -> Checked:
    """The module of this name."""
    text = _texts()[name]
    with new_context() as context:
        module = ir.Module.parse(text, context)
        inputs, expected = _constants(module)
        main = _main(module)
        _return_what_is_checked(main)
        _take_arguments(main)
        direct = serialise(module, "text").decode()
        within, extra = _embed(direct, ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value))
        kinds = read_signature(ir.Module.parse(within, context)).arguments
    fill = tuple(array.astype(kind.dtype) for array, kind in zip((*inputs, *extra), kinds, strict=True))
    return Checked(Export(name, direct, (inputs,)), Export(f"{name}: within", within, (fill,)), expected)


@cache
def _texts() -> dict[str, str]:
    with tarfile.open(ARCHIVE) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {
            Path(name).stem: file.read().decode() for name, file in files.items() if file and name.endswith(".mlir")
        }


def _main(module: ir.Module) -> ir.Operation:
    return next(
        view.operation
        for view in module.body.operations
        if ir.StringAttr(view.operation.attributes["sym_name"]).value == "main"
    )


def _callee(op: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(op.attributes["callee"]).value if op.name == "func.call" else ""


def _is_check(op: ir.Operation) -> bool:
    return op.name == "stablehlo.custom_call" and "check." in str(op.attributes["call_target_name"])


def _return(main: ir.Operation, values: Sequence[ir.Value]) -> None:
    """End the function with these results, in the place of what it returned."""
    block = main.regions[0].blocks[0]
    *_, terminator = block.operations
    with ir.InsertionPoint(terminator), ir.Location.unknown(main.context):
        func.ReturnOp(values)
    terminator.operation.erase()
    kinds = [argument.type for argument in block.arguments], [value.type for value in values]
    with main.context:
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
    for name in ("res_attrs", "arg_attrs"):
        if name in main.attributes:
            del main.attributes[name]


def _constants(module: ir.Module) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """What @inputs and @expected return, computed by running them alone."""
    copy = ir.Module.parse(serialise(module, "bytecode"), module.context)
    main = _main(copy)
    ops = [view.operation for view in main.regions[0].blocks[0].operations]
    inputs = [result for op in ops if _callee(op) == "inputs" for result in op.results]
    expected = [op.operands[1] for op in ops if _is_check(op)]
    for op in ops:
        if _is_check(op):
            op.erase()
    _return(main, [*inputs, *expected])
    results = run_program(compile_program(serialise(copy, "bytecode")), [])
    return tuple(results[: len(inputs)]), tuple(results[len(inputs) :])


def _return_what_is_checked(main: ir.Operation) -> None:
    checks = [view.operation for view in main.regions[0].blocks[0].operations if _is_check(view.operation)]
    results = [op.operands[0] for op in checks]
    for op in checks:
        op.erase()
    _return(main, results)


def _take_arguments(main: ir.Operation) -> None:
    """Make the results of @inputs arguments."""
    block = main.regions[0].blocks[0]
    *ops, terminator = [view.operation for view in block.operations]
    for op in ops:
        if _callee(op) == "inputs":
            for result in op.results:
                result.replace_all_uses_with(block.add_argument(result.type, op.location))
            op.erase()
    _return(main, list(terminator.operands))


def _embed(text: str, kind: ir.FunctionType) -> tuple[str, tuple[Array, ...]]:
    """The module's @main between products: of its arguments with identities, of its results with weights."""
    arguments = [f"%a{number}: {item}" for number, item in enumerate(kind.inputs)]
    lines: list[str] = []
    extra: list[Array] = []
    others: list[str] = []
    given, returned, results = [], [], []
    for number, item in enumerate(kind.inputs):
        given.append(f"%a{number}")
        if shape := _shape(item):
            square = _tensor((shape[-1], shape[-1]), item)
            others.append(f"%i{number}: {square}")
            extra.append(np.eye(shape[-1]))
            lines.append(_dot(f"%x{number}", given[-1], item, f"%i{number}", square, item, len(shape) - 1))
            given[-1] = f"%x{number}"
    called = f"%r:{len(kind.results)}" if len(kind.results) > 1 else "%r"
    lines.append(f"  {called} = call @inner({', '.join(given)}) : {kind}")
    for number, item in enumerate(kind.results):
        results.append(f"%r#{number}" if len(kind.results) > 1 else "%r")
        returned.append(str(item))
        if shape := _shape(item):
            vector, rest = _tensor(shape[-1:], item), _tensor(shape[:-1], item)
            others.append(f"%w{number}: {vector}")
            extra.append(np.arange(shape[-1]) % 7 + 1)
            lines.append(_dot(f"%y{number}", results[-1], item, f"%w{number}", vector, rest, len(shape) - 1))
            results[-1], returned[-1] = f"%y{number}", rest
    head = f"func.func public @main({', '.join(arguments + others)}) -> ({', '.join(returned)}) {{"
    tail = f"  return {', '.join(results)} : {', '.join(returned)}"
    return "\n".join([*_inner(text), head, *lines, tail, "}", "}"]), tuple(extra)


def _inner(text: str) -> Iterator[str]:
    first, *rest = text[: text.rindex("}")].splitlines()
    yield first
    yield from (line.replace("func.func public @main(", "func.func private @inner(") for line in rest)


def _shape(kind: ir.Type) -> tuple[int, ...]:
    """The shape of a tensor of numbers that products are made of; () for all others."""
    tensor = ir.RankedTensorType(kind)
    return tuple(tensor.shape) if str(tensor.element_type) in _NUMBERS and 0 not in tensor.shape else ()


def _tensor(shape: Sequence[int], like: ir.Type) -> str:
    return f"tensor<{'x'.join([*map(str, shape), str(ir.RankedTensorType(like).element_type)])}>"


def _dot(result: str, left: str, kind: object, right: str, other: str, made: object, dim: int) -> str:
    types = f"({kind}, {other}) -> {made}"
    return f"  {result} = stablehlo.dot_general {left}, {right}, contracting_dims = [{dim}] x [0] : {types}"
