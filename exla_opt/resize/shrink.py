"""A smaller version of a module, with settings under which the same tensors are big: for checks that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.attributes import is_splat
from exla_opt.ir.types import Types
from exla_opt.ir.walk import walk_functions
from exla_opt.memory.peak import predict
from exla_opt.options import Options
from exla_opt.resize.apply import resize
from exla_opt.resize.dimensions import Dimensions, Sizes, consistent, read_dimensions

# Dimensions do not shrink below this size: widths, heads, features.
_SMALL = 32
# Sizes are divided by powers of two up to this one.
_DIVISIONS = 24
# Predictions are rarely off by more.
_MARGIN = 1.2
# Integer constants below this are rarely a dimension's size.
_LEAST_COUNT = 64


@dataclass(frozen=True, slots=True)
class Shrunken:
    """A smaller module, with other inputs of the same kind.

    options: under which the same tensors are big. sizes: the dimensions that were changed, (before, after) pairs, the
    largest first.
    """

    module: ir.Module
    options: Options
    sizes: tuple[tuple[int, int], ...]


class CannotShrink(Exception):
    """The module cannot be made small enough; the message is a clause that says what prevents it."""


def needed_bytes(module: ir.Module) -> int:
    """The predicted memory of a run that also holds its inputs and outputs."""
    memory = predict(module)
    return int(_MARGIN * memory.peak) + memory.arguments + 2 * memory.results


def shrink(read: Callable[[], ir.Module], options: Options, limit: int) -> Iterator[Shrunken]:
    """Divide the module's dimensions by powers of two; yield versions from the first that runs in `limit` bytes on.

    read: creates the module anew. All dimensions that must be equal get one size. Raises CannotShrink when no version
    fits, and what `read_rules` raises for the op rules of the options.
    """
    before, fits = -1, False
    for power in range(1, _DIVISIONS):
        module = read()
        dimensions = read_dimensions(module, options.op_rules)
        wanted = {n: max(dimensions.sizes[n] >> power, min(dimensions.sizes[n], _SMALL)) for n in dimensions.free}
        sizes = consistent(dimensions, wanted)
        settings = _settings(dimensions, sizes, options)
        resize(module, dimensions, sizes)
        _rescale_counts(module, dimensions, sizes)
        needed = needed_bytes(module)
        if needed == before:
            break
        before = needed
        if needed <= limit:
            fits = True
            changed = {(size, sizes[n]) for n, size in dimensions.sizes.items() if sizes[n] != size}
            yield Shrunken(module, settings, tuple(sorted(changed, reverse=True)))
    if not fits:
        kept = {size for n, size in dimensions.sizes.items() if sizes[n] == size and size > _SMALL}
        names = ", ".join(str(size) for size in sorted(kept, reverse=True)[:3])
        raise CannotShrink(
            f"its dimensions of {names} cannot be made smaller consistently"
            if kept
            else "it cannot be made small enough"
        )


def _settings(dimensions: Dimensions, sizes: Sizes, options: Options) -> Options:
    """A threshold below all big tensors and, if possible, above the others; and slices in proportion.

    In between, it keeps its distance from the largest of the others: passes compute tensors of sizes in between.
    """
    types = Types()
    big: list[int] = []
    others = [(1, 1)]
    for value, classes in dimensions.values:
        kind = types.of(value)
        after = kind.element_bytes * prod(sizes[number] for number in classes)
        if kind.bytes > options.size_threshold:
            big.append(after)
        elif kind.bytes:
            others.append((kind.bytes, after))
    if not big:
        return options
    before, after = max(others)
    above = max(options.size_threshold * after // before, *(after for _, after in others))
    threshold = max(min(above, min(big) - 1), 1)

    def shrunk(size: int) -> int:
        return max(threshold * size // options.size_threshold, 1)

    at = tuple((place, shrunk(size)) for place, size in options.slices_at)
    return replace(options, size_threshold=threshold, split_size=shrunk(options.slice_bytes), slices_at=at)


def _rescale_counts(module: ir.Module, dimensions: Dimensions, sizes: Sizes) -> None:
    """Adapt integer constants that are a dimension's size, or one less: trip counts, bounds of indices."""
    after: dict[int, set[int]] = {}
    for number, size in dimensions.sizes.items():
        after.setdefault(size, set()).add(sizes[number])
    numbers = {size - less: next(iter(new)) - less for less in (1, 0) for size, new in after.items() if len(new) == 1}
    for op in walk_functions(module.operation):
        if op.name != "stablehlo.constant":
            continue
        kind = ir.RankedTensorType(op.results[0].type)
        if isinstance(kind.element_type, ir.IntegerType) and kind.element_type.width >= 16 and is_splat(op):
            _rescale(op, kind, numbers)


def _rescale(op: ir.Operation, kind: ir.RankedTensorType, numbers: dict[int, int]) -> None:
    value = ir.IntegerAttr(ir.DenseElementsAttr(op.attributes["value"]).get_splat_value())
    if value.value >= _LEAST_COUNT and value.value in numbers:
        with op.location:
            new = ir.IntegerAttr.get(value.type, numbers[value.value])
            op.attributes["value"] = ir.DenseElementsAttr.get_splat(kind, new)
