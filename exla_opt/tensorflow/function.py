"""`exla_opt.tensorflow.function`: like `tf.function(fn, jit_compile=True)`, computed in slices."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable
from typing import Any, Literal, TypeVar, Unpack, overload

import tensorflow as tf

from exla_opt.api import Wishes
from exla_opt.remarks import Remark
from exla_opt.tensorflow.export import is_tensor, pack_results, refuse_ragged, results_of, spec_of, trace
from exla_opt.tensorflow.rewrite import Rewriter
from exla_opt.tensorflow.twin import Twin

F = TypeVar("F", bound=Callable[..., Any])
OnDynamic = Literal["raise", "warn"]

# From the key of a program: the program, the structure of its results, and the objects that the key must keep alive.
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
    GradientTape inside and around, Keras layers, SavedModel: all work as with tf.function. There is one program for
    each signature of tensors and each value of the other arguments. `function(fn).explain(*args)` prints the summary
    and returns the remarks.

    on_dynamic: what to do when a size is unknown during tracing: "raise" raises ValueError, "warn" warns and calls the
    original `fn`; Keras infers shapes in this way. Raises ValueError for sizes that contradict each other; when called,
    NotImplementedError for second derivatives and for the derivative of a function that draws random numbers or assigns
    variables and returns more than a loss, and whatever TensorFlow and `exla_opt.optimize` raise.
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
        refuse_ragged(leaves)
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
            # Keep all other leaves alive, so that no later object gets the id of one in the key.
            twins[key] = twin, structures[:1], [leaf for leaf in leaves if not is_tensor(leaf)]
        twin, structure, _ = twins[key]
        return pack_results(structure[0], twin(tensors))

    def explain(*arguments: Any, **named: Any) -> tuple[Remark, ...]:
        leaves = tf.nest.flatten((arguments, named))
        places = [place for place, leaf in enumerate(leaves) if is_tensor(leaf) or isinstance(leaf, tf.TensorSpec)]
        traced = trace(_flat(fn, (arguments, named), places, []), [spec_of(leaves[place]) for place in places])
        return rewrite.explain(traced.module())

    # Inside an outer tf.function, Autograph would convert this code.
    wrapped: Any = functools.wraps(fn)(tf.autograph.experimental.do_not_convert(called))
    wrapped.explain = explain
    return wrapped


def _flat(fn: Callable[..., Any], given: Any, places: list[int], structures: list[Any]) -> Callable[..., list[Any]]:
    """`fn` as a function of the tensors at `places` only. structures: tracing appends the structure of the results."""
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
    """The key of a program: the structure, the types and shapes of tensors, and the values of all other leaves."""
    structure = repr(tf.nest.map_structure(lambda leaf: 0, given))
    specs = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors)
    return structure, specs, tuple("tensor" if is_tensor(leaf) else _constant(leaf) for leaf in leaves)


def _constant(leaf: Any) -> Hashable:
    if isinstance(leaf, Hashable) and not isinstance(leaf, tf.Variable):
        return type(leaf), leaf
    return id(leaf)
