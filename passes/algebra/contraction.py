"""The order in which the factors of a product are multiplied and summed: steps on pairs of tensors, by dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

Dims = frozenset[int]

# The numbers of operands up to which all orders, and dynamic programming, are searched.
_FEW = 5
_MANY = 14


@dataclass(frozen=True, slots=True)
class Step:
    """`reduce` sums one operand to `dims`; `multiply` broadcasts two to `dims`; `dot` contracts all but `dims`.

    operands: numbers of tensors; the results of steps are numbered after the factors.
    """

    kind: Literal["reduce", "multiply", "dot"]
    operands: tuple[int, ...]
    dims: Dims


def plan_steps(
    operands: Sequence[Dims], output: Dims, sizes: Mapping[int, int], most_elements: int | None = None
) -> list[Step]:
    """The steps that multiply the operands and sum over every dimension that is not in `output`.

    operands: the dimensions of each factor. sizes: of every dimension. most_elements: the limit for intermediate
    results. Sums over a dimension of a single operand come first, then products of equal dimensions; the order of the
    others has the fewest operations.
    """
    live = dict(enumerate(operands))
    steps: list[Step] = []

    def add(kind: Literal["reduce", "multiply", "dot"], used: tuple[int, ...], dims: Dims) -> int:
        for number in used:
            del live[number]
        made = len(operands) + len(steps)
        live[made] = dims
        steps.append(Step(kind, used, dims))
        return made

    def summed(number: int) -> int:
        kept = live[number] & _wanted(live, number, output)
        return number if kept == live[number] else add("reduce", (number,), kept)

    def simplify() -> None:
        while True:
            lonely = next((number for number, dims in live.items() if dims - _wanted(live, number, output)), None)
            equal = _equal_pair(live)
            if lonely is not None:
                add("reduce", (lonely,), live[lonely] & _wanted(live, lonely, output))
            elif equal is not None:
                add("multiply", equal, live[equal[0]])
            else:
                return

    simplify()
    numbers = sorted(live)
    for pair in _path([live[number] for number in numbers], output, sizes, most_elements):
        one, other = (numbers[place] for place in pair)
        numbers = [number for number in numbers if number not in (one, other)]
        one, other = summed(one), summed(other)
        rest = output.union(*(dims for number, dims in live.items() if number not in (one, other)))
        union = live[one] | live[other]
        kind: Literal["multiply", "dot"] = "multiply" if live[one] == live[other] or union <= rest else "dot"
        made = add(kind, (one, other), union if kind == "multiply" else union & rest)
        numbers.append(made)
    simplify()
    return steps


def _wanted(live: Mapping[int, Dims], number: int, output: Dims) -> Dims:
    return output.union(*(dims for other, dims in live.items() if other != number))


def _equal_pair(live: Mapping[int, Dims]) -> tuple[int, int] | None:
    known: dict[Dims, int] = {}
    for number, dims in live.items():
        if dims in known:
            return known[dims], number
        known[dims] = number
    return None


def _path(
    operands: Sequence[Dims], output: Dims, sizes: Mapping[int, int], most_elements: int | None
) -> Sequence[tuple[int, int]]:
    """Pairs of positions, with each result appended to the remaining operands, from opt_einsum's searches:

    all orders of few operands, dynamic programming over connected sets of more (Pfeifer et al., arXiv:1304.6112), a
    greedy choice of many.
    """
    if len(operands) < 2:
        return []
    if len(operands) == 2:
        return [(0, 1)]
    from opt_einsum import paths  # here: most modules have no such product

    inputs, wanted, lengths = [frozenset(dims) for dims in operands], frozenset(output), dict(sizes)
    search = paths.greedy if len(operands) > _MANY else paths.dynamic_programming
    if len(operands) <= _FEW:
        search = paths.optimal
    try:
        found = search(inputs, wanted, lengths, most_elements)
    except RuntimeError:  # no order stays within the limit
        found = search(inputs, wanted, lengths, None)
    pairs: list[tuple[int, int]] = []
    left = len(operands)
    for chosen in found:
        for _ in range(len(chosen) - 1):  # if the limit cannot be kept, the rest comes at once
            places = sorted(chosen)[:2] if len(chosen) == 2 else [0, 1]
            pairs.append((places[0], places[1]))
            left -= 1
    return pairs


def largest(steps: Sequence[Step], sizes: Mapping[int, int]) -> int:
    """The number of elements of the largest tensor in the steps."""
    return max((prod(sizes[dim] for dim in step.dims) for step in steps), default=0)


def flops(steps: Sequence[Step], operands: Sequence[Dims], sizes: Mapping[int, int]) -> int:
    """The scalar multiplications (for a reduce: additions) of the steps."""
    dims = [*operands, *(step.dims for step in steps)]
    unions = (frozenset[int]().union(*(dims[number] for number in step.operands)) for step in steps)
    return sum(prod(sizes[dim] for dim in union) for union in unions)
