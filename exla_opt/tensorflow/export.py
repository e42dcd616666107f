"""A TensorFlow function as StableHLO: its arguments, its results, and the variables that it reads and assigns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe

from exla_opt.tensorflow.platform import check_release

# Takes tensors and returns a list of tensors.
Flat = Callable[..., list[Any]]


_CLOSES_OVER = (
    "the function reads a tensor of another function that is being traced, which exla_opt.tensorflow cannot export: "
    "make that tensor one of its arguments"
)
_DENSE = {
    "RaggedTensor": "take its .to_tensor(), or its flat values and row splits",
    "SparseTensor": "take tf.sparse.to_dense(...) of it, or its indices and values",
}


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A function of flat tensors, traced by TensorFlow but not compiled.

    specs: of its arguments. captured: the variables and eager tensors that it also reads, in order; they follow the
    arguments among the module's parameters. outputs: the specs of its results; in the module, the assigned variables
    follow them.
    """

    compiled: Any
    specs: tuple[Any, ...]
    captured: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def module(self) -> bytes:
        """The program as MLIR bytecode. Raises ValueError if XLA cannot compile it."""
        with outside():
            ir = self.compiled.experimental_get_compiler_ir(*self.specs)
            found: bytes = ir(stage="stablehlo_serialized")
        return found


def export(fn: Callable[..., Any], *specs: Any) -> bytes:
    """Return the function as a StableHLO module for `exla-opt`. Nothing is compiled or run.

    specs: its arguments: tensors or tf.TensorSpec, nested as the function takes them; anything else is passed as is.
    The module's parameters are the tensors in order, then what `captured` returns; its results are those of the
    function, then the variables that it assigns. Raises ValueError for shapes that are not static and for ops that XLA
    does not know.
    """
    return _traced(fn, specs).module()


def captured(fn: Callable[..., Any], *specs: Any) -> tuple[Any, ...]:
    """Return the variables and eager tensors that the function also reads, in the order of the module's parameters.

    specs: as for `export`, which writes their parameters behind those of the arguments. Nothing is compiled or run.
    Raises ValueError for shapes that are not static.
    """
    return _traced(fn, specs).captured


def _traced(fn: Callable[..., Any], specs: Sequence[Any]) -> Traced:
    leaves = tf.nest.flatten(specs)
    places = [place for place, leaf in enumerate(leaves) if is_tensor(leaf) or isinstance(leaf, tf.TensorSpec)]
    given = [spec_of(leaves[place]) for place in places]
    for number, spec in enumerate(given):
        if not spec.shape.is_fully_defined():
            raise ValueError(f"export needs static shapes, and tensor {number} is {spec.shape}: give every size")

    def flat(*tensors: Any) -> list[Any]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return results_of(fn(*tf.nest.pack_sequence_as(specs, filled)))[0]

    return trace(flat, given)


def trace(flat: Flat, specs: Sequence[Any]) -> Traced:
    """Trace a function with TensorFlow, outside of any surrounding trace or tape. specs: tf.TensorSpec, static.

    Raises ValueError if the function reads tensors of another traced function, RuntimeError for an old TensorFlow.
    """
    check_release()
    with outside():
        compiled = tf.function(flat, jit_compile=True)
        concrete = compiled.get_concrete_function(*specs)
    variables = {id(variable.handle): variable for variable in concrete.graph.variables}
    captured = tuple(variables.get(id(tensor), tensor) for tensor in concrete.captured_inputs)
    if any(tf.is_symbolic_tensor(one) for one in captured):
        raise ValueError(_CLOSES_OVER)
    for one in captured:
        if not isinstance(one, tf.Variable) and one.dtype in (tf.resource, tf.variant):
            raise ValueError(f"exla_opt.tensorflow knows variables, and the function also reads {one.name}")
    outputs = tuple(tf.TensorSpec(output.shape, output.dtype) for output in concrete.outputs)
    return Traced(compiled, tuple(specs), captured, outputs)


@contextmanager
def outside() -> Iterator[None]:
    """Leave all functions that are being traced; tapes opened inside the context record.

    tf.init_scope leaves the graphs but stops all tapes of the thread, including those inside the traced function.
    """
    with tf.init_scope():
        pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
        try:
            yield
        finally:
            pywrap_tfe.TFE_Py_TapeSetStopOnThread()


def is_tensor(leaf: Any) -> bool:
    """Whether a leaf is an argument of the program. A variable is not: the program reads it."""
    return (tf.is_tensor(leaf) and not isinstance(leaf, tf.Variable)) or type(leaf).__module__ == "numpy"


def spec_of(leaf: Any) -> Any:
    """The tf.TensorSpec of a tensor, an array or a spec."""
    if isinstance(leaf, tf.TensorSpec):
        return tf.TensorSpec(leaf.shape, leaf.dtype)
    tensor = leaf if hasattr(leaf, "get_shape") else tf.convert_to_tensor(leaf)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def results_of(results: Any) -> tuple[list[Any], Any]:
    """The tensors in a function's results, and their structure: None stays, anything else becomes a tensor."""
    structure = tf.nest.map_structure(_as_result, results)
    return [leaf for leaf in tf.nest.flatten(structure, expand_composites=True) if leaf is not None], structure


def pack_results(structure: Any, tensors: Sequence[Any]) -> Any:
    """Put the tensors into the structure that `results_of` found."""
    rest = iter(tensors)
    leaves = tf.nest.flatten(structure, expand_composites=True)
    filled = [None if leaf is None else next(rest) for leaf in leaves]
    return tf.nest.pack_sequence_as(structure, filled, expand_composites=True)


def refuse_ragged(leaves: Sequence[Any]) -> None:
    """Raise TypeError if a value has no shape of its own: XLA's programs have none either."""
    for leaf in leaves:
        if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
            kind = type(leaf).__name__
            raise TypeError(
                f"exla_opt.tensorflow takes and returns dense tensors, and there is a {kind}: {_DENSE[kind]}"
            )


def _as_result(leaf: Any) -> Any:
    if leaf is None or isinstance(leaf, tf.IndexedSlices):
        return leaf
    refuse_ragged([leaf])
    return tf.convert_to_tensor(leaf)
