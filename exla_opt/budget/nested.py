"""Tiles that are cut again, tried where all that fits is slower than the original, after those with one loop each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from exla_opt.budget.attempt import Attempt
from exla_opt.budget.choose import fastest, is_slower, steps
from exla_opt.budget.search import Search
from exla_opt.budget.ways import is_coarse
from exla_opt.ir.walk import number_of_ops
from exla_opt.options import Options

# The largest slices tried are this many times those that fit: cut again, they may take less memory.
_LARGER = 4
# The maximum number of attempts, and of those that gain nothing.
_MOST, _MOST_IN_VAIN = 6, 1
# A module of more ops than this, of which something fits, is tried only if that takes this many times as long as the
# original: planning nested tiles takes minutes there.
_LARGE, _MUCH_SLOWER = 800, 3.0
# The code of a remark on a split.
_SPLIT = "EX001"
# A peak that falls by less does not count as falling.
_GAIN = 1.02


def try_nested(search: Search, sizes: Sequence[Options], *, is_large: bool = False) -> Iterator[Attempt]:
    """Try tiles that are cut again, with ever smaller slices, until they fit, or are no faster than what fits.

    Only if whatever fits, or needs the least if nothing does, is slower than the original. sizes: the ways, of which
    those count that split all tensors larger than a slice. is_large: stop at the first that fits, at one no faster than
    what fits, and at one that needs more than the one before. In a small module, smaller slices are tried all the same:
    smaller limits would find them, and they may be faster.
    """
    plain = [found for found in search.attempts if found.options.split_size is not None]
    if not plain:
        return
    best = next(filter(search.seems_to_fit, fastest(search.attempts)), None)
    start = best or min(plain, key=lambda found: found.split.peak)
    if start.options.split_size is None or not is_slower(start, search.attempts[0]):
        return
    is_slow_enough = start.seconds > _MUCH_SLOWER * search.attempts[0].seconds
    if best is not None and not is_slow_enough and number_of_ops(search.module) > _LARGE:
        return
    least, most = min(found.options.slice_bytes for found in plain), _LARGER * start.options.slice_bytes
    known = [way for way in sizes if not is_coarse(way) and least <= way.slice_bytes <= most]
    in_vain = 0
    last: Attempt | None = None
    for way in sorted(known, key=lambda way: -way.slice_bytes)[:_MOST]:
        alike = start.options
        placed = replace(way, calls_in_loops=alike.calls_in_loops, separates_parts=alike.separates_parts)
        if not may_nest(search, placed):
            continue
        found = search.attempt(replace(placed, nested_tiles=True))
        equal = next((other for other in plain if _is_equal(found, other)), None)
        if equal is not None:
            search.attempts.remove(found)  # nothing was cut again
            continue
        yield found
        if is_large and _ends(search, found, best):
            return
        if is_large and best is None and last is not None and found.split.peak > _GAIN * last.split.peak:
            return
        last = found
        is_small = best is None and way.slice_bytes <= start.options.slice_bytes
        in_vain += is_small and found.split.peak * _GAIN >= start.split.peak
        if in_vain > _MOST_IN_VAIN:
            return


def _ends(search: Search, found: Attempt, best: Attempt | None) -> bool:
    """Whether an attempt fits if nothing else does, or else seems to, or is no faster than what fits."""
    if best is None:
        return search.fits(found)
    return search.seems_to_fit(found) or steps(found.seconds) >= steps(best.seconds)


def try_all_nested(search: Search) -> Iterator[Attempt]:
    """Try tiles that are cut again with the slices of each attempt that is slower than the original and splits all."""
    for plain in list(search.attempts[1:]):
        if is_coarse(plain.options) or not is_slower(plain, search.attempts[0]) or not _has_long_rows(plain):
            continue
        found = search.attempt(replace(plain.options, nested_tiles=True))
        if _is_equal(found, plain):
            search.attempts.remove(found)
        else:
            yield found


def may_nest(search: Search, way: Options) -> bool:
    """Whether tiles of this size may be cut again, by what the splitter has said in the plain attempts.

    An attempt of the same size decides. Without one, smaller slices do, which hold fewer rows.
    """
    known = [
        found
        for found in search.attempts
        if not found.options.nested_tiles
        and not is_coarse(found.options)
        and found.options.calls_in_loops == way.calls_in_loops
        and found.options.slice_bytes <= way.slice_bytes
        and any(remark.code == _SPLIT for remark in found.outcome.remarks)
    ]
    same = [found for found in known if found.options.slice_bytes == way.slice_bytes]
    return all(map(_has_long_rows, same or known))


def _has_long_rows(found: Attempt) -> bool:
    return any(remark.may_nest for remark in found.outcome.remarks)


def _is_equal(found: Attempt, other: Attempt) -> bool:
    same = replace(found.options, nested_tiles=False) == other.options
    return same and found.predicted == other.predicted and found.seconds == other.seconds
