"""Derivatives of a function that became one op: programs of their own, made when they are asked for."""

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
    """The function of the loss and its derivatives by `sources`, which are chosen from the arguments.

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
    """The function of the arguments and a cotangent for each of these results that gives the derivatives.

    It computes the function once more. results: the numbers of those that have a derivative.
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
    return [tf.convert_to_tensor(one) for one in found]  # of a table that rows are gathered from, only rows are known


def differentiated(
    run: Callable[[], list[Any]],
    backward: Callable[[Sequence[Any]], Callable[[], list[Any]]],
    wanted: Sequence[Any],
) -> list[Any]:
    """What `run` gives, with a derivative by the tensors `wanted`.

    backward: from a cotangent for each result to what computes a derivative for each of `wanted`. The derivative has
    none of its own: to ask for it raises NotImplementedError. Neither `run` nor what computes reads a variable, which
    TensorFlow would want to know of.
    """

    def forward(*inputs: Any) -> Any:
        def pull(*cotangents: Any) -> list[Any]:
            return _without_derivative(backward(cotangents), inputs)

        return run(), pull

    found: list[Any] = tf.custom_gradient(forward)(*wanted)
    return list(found)


def _without_derivative(run: Callable[[], list[Any]], inputs: Sequence[Any]) -> list[Any]:
    """What `run` gives; who wants its derivative by `inputs` is told that there is none, where it would be zero."""

    def forward(*_: Any) -> Any:
        def refuse(*cotangents: Any) -> list[Any]:
            raise NotImplementedError(NO_OTHER)

        return run(), refuse

    return list(tf.custom_gradient(forward)(*inputs))
