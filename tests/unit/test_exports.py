"""JAX's public functions as test programs: each in the middle of big tensors, its gradient, and a batch of it.

A fixed sample of the functions runs by default, all of them with EXLA_OPT_CORPUS=all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.options import Options
from exla_opt.pipeline import PASSES
from exla_opt.remarks import Remark
from tests.corpus.arguments import NoArgumentsError
from tests.corpus.check import OPTIONS, Export, check, merge, rewrite
from tests.corpus.exports import exports
from tests.corpus.functions import public_functions
from tests.corpus.tables import rows_of
from tests.corpus.tally import SPLIT, Tally, tally
from tests.execute import random_arguments, run_module

SAMPLE = """
    jax.lax.conv_general_dilated jax.lax.scan jax.nn.softmax jax.numpy.cumsum jax.numpy.einsum jax.numpy.median
    jax.numpy.linalg.qr jax.numpy.take_along_axis jax.ops.segment_max jax.scipy.signal.convolve2d jax.scipy.signal.istft
""".split()
NAMES = sorted(public_functions()) if os.environ.get("EXLA_OPT_CORPUS") == "all" else SAMPLE


DOUBLED = """
func.func public @main(%x: tensor<4x40xf32>, %y: tensor<40x30xf32>, %w: tensor<30xf32>) -> tensor<4xf32> {
  %k = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4x40xf32>, tensor<40x30xf32>) -> tensor<4x30xf32>
  %s = stablehlo.sine %k : tensor<4x30xf32>
  %r = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<4x30xf32>, tensor<30xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def test_a_merged_module_tells_its_parts_apart() -> None:
    other = DOUBLED.replace("sine", "cosine")
    arrays = random_arguments(DOUBLED)
    texts = [rewrite(text, ()) for text in (DOUBLED, other, DOUBLED)]
    first, second, third = run_module(merge(texts), arrays)
    assert np.array_equal(first, third)
    assert np.array_equal(first, run_module(DOUBLED, arrays)[0])
    assert np.array_equal(second, run_module(other, arrays)[0])
    assert not np.allclose(first, second)


def test_a_wrong_pass_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(module: ir.Module, options: Options) -> list[Remark]:
        for op in module.body.operations[0].regions[0].blocks[0].operations:
            if isinstance(op, stablehlo.SineOp):
                with ir.InsertionPoint(op), op.location:
                    op.result.replace_all_uses_with(stablehlo.CosineOp(op.operands[0]).result)
        return []

    export = Export("doubled", DOUBLED, (tuple(random_arguments(DOUBLED)),))
    assert check(export).wrong == ()
    monkeypatch.setitem(PASSES, "rce", spoil)
    assert check(export).wrong


def test_every_big_tensor_is_counted() -> None:
    options = Options(size_threshold=200, split_size=100)
    assert tally(DOUBLED, options) == {("stablehlo.dot_general", SPLIT, ""): 1, ("stablehlo.sine", SPLIT, ""): 1}
    kept = DOUBLED.replace("return %r : tensor<4xf32>", "return %s : tensor<4x30xf32>").replace(
        "-> tensor<4xf32> {", "-> tensor<4x30xf32> {"
    )
    assert ("stablehlo.sine", SPLIT, "") not in tally(kept, options)
    assert tally(kept, options).total() == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")  # what JAX says of odd arguments
def test_function(name: str, record_property: Callable[[str, object], None]) -> None:
    problems: list[str] = []
    total: Tally = Counter()
    modules = moving = on_edge = 0
    try:
        for export in exports(name, public_functions()[name]):
            modules += 1
            verdict = check(export)
            problems += verdict.wrong
            moving += verdict.moving
            on_edge += verdict.on_edge > 0
            total += tally(export.text, OPTIONS)
    except NoArgumentsError as error:
        record_property("left out", error.kind)
        pytest.skip(str(error))
    record_property("modules", modules)
    record_property("tally", rows_of(total))
    record_property("changed by a second run", moving)
    record_property("on an edge", on_edge)
    assert not problems
    assert modules or name not in SAMPLE
