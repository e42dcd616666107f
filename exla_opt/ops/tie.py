"""The interface of rules that tie dimensions, and the most common ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jaxlib.mlir import ir

from .factor import OpRule

# The dimensions that a rule covers.
Spoken = Iterable[int]


class Classes(Protocol):
    """Collects which dimensions have the same size. A place is the number of one dimension of one value."""

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """The shape of a tensor; () for other types."""

    def places(self, value: ir.Value) -> range:
        """The numbers of the value's dimensions."""

    def same(self, one: int, other: int) -> None:
        """Two dimensions have the same size."""

    def fix_dimensions(self, *places: int) -> None:
        """These dimensions keep their size."""

    def relation(self, combine: Callable[[Sequence[int]], int], left: Sequence[int], right: Sequence[int]) -> None:
        """combine(sizes of `left`) == combine(sizes of `right`)."""

    def bound(self, whole: int, part: int, stride: int = 1) -> None:
        """(size of `part` - 1) * stride + 1 <= size of `whole`."""


@dataclass(frozen=True, slots=True)
class Site:
    """One op to relate: its rule, the module's functions by name, and the classes."""

    op: ir.Operation
    rule: OpRule
    functions: dict[str, ir.Operation]
    classes: Classes


def by_factors(site: Site) -> Spoken:
    """Dimensions that one factor fills have the same size."""
    values = [*site.op.operands, *site.op.results]
    for factor in site.rule.factors:
        mappings = (*factor.operands, *factor.results)
        places = [
            site.classes.places(value)[mapping.dim]
            for value, mapping in zip(values, mappings, strict=True)
            if mapping is not None and (mapping.inner, mapping.low) == (1, 0) and mapping.length == factor.size
        ]
        # A factor in results only is created by the op, or read from an operand in another way.
        if len(places) < sum(mapping is not None for mapping in mappings) or not any(factor.operands):
            continue
        yield from all_same(site, places)


def all_same(site: Site, places: Sequence[int]) -> Spoken:
    """These dimensions have the same size."""
    for place in places[1:]:
        site.classes.same(places[0], place)
    yield from places


def tie(site: Site, *values: ir.Value) -> Spoken:
    """These values have the same shape; scalars among them do not count."""
    ranked = [places for value in values if len(places := site.classes.places(value))]
    for dims in zip(*ranked, strict=True):
        yield from all_same(site, dims)


def tie_all(site: Site) -> Spoken:
    """All operands and results have the same shape."""
    yield from tie(site, *site.op.operands, *site.op.results)


def tie_pairs(site: Site) -> Spoken:
    """Each result has the shape of the operand at its position."""
    for operand, result in zip(site.op.operands, site.op.results, strict=True):
        yield from tie(site, operand, result)


def tie_part(site: Site, whole: int, part: int, sizes: tuple[int, int], stride: int = 1) -> Spoken:
    """A part of a dimension: the same dimension if it is all of it."""
    if sizes[0] == sizes[1]:
        site.classes.same(whole, part)
    else:
        site.classes.bound(whole, part, stride)
    yield from (whole, part)


def tie_parts(site: Site, whole: ir.Value, part: ir.Value) -> Spoken:
    """Every dimension of one value is a part of the other's."""
    classes = site.classes
    pairs = zip(classes.places(whole), classes.places(part), strict=True)
    for place, sizes in zip(pairs, zip(classes.shape(whole), classes.shape(part), strict=True), strict=True):
        yield from tie_part(site, *place, sizes)
