"""The tool as a library."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exla_opt
from exla_opt.ir.diagnostics import InputError

OPTIONS = exla_opt.Options(size_threshold=64_000, split_size=32_000)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T, axis=-1) @ v


def arguments() -> list[jax.Array]:
    return [jax.random.normal(jax.random.key(seed), (301, 8)) for seed in range(3)]


def test_jit_computes_the_same_in_a_loop() -> None:
    split = exla_opt.jit(attention, OPTIONS)
    np.testing.assert_allclose(split(*arguments()), attention(*arguments()), rtol=1e-4, atol=1e-5)


def test_jit_takes_gradients_pytrees_and_new_shapes() -> None:
    def loss(inputs: dict[str, jax.Array]) -> jax.Array:
        return jnp.sum(attention(inputs["q"], inputs["k"], inputs["v"]) ** 2)

    split = exla_opt.jit(jax.grad(loss), OPTIONS)
    for rows in (301, 200):
        inputs = dict(zip("qkv", (x[:rows] for x in arguments()), strict=True))
        expected = jax.grad(loss)(inputs)
        for name, value in split(inputs).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-4)


def test_optimize_text_and_bytes() -> None:
    exported = jax.export.export(jax.jit(attention))(*arguments())
    text = exla_opt.optimize(exported.mlir_module(), OPTIONS)
    assert isinstance(text, str) and "stablehlo.while" in text and "301x301" not in text
    artifact = exla_opt.optimize(exported.mlir_module_serialized, OPTIONS)
    assert isinstance(artifact, bytes) and b"StableHLO_v" in artifact[:64]


def test_optimize_says_what_is_wrong() -> None:
    with pytest.raises(InputError, match="empty"):
        exla_opt.optimize("")


def test_options_check_their_sizes() -> None:
    with pytest.raises(ValueError, match="split_size"):
        exla_opt.Options(size_threshold=10, split_size=20)


def test_importing_the_package_does_not_import_jax() -> None:
    code = "import sys, exla_opt, exla_opt.pipeline; sys.exit('jax' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
