"""Advice on the batch: which one fits into the memory limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxlib.mlir import ir

from exla_opt.advice.flat import flat_copy
from exla_opt.advice.words import arguments_named
from exla_opt.budget.search import CannotCompile
from exla_opt.ir.aliasing import aliased_results
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function, terminator
from exla_opt.ir.write import serialise
from exla_opt.resize.apply import resize
from exla_opt.resize.batch import Batch, find_batch
from exla_opt.resize.separate import join_broadcasts, separate_broadcasts
from exla_opt.sizes import format_size

if TYPE_CHECKING:
    from exla_opt.budget.measured import Measure
    from exla_opt.options import Options

# The most compiles that the search may take.
_COMPILES = 3
# Of one example, programs are simplified in ways that do not hold for a batch.
_LEAST = 2


def batch_advice(module: ir.Module, options: Options, measure: Measure, peak: int, limit: int) -> str:
    """Return the largest batch that fits into `limit` bytes, halved until it does, with its compiled peak.

    "" if the module fits as it came, which needs `peak` bytes, if no batch was found to fit, and if the module has no
    dimension that is certainly a batch.
    """
    if peak <= limit:
        return ""
    flat = flat_copy(module)
    separate_broadcasts(flat)
    batch = find_batch(flat, options.op_rules)
    if batch is None:
        return ""
    # Without the batch, the arguments and results of other sizes stay; everything else should be in proportion.
    points = {0: _bytes_without(flat, batch), batch.size: peak}
    sizes, fits = halves(batch.size), 0
    for _ in range(_COMPILES):
        left = [size for size in sizes if size > fits and size not in points and _estimate(points, size) <= limit]
        if not left:
            break
        size = left[0]
        found = _peak_of(module, size, options, measure)
        if found is None:
            return ""
        points[size] = found
        if found <= limit:
            fits = size
        sizes = [each for each in sizes if each < size or found <= limit]
    if not fits:
        return ""
    block = main_function(flat).regions[0].blocks[0]
    dims = sorted({dim for _, dim in batch.places})
    where = " and ".join(
        f"dimension {dim} of {arguments_named(block, [place for place, at in batch.places if at == dim])}"
        for dim in dims
    )
    return (
        f"a batch of {fits} instead of {batch.size} ({where}) fits into {format_size(limit)}: "
        f"peak {format_size(points[fits])}, compiled"
    )


def halves(size: int) -> list[int]:
    """The divisors of a batch that are at most half of it, at most half of that one, and so on; the largest first."""
    found: list[int] = []
    while (size := next((each for each in range(size // 2, _LEAST - 1, -1) if size % each == 0), 0)) >= _LEAST:
        found.append(size)
    return found


def _estimate(points: dict[int, int], size: int) -> int:
    """The peak for a batch, from the known ones and that of no examples, which is a lower bound.

    The peak is the largest of what different moments need. Each grows linearly, so that the line through two known
    peaks is below the peak outside of them.
    """
    known = sorted(points)
    place = next(place for place, each in enumerate(known) if each > size)
    between = _on_line(points, known[place - 1], known[place], size)
    if place > 1 or len(known) < 3:
        return between
    return max(between, _on_line(points, known[1], known[2], size))


def _on_line(points: dict[int, int], one: int, other: int, size: int) -> int:
    return points[one] + (points[other] - points[one]) * (size - one) // (other - one)


def with_batch(module: ir.Module, size: int, op_rules: tuple[tuple[str, str], ...] = ()) -> ir.Module:
    """A copy of the module with a batch of this size, a divisor of its own. Constants keep their values, 1 / batch too.

    op_rules: (call target, rule text) pairs for custom calls. Raises ValueError for a module without a batch, or if it
    has no consistent sizes for this one, and MLIRError if the result is not valid.
    """
    smaller = flat_copy(module)
    copies = separate_broadcasts(smaller)
    batch = find_batch(smaller, op_rules)
    if batch is None:
        raise ValueError("the module has no batch")
    resize(smaller, batch.dimensions, batch.sizes_for(size))
    join_broadcasts(copies)
    smaller.operation.verify()
    return smaller


def _peak_of(module: ir.Module, size: int, options: Options, measure: Measure) -> int | None:
    """The compiled peak of the module with a batch of this size; None if it cannot be built or compiled."""
    try:
        return measure(serialise(with_batch(module, size, options.op_rules), "bytecode")).peak
    except (ValueError, ir.MLIRError, CannotCompile, InputError):  # a size in an attribute of which no rule knows
        return None


def _bytes_without(module: ir.Module, batch: Batch) -> int:
    """The bytes of the arguments and results that do not have the batch."""
    function, types, has = main_function(module), Types(), batch.carried
    block, aliased = function.regions[0].blocks[0], set(aliased_results(function).values())
    results = [value for place, value in enumerate(terminator(block).operands) if place not in aliased]
    return sum(types.of(value).bytes for value in (*block.arguments, *results) if value not in has)
