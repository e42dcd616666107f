"""In which order the factors of one product are summed up: steps on pairs of tensors, by dimensions alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

Dims = frozenset[int]


@dataclass(frozen=True, slots=True)
class Step:
    """`reduce` sums one operand up to `dims`; `multiply` repeats two to `dims`; `dot` contracts what is not in `dims`.

    operands: numbers of tensors; those of the steps' own results follow those of the factors.
    """

    kind: Literal["reduce", "multiply", "dot"]
    operands: tuple[int, ...]
    dims: Dims


def plan_steps(operands: Sequence[Dims], output: Dims, sizes: Mapping[int, int]) -> list[Step]:
    """The steps that multiply the operands and sum over every dimension that is not in `output`.

    operands: the dimensions of each factor. sizes: of every dimension. Sums over a dimension that one operand alone
    has come first, then products of equal dimensions; the order of the others has the fewest operations
    (opt_einsum's exhaustive search, which is short for so few).
    """
    live = dict(enumerate(operands))
    steps: list[Step] = []

    def add(kind: Literal["reduce", "multiply", "dot"], used: tuple[int, ...], dims: Dims) -> None:
        for number in used:
            del live[number]
        live[len(operands) + len(steps)] = dims
        steps.append(Step(kind, used, dims))

    while True:
        wanted = {number: _wanted(live, number, output) for number in live}
        lonely = next((number for number, dims in live.items() if not dims <= wanted[number]), None)
        if lonely is not None:
            add("reduce", (lonely,), live[lonely] & wanted[lonely])
            continue
        if len(live) < 2:
            return steps
        one, other = _next_pair(live, output, sizes)
        union = live[one] | live[other]
        rest = output.union(*(dims for number, dims in live.items() if number not in (one, other)))
        if live[one] == live[other] or union <= rest:
            add("multiply", (one, other), union)
        else:
            add("dot", (one, other), union & rest)


def _wanted(live: Mapping[int, Dims], number: int, output: Dims) -> Dims:
    return output.union(*(dims for other, dims in live.items() if other != number))


def _next_pair(live: Mapping[int, Dims], output: Dims, sizes: Mapping[int, int]) -> tuple[int, int]:
    numbers = sorted(live)
    for place, one in enumerate(numbers):
        for other in numbers[place + 1 :]:
            if live[one] == live[other]:
                return one, other
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    from opt_einsum.paths import optimal  # here: most modules have no such product

    first, second = sorted(optimal([live[number] for number in numbers], output, dict(sizes))[0])
    return numbers[first], numbers[second]


def largest(steps: Sequence[Step], sizes: Mapping[int, int]) -> int:
    """The elements of the largest tensor that the steps make."""
    return max((prod(sizes[dim] for dim in step.dims) for step in steps), default=0)
