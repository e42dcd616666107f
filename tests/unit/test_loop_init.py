"""What a loop starts from, made to wait for the loop's input: it must be the same numbers whatever the input is."""

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.context import new_context
from exla_opt.ir.loops import after_input
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.runtime.compile import compile_program, run_program

_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "complex<f32>": "complex64",
    "i1": "bool",
    "i8": "int8",
    "ui8": "uint8",
    "i64": "int64",
}


@pytest.mark.parametrize("start", [0.0, -2.5])
@pytest.mark.parametrize("name", _DTYPES)
def test_the_start_is_the_same_for_every_input(name: str, start: float) -> None:
    import ml_dtypes  # noqa: F401  names the narrow dtypes for numpy

    rows = 2**18
    dtype = np.dtype(_DTYPES[name])
    text = f"""
    func.func @main(%x: tensor<2x3x{name}>) -> tensor<{rows}xf32> {{
      %start = stablehlo.constant dense<{start}> : tensor<f32>
      %whole = stablehlo.broadcast_in_dim %start, dims = [] : (tensor<f32>) -> tensor<{rows}xf32>
      return %whole : tensor<{rows}xf32>
    }}"""
    with new_context() as context:
        module = parse_module("test", text.encode(), context).module
        block = module.body.operations[0].regions[0].blocks[0]
        end = list(block.operations)[-1].operation
        with ir.InsertionPoint(end), ir.Location.unknown():
            initial = end.operands[0] if start else build.zeros(end.operands[0].type)
            end.operands[0] = after_input(initial, block.arguments[0], 4 * rows)
            assert end.operands[0] != initial
        module.operation.verify()
        program = compile_program(serialise(module, "bytecode"))
    [compiled] = program.executable.hlo_modules()
    assert compiled.to_string().count("compare(") == 2  # XLA has not found out what is never true
    for number in (0, 1) if dtype.kind in "b" else (0, 1, 3, *(() if dtype.kind in "iu" else (np.nan, -1.5))):
        (result,) = run_program(program, [np.full((2, 3), number).astype(dtype)])
        np.testing.assert_array_equal(result, np.full(rows, start, np.float32))
