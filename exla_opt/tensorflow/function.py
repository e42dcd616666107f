"""`exla_opt.tensorflow.function`: what `tf.function(fn, jit_compile=True)` does, in slices."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable
from typing import Any, Literal, TypeVar, Unpack, overload

import tensorflow as tf

from exla_opt.api import Wishes
from exla_opt.remarks import Remark
from exla_opt.tensorflow.export import is_tensor, pack_results, results_of, spec_of, trace
from exla_opt.tensorflow.rewrite import Rewriter
from exla_opt.tensorflow.twin import Twin

F = TypeVar("F", bound=Callable[..., Any])
OnDynamic = Literal["raise", "warn"]

# By what a program is for: it, the structure of its results, and what it holds for.
Twins = dict[Hashable, tuple[Twin, list[Any], list[Any]]]

_DYNAMIC = (
    "exla_opt.tensorflow needs static shapes, and {} was called with {}: give the batch a size "
    "(keras.Input(..., batch_size=n), dataset.batch(n, drop_remainder=True))"
)


@overload
def function(fn: F, /, *, on_dynamic: OnDynamic = ..., **wishes: Unpack[Wishes]) -> F: ...
@overload
def function(*, on_dynamic: OnDynamic = ..., **wishes: Unpack[Wishes]) -> Callable[[F], F]: ...
def function(fn: Any = None, /, *, on_dynamic: OnDynamic = "raise", **wishes: Unpack[Wishes]) -> Any:
    """`tf.function(fn, jit_compile=True)`, computed in slices: a decorator, bare or with keywords.

    wishes: see `exla_opt.optimize`; without any, tensors above 1 GB are sliced. Variables that `fn` reads and assigns,
    GradientTape inside and around, Keras layers, SavedModel: all as with tf.function. One program for each signature
    of tensors and each value of other arguments. `function(fn).explain(*args)` prints what is done, and returns the
    remarks.

    on_dynamic: what happens where a size is unknown while TensorFlow traces: "raise" is a ValueError, "warn" calls
    `fn` as it is, with a warning; Keras infers shapes in this way. Raises ValueError for sizes that contradict each
    other; when called, NotImplementedError for second derivatives, for the derivative of a function that draws random
    numbers or assigns variables and gives more than a loss, and what TensorFlow and `exla_opt.optimize` raise.
    """
    if on_dynamic not in ("raise", "warn"):
        raise ValueError(f'on_dynamic is "raise" or "warn", not {on_dynamic!r}')
    if fn is None:
        return functools.partial(function, on_dynamic=on_dynamic, **wishes)
    name = getattr(fn, "__qualname__", type(fn).__name__)
    rewrite = Rewriter(name, wishes)
    twins = Twins()

    def called(*arguments: Any, **named: Any) -> Any:
        leaves = tf.nest.flatten((arguments, named))
        places = [place for place, leaf in enumerate(leaves) if is_tensor(leaf)]
        tensors = [tf.convert_to_tensor(leaves[place]) for place in places]
        dynamic = [str(tensor.shape) for tensor in tensors if not tensor.shape.is_fully_defined()]
        if dynamic:
            text = _DYNAMIC.format(name, ", ".join(dynamic))
            if on_dynamic == "raise":
                raise ValueError(f'{text}, or let on_dynamic="warn" call the function as it is')
            warnings.warn(f"{text}; it is called as it is", stacklevel=2)
            return fn(*arguments, **named)
        key = _key((arguments, named), leaves, tensors)
        if key not in twins:
            structures: list[Any] = []
            flat = _flat(fn, (arguments, named), places, structures)
            twin = Twin(name, flat, [spec_of(tensor) for tensor in tensors], rewrite)
            # What is no tensor stays alive, so that no other has its identity.
            twins[key] = twin, structures[:1], [leaf for leaf in leaves if not is_tensor(leaf)]
        twin, structure, _ = twins[key]
        return pack_results(structure[0], twin(tensors))

    def explain(*arguments: Any, **named: Any) -> tuple[Remark, ...]:
        leaves = tf.nest.flatten((arguments, named))
        places = [place for place, leaf in enumerate(leaves) if is_tensor(leaf) or isinstance(leaf, tf.TensorSpec)]
        traced = trace(_flat(fn, (arguments, named), places, []), [spec_of(leaves[place]) for place in places])
        return rewrite.explain(traced.module())

    # Autograph would convert what is written here, inside of an outer tf.function.
    wrapped: Any = functools.wraps(fn)(tf.autograph.experimental.do_not_convert(called))
    wrapped.explain = explain
    return wrapped


def _flat(fn: Callable[..., Any], given: Any, places: list[int], structures: list[Any]) -> Callable[..., list[Any]]:
    """`fn` of the tensors at these places alone. structures: gets the structure of the results when it is traced."""
    kept = [None if is_tensor(leaf) else leaf for leaf in tf.nest.flatten(given)]
    frame = tf.nest.map_structure(lambda leaf: None if is_tensor(leaf) else leaf, given)

    def flat(*tensors: Any) -> list[Any]:
        leaves = list(kept)
        for place, tensor in zip(places, tensors, strict=True):
            leaves[place] = tensor
        arguments, named = tf.nest.pack_sequence_as(frame, leaves)
        found, structure = results_of(fn(*arguments, **named))
        structures.append(structure)
        return found

    return flat


def _key(given: Any, leaves: list[Any], tensors: list[Any]) -> Hashable:
    """What a program is for: the structure, the types and shapes of tensors, the values of all else."""
    structure = repr(tf.nest.map_structure(lambda leaf: 0, given))
    specs = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors)
    return structure, specs, tuple("tensor" if is_tensor(leaf) else _constant(leaf) for leaf in leaves)


def _constant(leaf: Any) -> Hashable:
    if isinstance(leaf, Hashable) and not isinstance(leaf, tf.Variable):
        return type(leaf), leaf
    return id(leaf)
