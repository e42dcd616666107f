"""The tool as a library: programs of every kind."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.mlir import ir

import exla_opt
from exla_opt.ir.context import new_context
from exla_opt.sizes import parse_size

SIZES: dict[str, Any] = {"size_threshold": "64KB", "split_size": 32_000}


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T, axis=-1) @ v


def arguments() -> list[jax.Array]:
    return [jax.random.normal(jax.random.key(seed), (301, 8)) for seed in range(3)]


def close(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), one, other)


def test_text_bytes_and_modules_come_out_as_they_came() -> None:
    exported = jax.export.export(jax.jit(attention))(*arguments())
    text = exla_opt.optimize(exported.mlir_module(), **SIZES)
    assert "stablehlo.while" in text.program and "301x301" not in text.program
    artifact = exla_opt.optimize(exported.mlir_module_serialized, **SIZES).program
    assert isinstance(artifact, bytes) and b"StableHLO_v" in artifact[:64]
    with new_context() as context:
        module = ir.Module.parse(exported.mlir_module(), context)
        smaller = exla_opt.optimize(module, **SIZES).program
        assert isinstance(smaller, ir.Module) and "stablehlo.while" in str(smaller)
        assert "stablehlo.while" not in str(module)


def test_the_result_says_what_was_done() -> None:
    text = jax.export.export(jax.jit(attention))(*arguments()).mlir_module()
    found = exla_opt.optimize(text, **SIZES)
    assert found.peak_after < found.peak_before / 2
    assert (found.compiled, found.fits) == (False, None)
    assert any(remark.tensor == "301x301xf32" for remark in found.remarks)
    assert "Peak memory" in found.summary and "301x301xf32" in found.summary


@pytest.mark.parametrize(("limit", "fits"), [("200KB", True), ("40KB", False)])
def test_a_limit_is_met_or_said_not_to_be(limit: str, fits: bool) -> None:
    text = jax.export.export(jax.jit(attention))(*arguments()).mlir_module()
    found = exla_opt.optimize(text, memory_limit=limit)
    assert (found.fits, found.compiled) == (fits, True)
    assert (found.peak_after <= parse_size(limit)) == fits


def test_an_exported_function_is_called_and_differentiated_as_before() -> None:
    exported = jax.export.export(jax.jit(attention))(*arguments())
    smaller = exla_opt.optimize(exported, **SIZES).program

    def loss(call: Any) -> Any:
        return jax.grad(lambda *given: jnp.sum(call(*given) ** 2), (0, 1, 2))

    assert "stablehlo.while" in smaller.mlir_module() and "stablehlo.while" in smaller.vjp().mlir_module()
    close(smaller.call(*arguments()), attention(*arguments()))
    close(loss(smaller.call)(*arguments()), loss(attention)(*arguments()))


def test_what_jax_lowered_is_compiled_and_run_as_before() -> None:
    lowered = jax.jit(attention).lower(*arguments())
    smaller = exla_opt.optimize(lowered, **SIZES).program
    assert "stablehlo.while" in smaller.as_text() and "stablehlo.while" not in lowered.as_text()
    before, after = lowered.compile(), smaller.compile()
    close(after(*arguments()), before(*arguments()))
    before_bytes, after_bytes = [
        analysis.temp_size_in_bytes for each in (before, after) if (analysis := each.memory_analysis())
    ]
    assert after_bytes < before_bytes / 2


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(exla_opt.InputError, match="empty"):
        exla_opt.optimize("")
    with pytest.raises(ValueError, match="split_size"):
        exla_opt.optimize("", size_threshold=10, split_size=20)
    with pytest.raises(ValueError, match="memory_limit chooses"):
        exla_opt.optimize("", size_threshold=10, memory_limit="1GB")
    with pytest.raises(ValueError, match="not a size"):
        exla_opt.optimize("", memory_limit="much")
    with pytest.raises(ValueError, match="memory_limit must be at least one byte"):
        exla_opt.jit(attention, memory_limit=0)
    with pytest.raises(exla_opt.InputError, match="neither a GPU that is known"):
        exla_opt.jit(attention, target="cuda:h20")
    with pytest.raises(TypeError, match="unknown keyword 'memory_limt': there are .*memory_limit"):
        exla_opt.optimize("", memory_limt="1GB")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="takes text, .*, not int"):
        exla_opt.optimize(3)  # type: ignore[call-overload]
    with pytest.raises(exla_opt.InputError, match="no such target"):
        text = jax.export.export(jax.jit(attention))(*arguments()).mlir_module()
        exla_opt.optimize(text, target="vax", memory_limit="1GB")


def test_importing_the_package_does_not_load_the_bindings() -> None:
    code = "import sys, exla_opt; sys.exit(any(name in sys.modules for name in ('jax', 'rich', 'jaxlib')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    code = "import sys, exla_opt.pipeline; sys.exit('jax' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_text_is_rewritten_without_jax() -> None:
    text = jax.jit(attention).lower(*arguments()).as_text()
    code = "import sys, exla_opt; exla_opt.optimize(sys.stdin.read()); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], input=text, text=True, check=False).returncode == 0
