"""Integers that are an affine function of their position in a tensor: `iota + 3`, a regular table, one number.

A dimension's position is written in digits, the major one first, as a reshape splits it: position 7 of 24 = 8 x 3 is
(2, 1). A value is an offset and a stride for every digit, so that `repeat(arange(8), 3)` is one too: (8, stride 1), (3,
stride 0).

Numbers added to such a function may be known by their bounds only, such as clipped labels: that is its slack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from exla_opt.ir.reassociation import reassociation_of


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a position. size: the number of its values. stride: the growth of the integer with each step."""

    size: int
    stride: int


Digits = tuple[Digit, ...]


@dataclass(frozen=True, slots=True)
class Affine:
    """The integers of a tensor, without overflow: offset + the sum of stride * digit over all digits.

    dims: the digits of every dimension. None has size 1, and none can be merged with its neighbour; a dimension of size
    1 has none. slack: at each position, any number between 0 and this may be added.
    """

    offset: int
    dims: tuple[Digits, ...]
    slack: int = 0

    @property
    def lowest(self) -> int:
        """The smallest of the integers."""
        return self.offset + sum(min(digit.stride, 0) * (digit.size - 1) for dim in self.dims for digit in dim)

    @property
    def highest(self) -> int:
        """The largest of the integers."""
        steps = sum(max(digit.stride, 0) * (digit.size - 1) for dim in self.dims for digit in dim)
        return self.offset + steps + self.slack

    @property
    def shape(self) -> list[int]:
        """The size of each dimension."""
        return [prod(digit.size for digit in digits) for digits in self.dims]

    @property
    def number(self) -> int | None:
        """The value of a tensor with one value everywhere; None for others."""
        return self.offset if self.lowest == self.highest else None

    def at(self, dim: int, place: int) -> Affine:
        """The integers at one position of a dimension, which then has size 1."""
        offset = self.offset
        for digit in reversed(self.dims[dim]):
            offset += digit.stride * (place % digit.size)
            place //= digit.size
        return replace(self, offset=offset, dims=(*self.dims[:dim], (), *self.dims[dim + 1 :]))


def constant(number: int, shape: Sequence[int]) -> Affine:
    """One number everywhere."""
    return Affine(number, tuple(_merged([Digit(size, 0)]) for size in shape))


def between(low: int, high: int, shape: Sequence[int]) -> Affine:
    """Any numbers from `low` to `high`."""
    return replace(constant(low, shape), slack=high - low)


def counting(shape: Sequence[int], dim: int) -> Affine:
    """The position along `dim`."""
    return Affine(0, tuple(_merged([Digit(size, int(place == dim))]) for place, size in enumerate(shape)))


def scaled(value: Affine, factor: int) -> Affine:
    """value * factor."""
    dims = tuple(_merged([Digit(digit.size, digit.stride * factor) for digit in dim]) for dim in value.dims)
    return Affine(value.offset * factor + value.slack * min(factor, 0), dims, value.slack * abs(factor))


def added(left: Affine, right: Affine) -> Affine | None:
    """left + right, of one shape; None if their digits are incompatible."""
    dims = []
    for one, other in zip(left.dims, right.dims, strict=True):
        sizes = common_sizes(one, other)
        if sizes is None:
            return None
        pairs = zip(refined(one, sizes), refined(other, sizes), strict=True)
        dims.append(_merged([Digit(first.size, first.stride + second.stride) for first, second in pairs]))
    return Affine(left.offset + right.offset, tuple(dims), left.slack + right.slack)


def either(left: Affine, right: Affine) -> Affine:
    """At each position a number from either of two tensors of one shape."""
    if left.dims == right.dims:
        low = min(left.offset, right.offset)
        return Affine(low, left.dims, max(left.offset + left.slack, right.offset + right.slack) - low)
    return between(min(left.lowest, right.lowest), max(left.highest, right.highest), left.shape)


def common_sizes(*dims: Digits) -> list[int] | None:
    """The sizes of the fewest digits into which all of these, of one dimension, can be split; None if impossible."""
    ends = {1}
    for digits in dims:
        end = 1
        for digit in reversed(digits):
            end *= digit.size
            ends.add(end)
    ordered = sorted(ends, reverse=True)
    if any(more % less for more, less in pairwise(ordered)):
        return None
    return [more // less for more, less in pairwise(ordered)]


def refined(digits: Digits, sizes: Sequence[int]) -> list[Digit]:
    """The same digits, split into digits of these sizes, whose products are the digits' own."""
    found: list[Digit] = []
    rest = list(reversed(sizes))
    for digit in reversed(digits):
        end = 1
        while end < digit.size:
            size = rest.pop(0)
            found.append(Digit(size, digit.stride * end))
            end *= size
    return found[::-1]


def _merged(digits: Sequence[Digit]) -> Digits:
    found: list[Digit] = []
    for digit in digits:
        if digit.size == 1:
            continue
        if found and found[-1].stride == digit.stride * digit.size:
            digit = Digit(found.pop().size * digit.size, digit.stride)
        found.append(digit)
    return tuple(found)


def reshaped(value: Affine, before: Sequence[int], after: Sequence[int]) -> Affine | None:
    """The same integers in another shape; None if a dimension would begin in the middle of a digit."""
    groups = reassociation_of(before, after)
    if groups is None:
        return None
    dims: list[Digits] = [()] * len(after)
    for group in groups:
        digits = tuple(digit for dim in group.before for digit in value.dims[dim])
        kept = [dim for dim in group.after if after[dim] != 1]
        sizes = common_sizes(digits, tuple(Digit(after[dim], 0) for dim in kept))
        if sizes is None:
            return None
        rest = refined(digits, sizes)
        for dim in kept:
            count = 0
            while prod(digit.size for digit in rest[:count]) < after[dim]:
                count += 1
            dims[dim], rest = _merged(rest[:count]), rest[count:]
    return replace(value, dims=tuple(dims))


def reversed_along(value: Affine, dims: Sequence[int]) -> Affine:
    """The integers reversed along some dimensions."""
    offset = value.offset + sum(digit.stride * (digit.size - 1) for dim in dims for digit in value.dims[dim])
    turned = [
        tuple(Digit(digit.size, -digit.stride) for digit in digits) if dim in dims else digits
        for dim, digits in enumerate(value.dims)
    ]
    return replace(value, offset=offset, dims=tuple(turned))


def sliced(value: Affine, dim: int, start: int, length: int, stride: int) -> Affine | None:
    """Every `stride`-th integer of a dimension from `start`; None if that has no digits."""
    digits = value.dims[dim]
    if length == prod(digit.size for digit in digits):
        return value
    if length == 1:
        return value.at(dim, start)
    if len(digits) != 1:
        return None
    own = digits[0].stride
    part = _merged([Digit(length, own * stride)])
    dims = (*value.dims[:dim], part, *value.dims[dim + 1 :])
    return replace(value, offset=value.offset + own * start, dims=dims)


def divided(value: Affine, number: int) -> tuple[Affine, Affine] | None:
    """The quotient and the remainder of non-negative integers by a positive number.

    None if they are not affine functions, or if a value decreases from one position to the next.
    """
    if number < 1 or value.offset < 0 or any(digit.stride < 0 for dim in value.dims for digit in dim):
        return None
    quotients, remainders = [], []
    highest = value.offset % number + value.slack
    for dim in value.dims:
        digits = [part for digit in dim for part in _split_at(digit, number)]
        low = [digit.stride % number for digit in digits]
        highest += sum(stride * (digit.size - 1) for digit, stride in zip(digits, low, strict=True))
        quotients.append(_merged([Digit(digit.size, digit.stride // number) for digit in digits]))
        remainders.append(_merged([Digit(digit.size, stride) for digit, stride in zip(digits, low, strict=True)]))
    if highest >= number:
        return None
    quotient = Affine(value.offset // number, tuple(quotients))
    return quotient, Affine(value.offset % number, tuple(remainders), value.slack)


def by_largest_step(value: Affine) -> tuple[int, Affine] | None:
    """The largest step of non-negative integers, and their quotients by it, if one digit determines these.

    None if the remainders, from the other digits and the slack, are not smaller than a step, or if there is no step.
    """
    step = max((abs(digit.stride) for dim in value.dims for digit in dim), default=0)
    large = [digit for dim in value.dims for digit in dim if step and abs(digit.stride) == step]
    if len(large) != 1 or value.lowest < 0:
        return None
    [digit] = large
    others = value.highest - value.lowest - step * (digit.size - 1)
    if value.lowest % step + others >= step:
        return None
    dims = [_merged([Digit(one.size, one.stride // step if one == digit else 0) for one in dim]) for dim in value.dims]
    offset = value.lowest // step + (digit.size - 1 if digit.stride < 0 else 0)
    return step, Affine(offset, tuple(dims))


def _split_at(digit: Digit, number: int) -> list[Digit]:
    """The digit split in two, the major one in multiples of `number`, if that is possible."""
    steps = number // digit.stride if digit.stride and number % digit.stride == 0 else 0
    if 1 < steps < digit.size and digit.size % steps == 0:
        return [Digit(digit.size // steps, number), Digit(steps, digit.stride)]
    return [digit]


def of_table(table: npt.NDArray[np.int64]) -> Affine | None:
    """The digits of an affine table: those of its lines through the first element; None for other tables."""
    first = int(table.flat[0])
    numbers = np.full((1,) * table.ndim, first)
    dims = []
    for dim, size in enumerate(table.shape):
        line = np.moveaxis(table, dim, 0).reshape(size, -1)[:, 0] - first
        digits = _digits_of(line)
        if digits is None:
            return None
        numbers = numbers + line.reshape([-1 if place == dim else 1 for place in range(table.ndim)])
        dims.append(digits)
    return Affine(first, tuple(dims)) if np.array_equal(numbers, table) else None


def _digits_of(line: npt.NDArray[np.int64]) -> tuple[Digit, ...] | None:
    """The digits of numbers from 0, found from the minor one on: it ends where the step changes. None if impossible."""
    digits: list[Digit] = []
    while line.size > 1:
        stride = int(line[1])
        other = np.flatnonzero(line != stride * np.arange(line.size))
        size = int(other[0]) if other.size else line.size
        if line.size % size:
            return None
        rows = line.reshape(-1, size)
        if not np.array_equal(rows, rows[:, :1] + stride * np.arange(size)):
            return None
        digits.insert(0, Digit(size, stride))
        line = rows[:, 0]
    return tuple(digits)
