"""The step that makes dimensions smaller, together with all that must be equal to them."""

from __future__ import annotations

from math import sqrt

from exla_opt.resize.apply import resize
from exla_opt.resize.dimensions import consistent, read_dimensions

from .search import Search

# All sizes are divided by these first, from the left: one check instead of many.
_DIVISORS = (10**9, 1000, 100, 10, 2)
# A size is close enough to the smallest one within this factor.
_NEAR = 1.3


def shrink_dimensions(search: Search, name: str) -> None:
    """Find smaller sizes: of all dimensions at once, then of each class."""
    for divisor in _DIVISORS:
        _try(search, name, divisor, None)
    number = 0
    while number < len(_free(search)):
        _shrink(search, name, number)
        number += 1


def _free(search: Search) -> list[int]:
    """The sizes of the classes that can shrink, the largest first."""
    dimensions = read_dimensions(search.read())
    return sorted((dimensions.sizes[number] for number in dimensions.free), reverse=True)


def _try(search: Search, name: str, divisor: int, only: int | None, size: int = 1) -> bool:
    """Divide all free sizes, or set that of class `only`, counted from the largest."""
    module = search.read()
    dimensions = read_dimensions(module)
    free = sorted(dimensions.free, key=lambda number: -dimensions.sizes[number])
    if only is None:
        wanted = {number: max(dimensions.sizes[number] // divisor, 1) for number in free}
    else:
        wanted = {free[only]: size}
    sizes = consistent(dimensions, wanted)
    if sizes == dimensions.sizes:
        return False
    resize(module, dimensions, sizes)
    return search.accept(module, name)


def _shrink(search: Search, name: str, number: int) -> None:
    """Search the smallest size of one class by bisection, as if every larger one were interesting too."""
    size = _free(search)[number]
    if _try(search, name, 1, number, 1):
        return
    low, high = 1, size
    while high > low + 1 and high > _NEAR * low:
        middle = max(int(sqrt(low * high)), low + 1)
        if _try(search, name, 1, number, middle):
            high = middle
            if not (number < len(free := _free(search)) and free[number] == middle):
                break  # the order of the classes has changed
        else:
            low = middle
