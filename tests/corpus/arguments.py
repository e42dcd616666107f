"""Arguments for a function of which only the signature is known: tried until it can be traced."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from tests.corpus.special import SPECIAL

Spec = jax.ShapeDtypeStruct

# Where the name of a parameter says that it is no array, or not only: what it may be.
ARRAY, KEY, PAIR = "array", "key", "pair of arrays"


@dataclass(frozen=True, slots=True)
class Constant:
    """A parameter that is no array, and its value."""

    value: Any


def _constants(*values: Any) -> tuple[Any, ...]:
    return tuple(Constant(value) for value in values)


PARAMETERS: dict[str, tuple[Any, ...]] = {
    "key": (KEY,),
    **dict.fromkeys(("arrays", "tup", "arys"), (PAIR,)),
    **dict.fromkeys(("operands", "args", "arrs", "xi"), (PAIR, ARRAY)),
    **dict.fromkeys(("axis", "axis1", "dimension", "start_dimension", "source"), _constants(0)),
    **dict.fromkeys(("axis2", "destination", "deg", "order", "ind", "lower_index"), _constants(1)),
    "axes": _constants((0,), (1, 0)),
    **dict.fromkeys(("dimensions",), _constants((0,), (12, 7))),
    **dict.fromkeys(("shape", "new_shape", "new_sizes"), _constants((13, 11), (11, 13), (37, 1))),
    "sizes": _constants((5, 8), (3,)),
    "reps": _constants((2, 3)),
    **dict.fromkeys(("dtype", "new_dtype", "index_dtype"), _constants(jnp.int32)),
    "n": (ARRAY, *_constants(12, 8)),
    **dict.fromkeys(("N", "M", "size", "num_classes", "permutation_size"), (ARRAY, *_constants(23))),
    "k": (ARRAY, *_constants(3)),
    "d": (ARRAY, *_constants(3)),
    "m": (ARRAY, *_constants(2)),
    "p": (ARRAY, *_constants(2.0)),
    **dict.fromkeys(("shift", "kth", "index", "start_index"), _constants(3)),
    "slice_size": _constants(5),
    "limit_index": _constants(9),
    "indices_or_sections": _constants((3, 5), 1),
    "repeats": _constants(2),
    "rank": _constants(4),
    "start": (*_constants(0.5), ARRAY),
    "stop": (*_constants(20.0), ARRAY),
    "fill_value": _constants(1.5),
    "obj": _constants(2),
    "pad_width": _constants(((2, 1), (0, 3)), 2),
    "exponent_bits": _constants(5),
    "mantissa_bits": _constants(6),
    "seed": _constants(7),
    "spatial_dims": _constants((0, 1)),
    "method": _constants("linear"),
    "permutation": _constants((1, 0)),
    **dict.fromkeys(("lower", "minval"), _constants(-1.0, 0)),
    **dict.fromkeys(("upper", "maxval"), _constants(1.5, 5)),
    "window_strides": _constants((1, 1)),
    "strides": _constants((1, 1)),
    "padding": _constants("SAME"),
    "filter_shape": _constants((3, 3)),
    "dims": _constants((13, 11)),
    "scale": (ARRAY, *_constants((13, 11))),
    "translation": (ARRAY, *_constants(jnp.zeros(2))),
}
_F, _I, _B, _C = jnp.float32, jnp.int32, jnp.bool_, jnp.complex64
# Few, of every rank, with unequal sizes first; the square ones are for linear algebra.
_SHAPES = ((13, 11), (12, 12), (37,), (4, 6, 10), (3, 6, 6), (2, 9, 8, 5), ())
_MIXED: dict[int, list[tuple[Spec, ...]]] = {
    2: [
        (Spec((13, 11), _F), Spec((11,), _F)),
        (Spec((12, 12), _F), Spec((12, 7), _F)),
        (Spec((13, 11), _F), Spec((11, 9), _F)),
        (Spec((13, 11), _F), Spec((13, 11), _I)),
        (Spec((13, 11), _F), Spec((17,), _I)),
        (Spec((13, 11), _F), Spec((13,), _I)),
        (Spec((13, 11), _F), Spec((), _I)),
        (Spec((13, 11), _F), Spec((), _F)),
        (Spec((13, 11), _I), Spec((13, 11), _F)),
        (Spec((13, 11), _B), Spec((13, 11), _F)),
        (Spec((37,), _F), Spec((12,), _F)),
        (Spec((37,), _F), Spec((37,), _I)),
        (Spec((12, 12), _F), Spec((12,), _F)),
        (Spec((2, 3, 14, 12), _F), Spec((5, 3, 3, 3), _F)),
    ],
    3: [
        (Spec((13, 11), _F), Spec((11,), _F), Spec((11,), _F)),
        (Spec((13, 11), _F), Spec((11,), _F), Spec((11, 11), _F)),
        (Spec((11,), _F), Spec((11, 11), _F), Spec((11,), _F)),
        (Spec((12, 12), _F), Spec((7, 7), _F), Spec((12, 7), _F)),
        (Spec((13, 11), _I), Spec((13, 11), _F), Spec((13, 11), _F)),
        (Spec((13, 11), _B), Spec((13, 11), _F), Spec((13, 11), _F)),
        (Spec((13, 11), _F), Spec((), _F), Spec((), _F)),
        (Spec((37,), _F), Spec((9,), _F), Spec((9,), _F)),
        (Spec((37,), _F), Spec((5,), _I), Spec((5,), _F)),
        (Spec((13, 11), _F), Spec((13, 3), _I), Spec((13, 3), _F)),
        (Spec((12, 9), _F), Spec((9,), _F), Spec((12, 7), _F)),
    ],
}
_MOST_ATTEMPTS = 150


@dataclass(frozen=True, slots=True)
class Call:
    """A function of arrays alone, its other parameters bound, and the types of the arrays.

    what: how it differs from the first call found of the function.
    """

    function: Callable[..., Any]
    specs: tuple[Spec, ...]
    what: str = ""


class NoArgumentsError(Exception):
    """The function becomes no module. kind: why, in one of a few ways; the text says more."""

    def __init__(self, kind: str, detail: str = ""):
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind


def find_calls(name: str, function: Callable[..., Any]) -> list[Call]:
    """Calls of `function` that can be traced and return arrays: one, one of another rank, and one along an axis.

    Raises NoArgumentsError with the reason, the last attempt's, when there is none.
    """
    if name in SPECIAL:
        return [Call(*SPECIAL[name](function))]
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise NoArgumentsError("it has no signature") from None
    required = [parameter for parameter in parameters.values() if parameter.default is parameter.empty]
    required = [parameter for parameter in required if parameter.kind is not parameter.VAR_KEYWORD]
    if any(parameter.name == "axis_name" for parameter in required):
        raise NoArgumentsError("it needs a named axis of several devices")
    first, *others = _traceable(function, required)
    if "axis" in parameters and parameters["axis"].default is not inspect.Parameter.empty and _rank(first) > 1:
        along = functools.partial(function, axis=0)
        with contextlib.suppress(NoArgumentsError):
            others.append(replace(_traceable(along, required)[0], what="axis 0"))
    return [first, *others]


def _traceable(function: Callable[..., Any], required: Sequence[inspect.Parameter]) -> list[Call]:
    calls: list[Call] = []
    refused = NoArgumentsError("it takes no array")
    for call in itertools.islice(_attempts(function, required), _MOST_ATTEMPTS):
        if calls and _rank(call) == _rank(calls[0]):
            continue
        try:
            results = jax.eval_shape(call.function, *call.specs)
        except Exception as error:  # anything may be wrong with a guess
            refused = _refused(error)
            continue
        if not jax.tree.leaves(results):
            raise NoArgumentsError("it returns no array")
        calls.append(replace(call, what="another rank") if calls else call)
        if len(calls) == 2:
            break
    if not calls:
        raise refused
    return calls


def _rank(call: Call) -> int:
    return max((len(spec.shape) for spec in call.specs), default=0)


def _refused(error: Exception) -> NoArgumentsError:
    detail = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:120]
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
        return NoArgumentsError("it needs to know values, not only shapes", detail)
    if isinstance(error, NotImplementedError):
        return NoArgumentsError("it is not implemented", detail)
    if "not a valid JAX type" in str(error):
        return NoArgumentsError("it returns no array", detail)
    return NoArgumentsError("no arguments were found", detail)


def _attempts(function: Callable[..., Any], required: Sequence[inspect.Parameter]) -> Iterator[Call]:
    options = [_options(parameter) for parameter in required]
    chosen = list(itertools.product(*options))
    # The first choice of all parameters with every shape, then the next: the likely ones first.
    for kinds in chosen[:24]:
        flat = [kind for several in kinds for kind in several]
        number = sum({ARRAY: 1, PAIR: 2}.get(kind, 0) if isinstance(kind, str) else 0 for kind in flat)
        for specs in _specs(number):
            yield _bind(function, flat, specs)


def _options(parameter: inspect.Parameter) -> tuple[tuple[Any, ...], ...]:
    """What the parameter may be: each a tuple, for one such as *args takes several."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ((ARRAY,), (ARRAY, ARRAY), (ARRAY, ARRAY, ARRAY))
    return tuple((option,) for option in PARAMETERS.get(parameter.name, (ARRAY,)))


def _specs(number: int) -> Iterator[tuple[Spec, ...]]:
    if not number:
        yield ()
        return
    for shape in _SHAPES:
        yield (Spec(shape, _F),) * number
    yield from _MIXED.get(number, [])
    for dtype in (_I, _B, _C):
        for shape in _SHAPES[:3]:
            yield (Spec(shape, dtype),) * number


def _bind(function: Callable[..., Any], kinds: Sequence[Any], specs: tuple[Spec, ...]) -> Call:
    keys = kinds.count(KEY)

    def bound(*arrays: Any) -> Any:
        rest = iter(arrays)
        arguments: list[Any] = []
        for kind in kinds:
            if isinstance(kind, Constant):
                arguments.append(kind.value)
            elif kind == KEY:
                arguments.append(jax.random.wrap_key_data(next(rest)))
            else:
                arguments.append(next(rest) if kind == ARRAY else [next(rest), next(rest)])
        return function(*arguments)

    # A key stands first wherever there is one.
    return Call(bound, (Spec((2,), jnp.uint32),) * keys + specs)
