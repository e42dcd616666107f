"""Which dimensions of a module's tensors must have the same size, and how the others are related.

Every dimension of every value gets the number of its class. A class contains the dimensions that ops force to be equal;
`Relation`s tie the sizes of classes through reshapes and concatenations. Dimensions about which an op says nothing
certain are fixed: no size is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.walk import is_private, terminator, walk_functions
from exla_opt.ops.definition import BY_FACTORS, NONE
from exla_opt.ops.rules import OPS, read_rules
from exla_opt.ops.tie import Site, by_factors

# Maps the number of a class to its size.
Sizes = dict[int, int]


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation of sizes: combine(size of each of `left`) == combine(size of each of `right`)."""

    combine: Callable[[Sequence[int]], int]
    left: tuple[int, ...]
    right: tuple[int, ...]

    def holds(self, sizes: Sizes) -> bool:
        """Whether these sizes are consistent."""
        return self.value(self.left, sizes) == self.value(self.right, sizes)

    def value(self, side: tuple[int, ...], sizes: Sizes) -> int:
        """The combined sizes of one side."""
        return self.combine([sizes[number] for number in side])


@dataclass(frozen=True, slots=True)
class Bound:
    """A slice: (size of `part` - 1) * stride + 1 <= size of `whole`."""

    whole: int
    part: int
    stride: int = 1

    def least(self, sizes: Sizes) -> int:
        """The smallest size of the whole."""
        return (sizes[self.part] - 1) * self.stride + 1


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The classes of a module's dimensions.

    values: every tensor with the class of each of its dimensions. sizes: of each class. fixed: the classes that cannot
    be resized.
    """

    values: tuple[tuple[ir.Value, tuple[int, ...]], ...]
    sizes: Sizes
    fixed: frozenset[int]
    relations: tuple[Relation, ...]
    bounds: tuple[Bound, ...]

    @property
    def free(self) -> list[int]:
        """The classes whose size can be chosen: neither fixed nor the product or sum of others."""
        derived = {side[0] for relation in self.relations for side in (relation.left, relation.right) if len(side) == 1}
        return [number for number in self.sizes if number not in self.fixed and number not in derived]


class Classes:
    """Collects the constraints of ops: a union-find over the dimensions of all values."""

    def __init__(self) -> None:
        self._first: dict[ir.Value, int] = {}
        self._parent: list[int] = []
        self._size: list[int] = []
        self._fixed: list[int] = []
        self._relations: list[Relation] = []
        self._bounds: list[Bound] = []

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """The shape of a tensor; () for other types."""
        kind = value.type
        return tuple(kind.shape) if isinstance(kind, ir.RankedTensorType) else ()

    def places(self, value: ir.Value) -> range:
        """The numbers of the value's dimensions."""
        shape = self.shape(value)
        first = self._first.get(value)
        if first is None:
            first = self._first[value] = len(self._parent)
            self._parent += range(first, first + len(shape))
            self._size += shape
        return range(first, first + len(shape))

    def same(self, one: int, other: int) -> None:
        """Two dimensions have the same size."""
        self._parent[self._root(one)] = self._root(other)

    def fix(self, *values: ir.Value) -> None:
        """Keep the shapes of these values."""
        for value in values:
            self.fix_dimensions(*self.places(value))

    def fix_dimensions(self, *places: int) -> None:
        """Keep the sizes of these dimensions."""
        self._fixed += places

    def relation(self, combine: Callable[[Sequence[int]], int], left: Sequence[int], right: Sequence[int]) -> None:
        """Relate sizes through a reshape or a concatenation."""
        if combine is prod and len(left) == len(right) == 1:
            self.same(left[0], right[0])
            return
        self._relations.append(Relation(combine, tuple(left), tuple(right)))

    def bound(self, whole: int, part: int, stride: int = 1) -> None:
        """One dimension is a slice of another."""
        self._bounds.append(Bound(whole, part, stride))

    def _root(self, place: int) -> int:
        while (parent := self._parent[place]) != place:
            self._parent[place] = self._parent[parent]
            place = parent
        return place

    def finish(self) -> Dimensions:
        """The classes, numbered in order of first occurrence. Sizes of 0 and 1 are fixed."""
        numbers: dict[int, int] = {}
        sizes: Sizes = {}
        for place, size in enumerate(self._size):
            sizes[numbers.setdefault(self._root(place), len(numbers))] = size

        def class_of(place: int) -> int:
            return numbers[self._root(place)]

        def classes_of(side: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(map(class_of, side))

        fixed = {class_of(place) for place in self._fixed} | {n for n, size in sizes.items() if size < 2}
        return Dimensions(
            tuple((value, classes_of(tuple(self.places(value)))) for value in list(self._first)),
            sizes,
            frozenset(fixed),
            tuple(Relation(r.combine, classes_of(r.left), classes_of(r.right)) for r in self._relations),
            tuple(Bound(class_of(b.whole), class_of(b.part), b.stride) for b in self._bounds),
        )


def read_dimensions(module: ir.Module, op_rules: tuple[tuple[str, str], ...] = ()) -> Dimensions:
    """The classes of all dimensions, from the definitions of ops. The module is not changed.

    op_rules: (call target, rule text) pairs for custom calls. Raises what `read_rules` raises.
    """
    classes = Classes()
    functions = {_name(view.operation): view.operation for view in module.body.operations}
    pairs = list(zip(walk_functions(module.operation), read_rules(module, op_rules), strict=True))
    called = {ir.FlatSymbolRefAttr(op.attributes["callee"]).value for op, _ in pairs if op.name == "func.call"}
    used = {ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value for op, _ in pairs if _is_composite(op)}
    for name, function in functions.items():
        # Any other reference to a function than a call would have to change with it.
        if name in used or (function.name == "func.func" and is_private(function) and name not in called):
            _fix_signature(function, classes)
    for op, rule in pairs:
        _relate(Site(op, rule, functions, classes))
    return classes.finish()


def _is_composite(op: ir.Operation) -> bool:
    return op.name == "stablehlo.composite"


def _fix_signature(function: ir.Operation, classes: Classes) -> None:
    for block in function.regions[0].blocks:
        classes.fix(*block.arguments, *terminator(block).operands)


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""


def _relate(site: Site) -> None:
    """Add the op's constraints to the classes; fix the dimensions that it does not cover."""
    definition = OPS.get(site.op.name)
    ties = BY_FACTORS if definition is None else definition.ties
    if ties is NONE:
        spoken: set[int] = set()
    else:
        spoken = set(by_factors(site) if ties is BY_FACTORS else ties(site))
    for value in (*site.op.operands, *site.op.results):
        site.classes.fix_dimensions(*(place for place in site.classes.places(value) if place not in spoken))


def consistent(dimensions: Dimensions, wanted: Sizes) -> Sizes:
    """Sizes for all classes, as near to the wanted ones as the relations allow.

    wanted: sizes of free classes, none above the current one. A class that cannot have its size keeps the current one,
    so the result is always consistent; in the worst case nothing changes.
    """
    fixed, floors = set(dimensions.fixed), dict.fromkeys(dimensions.sizes, 1)
    while True:
        sizes = {
            number: size if number in fixed else min(max(wanted.get(number, size), floors[number]), size)
            for number, size in dimensions.sizes.items()
        }
        _derive(dimensions, sizes, fixed)
        broken = {n for r in dimensions.relations if not r.holds(sizes) for n in (*r.left, *r.right)}
        low = {b.whole: b.least(sizes) for b in dimensions.bounds if b.least(sizes) > sizes[b.whole]}
        # A sliced dimension that is too short is raised; if that is impossible, it is fixed together with its slices.
        for bound in dimensions.bounds:
            if bound.whole in low and (floors[bound.whole] >= low[bound.whole] or bound.whole in fixed):
                broken |= {bound.whole, bound.part}
        if not broken and not low:
            return sizes
        fixed |= broken
        for number, size in low.items():
            floors[number] = max(floors[number], size)


def _derive(dimensions: Dimensions, sizes: Sizes, fixed: set[int]) -> None:
    """Compute products and sums, repeated until their inputs are final."""
    for _ in dimensions.relations:
        before = dict(sizes)
        for relation in dimensions.relations:
            for one, others in ((relation.left, relation.right), (relation.right, relation.left)):
                if len(one) == 1 and one[0] not in fixed:
                    sizes[one[0]] = relation.value(others, sizes)
        if sizes == before:
            return
