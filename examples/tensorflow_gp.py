"""A sparse Gaussian process of GPflow, trained by SciPy with `exla_opt.tensorflow.function` and without.

    pip install 'exla-opt[tensorflow]' gpflow
    python examples/tensorflow_gp.py jit
    python examples/tensorflow_gp.py sliced --size=8MB

One process for each, so that each prints a peak of its own.
"""

from __future__ import annotations

import argparse
import resource
import time

import gpflow
import numpy as np
import tensorflow as tf

import exla_opt.tensorflow


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Train, and print the loss, the seconds of an evaluation and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=["jit", "sliced"])
    parser.add_argument("--size", default="8MB")
    parser.add_argument("--points", type=int, default=150_000)
    parser.add_argument("--inducing", type=int, default=64)
    given = parser.parse_args()
    generator = np.random.default_rng(0)
    x = generator.uniform(size=(given.points, 3))
    y = np.sin(5 * x.sum(1, keepdims=True)) + 0.1 * generator.standard_normal((given.points, 1))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0, 1.0])
    model = gpflow.models.SGPR((x, y), kernel=kernel, inducing_variable=x[: given.inducing].copy())
    if given.how == "jit":
        loss = tf.function(model.training_loss, jit_compile=True)
    else:
        loss = exla_opt.tensorflow.function(model.training_loss, size_threshold=given.size)
    variables = model.trainable_variables
    before = peak()

    def evaluate() -> None:
        with tf.GradientTape() as tape:
            value = loss()
        tape.gradient(value, variables)

    start = time.perf_counter()
    evaluate()
    first = time.perf_counter() - start
    start = time.perf_counter()
    evaluate()
    second = time.perf_counter() - start
    found = gpflow.optimizers.Scipy().minimize(loss, variables, options={"maxiter": 1})
    print(
        f"{given.how:6} loss {found.fun:.3f} after {found.nfev} evaluations; the first {first:.1f} s, "
        f"then {second:.2f} s each; the process grew by {peak() - before:.0f} MB"
    )


if __name__ == "__main__":
    main()
