"""An attention layer of Keras over long sequences, under `fit` with `exla_opt.tensorflow.function` and without.

    pip install 'exla-opt[tensorflow]'
    python examples/tensorflow_keras.py jit
    python examples/tensorflow_keras.py sliced --size=32MB

One process for each, so that each prints a peak of its own.
"""

from __future__ import annotations

import argparse
import resource
import time

import keras
import numpy as np
import tensorflow as tf

import exla_opt.tensorflow


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Train three steps, twice, and print the losses, the seconds of a step and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=["jit", "sliced"])
    parser.add_argument("--size", default="32MB")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=2)
    given = parser.parse_args()
    keras.utils.set_random_seed(0)
    shape = given.batch, given.tokens, 32
    layer = keras.layers.MultiHeadAttention(4, 16)
    layer.build(shape, shape)
    if given.how == "sliced":
        layer.call = exla_opt.tensorflow.function(layer.call, size_threshold=given.size)
    inputs = keras.Input(shape[1:], batch_size=given.batch)
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs, inputs)))
    model.compile("adam", "mse", jit_compile=True)
    x = np.random.default_rng(0).standard_normal((3 * given.batch, *shape[1:])).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[..., :1])).batch(given.batch, drop_remainder=True)
    before = peak()
    first = model.fit(data, verbose=0, shuffle=False).history["loss"]
    start = time.perf_counter()
    second = model.fit(data, verbose=0, shuffle=False).history["loss"]
    seconds = (time.perf_counter() - start) / len(data)
    losses = " ".join(f"{loss:.5f}" for loss in first + second)
    print(f"{given.how:6} losses {losses}; {seconds:.2f} s a step; the process grew by {peak() - before:.0f} MB")


if __name__ == "__main__":
    main()
