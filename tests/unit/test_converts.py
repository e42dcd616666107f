"""Pairs of converts: what rce makes of every three types, executed on the ends of their ranges, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.options import Options
from exla_opt.passes import rce
from exla_opt.runtime.inputs import Array
from tests.execute import defined_by, run_module

_DTYPES: dict[str, type] = {
    "i1": np.bool_,
    **{f"i{bits}": getattr(np, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": getattr(np, f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64},
}


def _numbers(dtype: type) -> Array:
    """The ends of the range, what is next to them and to powers of two where other types end, and all in between."""
    if dtype is np.bool_:
        return np.array([False, True])
    if issubclass(dtype, np.integer):
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        near = [sign * 2**power + step for power in range(64) for sign in (1, -1) for step in range(-3, 4)]
        return np.array(sorted({number for number in [least, most, *near] if least <= number <= most}), dtype)
    sixteen = np.arange(0, 2**16, 7, dtype=np.uint16).view(
        ml_dtypes.bfloat16 if dtype is ml_dtypes.bfloat16 else np.float16
    )
    return sixteen.astype(dtype) if np.dtype(dtype).itemsize == 2 else _reals(dtype)


def _reals(dtype: type) -> Array:
    random = np.random.default_rng(0)
    some = random.standard_normal(1000) * 2.0 ** random.integers(-40, 70, 1000)
    powers = 2.0 ** np.arange(-30.0, 70.0)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5])
    return np.concatenate([some, powers, -powers, powers - 1, powers + 1, ends]).astype(dtype)


def _text(narrow: str, size: int, pairs: Sequence[tuple[str, str]]) -> str:
    lines = [
        f"%w{index} = stablehlo.convert %x : (tensor<{size}x{narrow}>) -> tensor<{size}x{wide}>\n"
        f"%l{index} = stablehlo.convert %w{index} : (tensor<{size}x{wide}>) -> tensor<{size}x{last}>"
        for index, (wide, last) in enumerate(pairs)
    ]
    types = ", ".join(f"tensor<{size}x{last}>" for _, last in pairs)
    returned = ", ".join(f"%l{index}" for index in range(len(pairs)))
    head = f"func.func @main(%x: tensor<{size}x{narrow}>) -> ({types}) {{"
    return "\n".join([head, *lines, f"return {returned} : {types}", "}"])


def _is_changed(value: ir.Value) -> bool:
    return isinstance(value, ir.BlockArgument) or isinstance(defined_by(value).operands[0], ir.BlockArgument)


@pytest.mark.parametrize("narrow", _DTYPES)
def test_two_converts_or_one_give_the_same_bits(narrow: str) -> None:
    """Every pair of converts that starts at this type and that rce makes one."""
    numbers = _numbers(_DTYPES[narrow])
    pairs = list(product(_DTYPES, _DTYPES))
    with new_context() as context:
        module = ir.Module.parse(_text(narrow, len(numbers), pairs), context)
        rce.run(module, Options())
        *_, end = next(iter(module.body.operations)).regions[0].blocks[0].operations
        pairs = [pair for pair, value in zip(pairs, end.operands, strict=True) if _is_changed(value)]
        text = _text(narrow, len(numbers), pairs)
        module = ir.Module.parse(text, context)
        rce.run(module, Options())
        before, after = run_module(text, [numbers]), run_module(module, [numbers])
    assert pairs
    for pair, one, other in zip(pairs, before, after, strict=True):
        assert one.tobytes() == other.tobytes(), f"{narrow} -> {' -> '.join(pair)}"
