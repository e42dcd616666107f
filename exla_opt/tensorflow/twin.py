"""The rewritten programs of a function at one signature, and how they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import forwardprop_util, record

from exla_opt.tensorflow.call import Module
from exla_opt.tensorflow.export import Flat, Traced, trace
from exla_opt.tensorflow.gradient import NO_OTHER, differentiated, pullback, value_and_gradient

# From a module that TensorFlow exported to the one that it runs.
Rewrite = Callable[[bytes], Module]

_TWO_PROGRAMS = (
    "the derivative of {} would repeat what it draws or assigns, with other numbers: let the function "
    "compute the loss as its only result, or the whole training step with its tape inside"
)


class Twin:
    """The programs of a function of flat tensors, made on first use."""

    def __init__(self, name: str, flat: Flat, specs: Sequence[Any], rewrite: Rewrite) -> None:
        self.name, self.flat, self.specs, self.rewrite = name, flat, list(specs), rewrite
        self.traced = trace(flat, specs)
        self.derivatives: dict[tuple[int, ...], Program] = {}
        self.pullbacks: dict[tuple[int, ...], Program] = {}

    @cached_property
    def program(self) -> Program:
        """The function itself."""
        return Program(self.traced, self.rewrite)

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the results of the function for these arguments, with derivatives if a tape records them."""
        captured = self.traced.captured
        # Read each variable once, so that derivative and results use the same values despite assignments.
        values = [*tensors, *map(read, captured)]
        if forwardprop_util.pack_tangents(values).indices:
            raise NotImplementedError(NO_OTHER)
        sources = [number for number, value in enumerate(values) if self._is_wanted(number, value)]
        if not sources or not self._float_results:
            program = self.program
            return program.finish(program.module(values))
        return self._with_derivative(values, tuple(sources))

    def _is_wanted(self, number: int, value: Any) -> bool:
        """Whether a derivative by this value may be asked for."""
        if not (value.dtype.is_floating or value.dtype.is_complex):
            return False
        if record.should_record_backprop([value]):
            return True
        if tf.executing_eagerly():
            return False
        # A tape around the function being traced records only when that function is called, so prepare all derivatives.
        if number < len(self.specs):
            return True
        source = self.traced.captured[number - len(self.specs)]
        return isinstance(source, tf.Variable) and bool(source.trainable)

    def _with_derivative(self, values: list[Any], sources: tuple[int, ...]) -> list[Any]:
        tensors, rest = values[: len(self.specs)], values[len(self.specs) :]
        known = dict(zip(map(id, self.traced.captured), rest, strict=True))
        wanted = [values[number] for number in sources]
        outputs = self.traced.outputs
        made: list[Any] = []  # the gradient of a loss that was computed together with the loss
        is_one = self._is_loss and record.could_possibly_record()
        program = self._value_and_gradient(sources) if is_one else self.program

        given = program.inputs(tensors, known)

        def run() -> list[Any]:
            found = program.module(given)
            count = len(sources) if is_one else 0
            made.extend(found[1 : 1 + count])
            return [*found[: len(outputs)], *found[len(outputs) + count :]]

        def backward(cotangents: Sequence[Any]) -> Callable[[], list[Any]]:
            if is_one:
                return lambda: [cotangents[0] * one for one in made]
            floats = self._float_results
            filled = [
                tf.zeros(outputs[number].shape, outputs[number].dtype) if given is None else given
                for number, given in enumerate(cotangents[: len(outputs)])
                if number in floats
            ]
            later = self._pullback(sources)
            inputs = later.inputs([*tensors, *map(tf.convert_to_tensor, filled)], known)
            return lambda: later.module(inputs)

        found = differentiated(run, backward, wanted)
        return program.finish(found)

    @property
    def _is_loss(self) -> bool:
        outputs = self.traced.outputs
        return len(outputs) == 1 and outputs[0].shape.rank == 0 and outputs[0].dtype.is_floating

    @property
    def _float_results(self) -> list[int]:
        found = enumerate(self.traced.outputs)
        return [number for number, spec in found if spec.dtype.is_floating or spec.dtype.is_complex]

    def _value_and_gradient(self, sources: tuple[int, ...]) -> Program:
        if sources not in self.derivatives:
            flat = value_and_gradient(self.flat, self._chosen(sources))
            self.derivatives[sources] = Program(trace(flat, self.specs), self.rewrite)
        return self.derivatives[sources]

    def _pullback(self, sources: tuple[int, ...]) -> Program:
        if not self.program.is_repeatable:
            raise NotImplementedError(_TWO_PROGRAMS.format(self.name))
        if sources not in self.pullbacks:
            floats = self._float_results
            flat = pullback(self.flat, self._chosen(sources), floats)
            specs = [*self.specs, *(self.traced.outputs[number] for number in floats)]
            self.pullbacks[sources] = Program(trace(flat, specs), self.rewrite)
        return self.pullbacks[sources]

    def _chosen(self, sources: tuple[int, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        captured = self.traced.captured
        return lambda tensors: [[*tensors, *captured][number] for number in sources]


class Program:
    """One traced and rewritten module. is_repeatable: a second run gives the same results and changes nothing."""

    def __init__(self, traced: Traced, rewrite: Rewrite) -> None:
        module = traced.module()
        self.traced, self.module = traced, rewrite(module)
        first, count = len(traced.specs), len(traced.outputs)
        known = self.module.assigned
        if len(self.module.results) != count + len(known) or any(number < count for number in known):
            raise ValueError("TensorFlow does not say which variables the function assigns")
        self.assigned = [traced.captured[known[number] - first] for number in sorted(known)]
        self.is_repeatable = not self.assigned and not self.module.draws

    def inputs(self, tensors: Sequence[Any], known: dict[int, Any]) -> list[Any]:
        """The arguments of the module. known: values that were already read, by the id of their source."""
        return [*tensors, *(known[id(one)] if id(one) in known else read(one) for one in self.traced.captured)]

    def finish(self, results: list[Any]) -> list[Any]:
        """Assign the variables, and return the results of the function."""
        count = len(results) - len(self.assigned)
        for variable, value in zip(self.assigned, results[count:], strict=True):
            variable.assign(value)
        return results[:count]


def read(source: Any) -> Any:
    """The value of a captured variable or tensor."""
    return source.read_value() if isinstance(source, tf.Variable) else source
