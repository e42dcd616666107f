"""What a rule of an op is given, and what most of them say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ops.rules import OpRule
from exla_opt.resize.dimensions import Classes

# The dimensions of which a rule has spoken.
Told = Iterable[int]


@dataclass(frozen=True, slots=True)
class Site:
    """One op to relate: its rule, the module's functions by name, and the classes."""

    op: ir.Operation
    rule: OpRule
    functions: dict[str, ir.Operation]
    classes: Classes


def by_factors(site: Site) -> Told:
    """Dimensions that one factor fills are of one size."""
    values = [*site.op.operands, *site.op.results]
    for factor in site.rule.factors:
        mappings = (*factor.operands, *factor.results)
        places = [
            site.classes.places(value)[mapping.dim]
            for value, mapping in zip(values, mappings, strict=True)
            if mapping is not None and (mapping.inner, mapping.low) == (1, 0) and mapping.length == factor.size
        ]
        # One that stands in results only is made by the op, or read from an operand in another way than this.
        if len(places) < sum(mapping is not None for mapping in mappings) or not any(factor.operands):
            continue
        yield from all_same(site, places)


def all_same(site: Site, places: list[int]) -> Told:
    for place in places[1:]:
        site.classes.same(places[0], place)
    yield from places


def tie(site: Site, *values: ir.Value) -> Told:
    """Values of one shape; scalars among them do not count."""
    ranked = [places for value in values if len(places := site.classes.places(value))]
    for dims in zip(*ranked, strict=True):
        yield from all_same(site, list(dims))


def tie_all(site: Site) -> Told:
    yield from tie(site, *site.op.operands, *site.op.results)


def tie_pairs(site: Site) -> Told:
    for operand, result in zip(site.op.operands, site.op.results, strict=True):
        yield from tie(site, operand, result)


def cut(site: Site, whole: int, part: int, sizes: tuple[int, int], stride: int = 1) -> Told:
    """A part of a dimension: the same dimension where it is all of it."""
    if sizes[0] == sizes[1]:
        site.classes.same(whole, part)
    else:
        site.classes.bound(whole, part, stride)
    yield from (whole, part)


def cut_all(site: Site, whole: ir.Value, part: ir.Value) -> Told:
    classes = site.classes
    pairs = zip(classes.places(whole), classes.places(part), strict=True)
    for place, sizes in zip(pairs, zip(classes.shape(whole), classes.shape(part), strict=True), strict=True):
        yield from cut(site, *place, sizes)
