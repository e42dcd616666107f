"""Keras layers and training steps under `fit`, with and without `exla_opt.tensorflow.function`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

tf: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: make test-tensorflow")

import keras  # noqa: E402

from exla_opt.tensorflow import function  # noqa: E402

sliced: Any = partial(function, size_threshold="64KB", split_size="32KB")
BATCH, LENGTH, WIDTH = 2, 96, 16


def data() -> tuple[Any, Any]:
    x = np.random.default_rng(0).standard_normal((3 * BATCH, LENGTH, WIDTH)).astype("float32")
    return x, x[..., :1] / 3


def attention(is_sliced: bool, batch: int | None = BATCH, **wishes: Any) -> Any:
    """A model with attention of two heads: scores of 2 x 2 x 96 x 96 floats, 147 KB."""
    keras.utils.set_random_seed(0)
    given = keras.Input((LENGTH, WIDTH), batch_size=batch)
    layer = keras.layers.MultiHeadAttention(2, 8)
    layer.build(*[(batch, LENGTH, WIDTH)] * 3)
    if is_sliced:
        layer.call = sliced(layer.call, **wishes)
    return keras.Model(given, keras.layers.Dense(1)(layer(given, given)))


def losses(model: Any, optimizer: str, jit_compile: bool, drop_remainder: bool = True) -> Any:
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    batches = tf.data.Dataset.from_tensor_slices(data()).batch(BATCH, drop_remainder=drop_remainder)
    return model.fit(batches, epochs=2, shuffle=None, verbose=0).history["loss"]


@pytest.mark.parametrize(("optimizer", "jit_compile"), [("sgd", False), ("adam", True), ("rmsprop", False)])
def test_a_layer_trains_to_the_same_loss(optimizer: str, jit_compile: bool) -> None:
    found = losses(attention(is_sliced=True), optimizer, jit_compile)
    expected = losses(attention(is_sliced=False), optimizer, jit_compile)
    assert expected[1] < expected[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_batch_of_no_size_is_refused_or_left_alone() -> None:
    with pytest.raises(ValueError, match=r"needs static shapes, .*drop_remainder=True"):
        losses(attention(is_sliced=True), "sgd", jit_compile=False, drop_remainder=False)
    expected = losses(attention(is_sliced=False), "sgd", jit_compile=False)
    with pytest.warns(UserWarning, match="it is called as it is"):
        model = attention(is_sliced=True, on_dynamic="warn")
        found = losses(model, "sgd", jit_compile=False, drop_remainder=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_arrays_have_a_batch_of_a_size() -> None:
    found, expected = attention(is_sliced=True, batch=None), attention(is_sliced=False)
    for model in (found, expected):
        model.compile("sgd", "mse")
        model.fit(*data(), batch_size=BATCH, shuffle=False, verbose=0)
    one, other = (model.predict(data()[0], batch_size=BATCH, verbose=0) for model in (found, expected))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_step_with_dropout_and_its_optimizer_is_one_program() -> None:
    def trained(is_sliced: bool) -> Any:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Dense(64, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
        model.build((BATCH, LENGTH, WIDTH))
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            optimizer.apply(tape.gradient(loss, model.trainable_variables))
            return loss

        run = sliced(step) if is_sliced else tf.function(step, jit_compile=True)
        x, y = data()
        return [float(run(x[:BATCH], y[:BATCH])) for _ in range(4)], [w.numpy() for w in model.weights]

    (found, weights), (expected, others) = trained(True), trained(False)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(set(expected)) == 4
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_a_layer_with_dropout_has_no_derivative_of_its_own() -> None:
    layer = keras.layers.Dropout(0.5)
    call = sliced(partial(layer.call, training=True))
    x = tf.constant(data()[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = call(x)
    with pytest.raises(NotImplementedError, match="the whole training step with its tape inside"):
        tape.gradient(result, x)
