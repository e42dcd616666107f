"""Unmodified GPflow models under `gpflow.optimizers.Scipy().minimize`, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make test-tensorflow")
pytest.importorskip("gpflow", reason="GPflow is not installed: make test-tensorflow")

# A kernel matrix of 64 x 150,000 doubles takes 77 MB, and an evaluation has several of them.
TRAINING = """
import resource, sys
import gpflow, numpy as np, tensorflow as tf
import exla_opt.tensorflow

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

generator = np.random.default_rng(0)
x = generator.uniform(size=(150_000, 2))
y = np.sin(5 * x.sum(1, keepdims=True)) + 0.1 * generator.standard_normal((len(x), 1))
kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])
model = gpflow.models.SGPR((x, y), kernel=kernel, inducing_variable=x[:64].copy())
loss = model.training_loss
if sys.argv[1] == "sliced":
    fast = exla_opt.tensorflow.function(loss, size_threshold="8MB")
else:
    fast = tf.function(loss, jit_compile=True)
before = peak()
found = gpflow.optimizers.Scipy().minimize(fast, model.trainable_variables, options={"maxiter": 3})
print(found.fun, found.nfev, peak() - before)
"""


def trained(how: str) -> tuple[float, int, float]:
    """The loss, the number of evaluations, and the MB by which the process grew."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, how], check=True, timeout=300, capture_output=True, text=True
    )
    loss, count, grown = done.stdout.split()[-3:]
    return float(loss), int(count), float(grown)


def test_sparse_regression_trains_to_the_same_loss_in_less_memory() -> None:
    loss, count, grown = trained("plain")
    sliced_loss, sliced_count, sliced_grown = trained("sliced")
    assert sliced_count == count
    np.testing.assert_allclose(sliced_loss, loss, rtol=1e-6)
    assert sliced_grown < grown / 2, "of the process, with all that the rewriting takes"
