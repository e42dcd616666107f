"""Reductions, convolutions, order and linear algebra."""

from __future__ import annotations

import re

from jaxlib.mlir import ir

from exla_opt.ir.attributes import boolean, integer, integers
from exla_opt.ops.custom_calls import target_of
from exla_opt.ops.windows import Window, is_running, windows_of

from .site import Site, Told, all_same, by_factors, cut, tie, tie_all

_POTRF, _TRSM = re.compile(r"lapack_[sdcz]potrf_ffi"), re.compile(r"lapack_[sdcz]trsm_ffi")
_NO_WINDOW = Window(1, 1, 1, 1, 0, 0)


def convolution(site: Site) -> Told:
    """Groups are numbers in attributes."""
    if integer(site.op, "feature_group_count", 1) == integer(site.op, "batch_group_count", 1) == 1:
        yield from by_factors(site)


def reduce(site: Site) -> Told:
    count = len(site.op.results)
    sources = list(site.op.operands)[:count]
    yield from tie(site, *sources)
    dims = integers(site.op, "dimensions", [])
    kept = [place for dim, place in enumerate(site.classes.places(sources[0])) if dim not in dims]
    for result in site.op.results:
        for one, other in zip(kept, site.classes.places(result), strict=True):
            yield from all_same(site, [one, other])


def reduce_window(site: Site) -> Told:
    """A dimension without a window, and a running sum."""
    count = len(site.op.results)
    sources = list(site.op.operands)[:count]
    yield from tie(site, *sources)
    yield from tie(site, *site.op.results)
    windows = windows_of(site.op, integers(site.op, "window_dimensions", []))
    read, made = (site.classes.places(value) for value in (sources[0], site.op.results[0]))
    for place, other, size, window in zip(read, made, site.classes.shape(sources[0]), windows, strict=True):
        if window == _NO_WINDOW or is_running(window, size, size):
            site.classes.same(place, other)
        else:
            site.classes.fix_dimensions(place, other)


def triangular_solve(site: Site) -> Told:
    yield from tie(site, site.op.operands[1], site.op.results[0])
    yield from _solved(site, left=boolean(site.op, "left_side"))


def _solved(site: Site, left: bool) -> Told:
    matrix, sides = site.op.operands
    *batch, rows, columns = site.classes.places(matrix)
    *others, first, second = site.classes.places(sides)
    for one, other in zip(batch, others, strict=True):
        yield from all_same(site, [one, other])
    yield from all_same(site, [rows, columns, first if left else second])


def custom_call(site: Site) -> Told:
    """LAPACK's Cholesky factor and triangular solve; of other calls only what their factors tell."""
    yield from by_factors(site)
    target = target_of(site.op)
    if _POTRF.fullmatch(target):
        matrix, made = site.op.operands[0], site.op.results[0]
        yield from tie(site, matrix, made)
        yield from all_same(site, list(site.classes.places(matrix))[-2:])
    elif _TRSM.fullmatch(target):
        yield from tie(site, site.op.operands[1], site.op.results[0])
        config = ir.DictAttr(site.op.attributes["mhlo.backend_config"])
        yield from _solved(site, left=ir.IntegerAttr(config["side"]).value == ord("L"))


def cholesky(site: Site) -> Told:
    yield from tie_all(site)
    yield from all_same(site, list(site.classes.places(site.op.operands[0]))[-2:])


def top_k(site: Site) -> Told:
    classes = site.classes
    values, places = site.op.results
    yield from tie(site, values, places)
    *rows, whole = classes.places(site.op.operands[0])
    *same, part = classes.places(values)
    for one, other in zip(rows, same, strict=True):
        yield from all_same(site, [one, other])
    yield from cut(site, whole, part, (classes.shape(site.op.operands[0])[-1], classes.shape(values)[-1]))
