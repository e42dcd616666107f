"""Derivatives of a function that became one op: separate programs, made on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from exla_opt.tensorflow.export import Flat

NO_OTHER = (
    "exla_opt.tensorflow.function has first derivatives by reverse mode only: put it around the function that takes "
    "the second derivative, tapes and all, and not inside of the tapes"
)


def value_and_gradient(flat: Flat, sources: Callable[[Sequence[Any]], list[Any]]) -> Flat:
    """Return a function that computes the loss and its derivatives by `sources`, which selects them from the arguments.

    flat: with a scalar as its only result.
    """

    def both(*tensors: Any) -> list[Any]:
        wanted = sources(tensors)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(wanted)
            [loss] = flat(*tensors)
        return [loss, *_gradient(tape, [loss], wanted, None)]

    return both


def pullback(flat: Flat, sources: Callable[[Sequence[Any]], list[Any]], results: Sequence[int]) -> Flat:
    """Return a function from the arguments and the cotangents of these results to the derivatives.

    It computes the function again. results: the numbers of the results that have a derivative.
    """

    def backward(*given: Any) -> list[Any]:
        tensors, cotangents = given[: len(given) - len(results)], given[len(given) - len(results) :]
        wanted = sources(tensors)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(wanted)
            found = flat(*tensors)
        return _gradient(tape, [found[number] for number in results], wanted, list(cotangents))

    return backward


def _gradient(tape: Any, results: list[Any], wanted: list[Any], cotangents: list[Any] | None) -> list[Any]:
    found = tape.gradient(
        results, wanted, output_gradients=cotangents, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return [tf.convert_to_tensor(one) for one in found]  # the gradient of a gathered table comes as rows


def differentiated(
    run: Callable[[], list[Any]],
    backward: Callable[[Sequence[Any]], Callable[[], list[Any]]],
    wanted: Sequence[Any],
) -> list[Any]:
    """Run `run`, with a derivative by the tensors `wanted`.

    backward: takes a cotangent for each result and returns a function that computes a derivative for each of `wanted`.
    The derivative has no derivative itself: taking it raises NotImplementedError. Neither `run` nor that function reads
    a variable, which TensorFlow would have to track.
    """

    def forward(*inputs: Any) -> Any:
        def pull(*cotangents: Any) -> list[Any]:
            return _without_derivative(backward(cotangents), inputs)

        return run(), pull

    found: list[Any] = tf.custom_gradient(forward)(*wanted)
    return list(found)


def _without_derivative(run: Callable[[], list[Any]], inputs: Sequence[Any]) -> list[Any]:
    """Run `run`; taking its derivative by `inputs` raises an error, where TensorFlow would return zero."""

    def forward(*_: Any) -> Any:
        def refuse(*cotangents: Any) -> list[Any]:
            raise NotImplementedError(NO_OTHER)

        return run(), refuse

    return list(tf.custom_gradient(forward)(*inputs))
