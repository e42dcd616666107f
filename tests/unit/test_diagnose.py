"""exla-opt --diagnose: who holds the memory, and advice that was compiled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner

from exla_opt.advice.checkpoint import checkpoint_advice
from exla_opt.advice.donation import donation_advice
from exla_opt.cli.opt import main
from exla_opt.cli.places import relative
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.rewrite import copy_of
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.report.text import in_users_words
from exla_opt.runtime.judge import judge_of
from exla_opt.sizes import parse_size

EXAMPLE = Path(__file__).parents[2] / "examples" / "attention.mlir"
STEP = """
func.func public @main(%p: tensor<1000x1000xf32>, %g: tensor<1000x1000xf32>{more}) -> tensor<1000x1000xf32> {{
  %0 = stablehlo.subtract %p, %g : tensor<1000x1000xf32>
  return %0 : tensor<1000x1000xf32>
}}"""


def parsed(text: str) -> Any:
    return parse_module("x.mlir", text.encode(), new_context()).module


def measured(text: str) -> tuple[str, int]:
    """The advice to donate, and the peak as it came."""
    measure = judge_of("cpu").measure
    assert measure is not None
    peak = measure(text.encode()).peak
    return donation_advice(parsed(text), measure, peak, 1), peak


def test_what_to_donate_is_confirmed_by_a_compile() -> None:
    advice, peak = measured(STEP.format(more=""))
    assert peak == 12 * 10**6
    assert advice == "donate argument 0 (1000x1000xf32), if it is not used afterwards: peak 8MB, compiled"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("xf32>,", "xf32> {tf.aliasing_output = 0 : i32},"),  # is donated already
        ("-> tensor<1000x1000xf32>", "-> tensor<1000x1000xf64>"),  # no result is of an argument's type
    ],
)
def test_where_nothing_is_to_donate_nothing_is_said(old: str, new: str) -> None:
    text = STEP.format(more="").replace(old, new, 1)
    if "f64" in new:
        text = text.replace("return %0 : tensor<1000x1000xf32>", "return %1 : tensor<1000x1000xf64>").replace(
            "  return", "  %1 = stablehlo.convert %0 : (tensor<1000x1000xf32>) -> tensor<1000x1000xf64>\n  return"
        )
    assert measured(text)[0] == ""


def test_advice_that_saves_nothing_is_dropped() -> None:
    module = parsed(STEP.format(more=""))

    def measure(data: bytes) -> Any:
        assert b"tf.aliasing_output" in data
        return type("Measured", (), {"peak": 100})

    assert donation_advice(module, measure, 100, 1) == ""
    assert "peak 100B" in donation_advice(module, measure, 101, 1)


def test_what_is_recomputed_is_where_checkpoint_helps() -> None:
    def loss(weights: Any, x: Any) -> Any:
        for one, other in weights:
            x = x + jax.nn.gelu(x @ one) @ other
        return (x**2).mean()

    shape: Any = jax.ShapeDtypeStruct
    layer = (shape((32, 128), jnp.float32), shape((128, 32), jnp.float32))
    text = jax.jit(jax.grad(loss)).lower([layer] * 4, shape((2048, 32), jnp.float32)).as_text(debug_info=True)
    measure = judge_of("cpu").measure
    assert measure is not None
    peak = measure(text.encode()).peak
    advice = checkpoint_advice(parsed(text), Options(), measure, peak, 1, str)
    assert re.match(r"jax.checkpoint around .*test_diagnose.py:\d+:\d+", advice)
    found = re.search(r"peak (\S+), compiled", advice)
    assert found is not None
    assert parse_size(found[1]) < peak


def test_an_order_of_chains_is_no_place_for_checkpoint() -> None:
    def chains(matrices: list[Any]) -> Any:
        return [(each @ each @ each.T @ each).sum() for each in matrices]

    matrices = [jax.ShapeDtypeStruct((256, 256), jnp.float32)] * 4
    text = jax.jit(chains).lower(matrices).as_text(debug_info=True)
    measure = judge_of("cpu").measure
    assert measure is not None
    module = parsed(text)
    remarks = run_pipeline(copy_of(module), ("normalise", "recompute"), Options(memory_limit=1)).remarks
    assert {remark.code for remark in remarks} == {"EX017"}
    assert checkpoint_advice(module, Options(), measure, measure(text.encode()).peak, 1, str) == ""


def test_the_diagnosis() -> None:
    result = CliRunner().invoke(main, [str(EXAMPLE), "--diagnose"])
    assert result.exit_code == 0, result.output
    assert re.match(rf"{EXAMPLE.name}|.*{EXAMPLE.name}: peak 1\d\dMB, as XLA compiles it", result.stdout)
    assert "67.1MB  4096x4096xf32  stablehlo.dot_general at " in result.stdout
    assert re.search(r"fits into \S+MB, in slices of ", result.stdout)
    assert "[tensor-splitter, EX001]" in result.stdout
    assert "module" not in result.stdout


@pytest.mark.parametrize("option", ["--split-size=1MB", "--output=x.mlir", "--check", "--strict", "--summary"])
def test_a_diagnosis_writes_nothing(option: str) -> None:
    more = ["--memory-limit=1GB"] if option == "--strict" else []
    result = CliRunner().invoke(main, [str(EXAMPLE), "--diagnose", option, *more])
    assert result.exit_code == 2
    assert "--diagnose writes no module" in result.stderr


def test_places_are_relative_to_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert relative(f"{tmp_path}/model.py:3:4") == "model.py:3:4"
    assert relative("/elsewhere/model.py:3:4") == "/elsewhere/model.py:3:4"
    assert in_users_words(f"due to 4xf32 at {tmp_path}/model.py:3:4", "m.mlir") == "due to 4xf32 at model.py:3:4"
    assert in_users_words("due to 4xf32 at <stdin>:3:4", "m.mlir") == "due to 4xf32 at m.mlir:3:4"
    assert relative("model.py:3:4") == "model.py:3:4"
