"""The types that describe an op's factors, and the guards that every factor passes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod

from exla_opt.remarks import Reason

Shape = tuple[int, ...]


class Kind(Enum):
    """How the slices of an op make up the unsplit op.

    INDEPENDENT: every result carries the factor; the slices of the results are concatenated.
    REDUCING: no result carries it; the slices' results are combined by the op's own monoid.
    CHAIN: no result carries it; the result of one slice is operand `Factor.chained` of the next.
    SCAN: every result carries it; the slices run in order, each from the last elements of the one before.
    """

    INDEPENDENT = "independent"
    REDUCING = "reducing"
    CHAIN = "chain"
    SCAN = "scan"


@dataclass(frozen=True, slots=True)
class DimMapping:
    """The position of a factor in one tensor.

    The factor's indices [low, low + length) are elements [0, length * inner) of dimension `dim`; the
    factor is the major part of that dimension, each index being `inner` contiguous elements.
    """

    dim: int
    length: int
    inner: int = 1
    low: int = 0


@dataclass(frozen=True, slots=True)
class Factor:
    """One way to cut an op: the indices [0, size) and their mapping in each operand and result.

    A mapping of None means that the tensor does not carry the factor: an operand is used unsplit, a
    result is a partial one (REDUCING), the chained value (CHAIN) or the same in every slice (INDEPENDENT).

    chained: the operands that are replaced by the results of the tile before. least: the minimum number of indices of
    the first tile. summed: for control flow, the results without a mapping that are sums over the tiles; each tile of a
    loop starts them from zero. reaches: by operand, the indices before and after its own that a tile reads as well,
    negative if it reads fewer; () if it reads its own. period: if tiles read across the ends of a circular tensor, as
    in a roll, the number of indices after which it repeats; else 0.
    """

    kind: Kind
    size: int
    operands: tuple[DimMapping | None, ...]
    results: tuple[DimMapping | None, ...]
    chained: tuple[int, ...] = ()
    least: int = 1
    summed: tuple[int, ...] = ()
    reaches: tuple[tuple[int, int], ...] = ()
    period: int = 0

    def is_same(self, index: int) -> bool:
        """Whether a result is the same in every slice."""
        return self.kind is Kind.INDEPENDENT and self.results[index] is None and index not in self.summed

    def is_unsplit(self) -> bool:
        """Whether each tile computes the entire op."""
        return not any((*self.operands, *self.results))


def unsplit(size: int, operands: int, results: int) -> Factor:
    """The factor of an op that is the same in every tile. operands, results: their numbers."""
    return Factor(Kind.INDEPENDENT, size, (None,) * operands, (None,) * results)


@dataclass(frozen=True, slots=True)
class LaidFactor:
    """A factor laid on an outer index: of a region, or of a loop that is cut.

    That index r is indices [r * scale + offset, (r + 1) * scale + offset) of the factor.
    operands, results: the mappings in terms of that index; None if the tensor does not carry it.
    """

    factor: Factor
    scale: int
    offset: int
    operands: tuple[DimMapping | None, ...]
    results: tuple[DimMapping | None, ...]


def lay_factor(factor: Factor, own: DimMapping, wanted: DimMapping) -> LaidFactor | None:
    """Lay a factor, which is at `own` in one tensor, so that `own` becomes `wanted`.

    None if one index of `wanted` is not an integer number of the factor's indices.
    """
    if wanted.inner % own.inner:
        return None
    scale = wanted.inner // own.inner
    if own.length != wanted.length * scale:
        return None
    offset = own.low - wanted.low * scale

    def laid(mapping: DimMapping | None) -> DimMapping | None:
        if mapping is None:
            return None
        return DimMapping(mapping.dim, mapping.length // scale, mapping.inner * scale, (mapping.low - offset) // scale)

    present = [mapping for mapping in (*factor.operands, *factor.results) if mapping is not None]
    if any(mapping.length % scale or (mapping.low - offset) % scale for mapping in present):
        return None
    return LaidFactor(factor, scale, offset, tuple(map(laid, factor.operands)), tuple(map(laid, factor.results)))


@dataclass(frozen=True)
class OpRule:
    """All factors of one op, and why every other dimension is not cut.

    overlaps: the factors whose tiles read more of an operand than their own part, for operands that are also in tiles.
    """

    factors: tuple[Factor, ...]
    reason: Reason
    overlaps: tuple[Factor, ...] = field(default=(), kw_only=True)

    def why(self) -> Reason:
        """Why a requested dimension is not cut."""
        return self.reason

    def at_operand(self, index: int, dim: int, inner: int = 1) -> Factor | None:
        """The factor in dimension `dim` of operand `index`, if any.

        inner: its number of contiguous elements per index, if that can be chosen: for control flow.
        """
        return next((f for f in self.factors if (s := f.operands[index]) is not None and s.dim == dim), None)

    def at_result(self, index: int, dim: int, inner: int = 1) -> Factor | None:
        """The factor in dimension `dim` of result `index`, if any; inner as above."""
        return next((f for f in self.factors if (s := f.results[index]) is not None and s.dim == dim), None)


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of an op's operands and results."""

    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]

    @property
    def all(self) -> tuple[Shape, ...]:
        """Operands first, then results."""
        return self.operands + self.results


def independent(size: int, operands: Sequence[DimMapping | None], results: Sequence[DimMapping | None]) -> Factor:
    """A factor of the results."""
    return Factor(Kind.INDEPENDENT, size, tuple(operands), tuple(results))


# One tensor of an einsum: for every dimension its letters, the major one first.
Letters = Sequence[Sequence[Hashable]]


@dataclass(frozen=True, slots=True)
class Einsum:
    """An op written like an einsum: `([i,k],[k,j])->([i,j])` with the sizes of its letters.

    summed: letters that may be absent from the results, because the op sums (or reduces) over them.
    uncut: letters that must not be cut.
    """

    operands: Sequence[Letters]
    results: Sequence[Letters]
    sizes: Mapping[Hashable, int] = field(default_factory=dict)
    summed: Collection[Hashable] = ()
    uncut: Collection[Hashable] = ()


def numbered(shape: Shape) -> list[list[Hashable]]:
    """The letters 0, 1, ... of the dimensions of one tensor."""
    return [[dim] for dim in range(len(shape))]


def _sizes(einsum: Einsum, shapes: Shapes) -> dict[Hashable, int]:
    """The given sizes, and those of letters that alone fill a dimension."""
    sizes = dict(einsum.sizes)
    for letters, shape in zip((*einsum.operands, *einsum.results), shapes.all, strict=True):
        for dim, size in zip(letters, shape, strict=True):
            if len(dim) == 1:
                sizes.setdefault(dim[0], size)
    return sizes


def _mapping(
    letter: Hashable, letters: Letters, shape: Shape, sizes: Mapping[Hashable, int]
) -> DimMapping | None | bool:
    """The letter's mapping in one tensor, None if it is not there, False if it cannot be cut.

    It can be cut if it is in one dimension only, is the major letter of it (a minor one is strided), and the letters'
    sizes multiply to the dimension's: Shardy gives some dimensions made-up sizes.
    """
    found: DimMapping | None = None
    for dim, names in enumerate(letters):
        if letter not in names:
            continue
        real = [name for name in names if sizes[name] > 1]
        if found is not None or real[0] != letter or prod(sizes[name] for name in names) != shape[dim]:
            return False
        found = DimMapping(dim, sizes[letter], prod(sizes[name] for name in real[1:]))
    return found


def _letters_in_order(tensors: Iterable[Letters]) -> list[Hashable]:
    return list(dict.fromkeys(name for letters in tensors for dim in letters for name in dim))


def factors_of(einsum: Einsum, shapes: Shapes, makes: bool = False) -> tuple[Factor, ...]:
    """The factors that may be cut, those of the results first.

    makes: whether a letter may be in the results only (the op creates the elements of that dimension alike).
    An empty tensor gives none.
    """
    if any(size < 1 for shape in shapes.all for size in shape):
        return ()
    sizes = _sizes(einsum, shapes)
    factors = []
    for letter in _letters_in_order((*einsum.results, *einsum.operands)):
        if sizes[letter] < 2 or letter in einsum.uncut:
            continue
        operands = [_mapping(letter, *pair, sizes) for pair in zip(einsum.operands, shapes.operands, strict=True)]
        results = [_mapping(letter, *pair, sizes) for pair in zip(einsum.results, shapes.results, strict=True)]
        mappings = [mapping for mapping in (*operands, *results) if not isinstance(mapping, bool)]
        if len(mappings) < len(operands) + len(results):
            continue
        before, after = tuple(mappings[: len(operands)]), tuple(mappings[len(operands) :])
        read = any(mapping is not None for mapping in before)
        if all(mapping is not None for mapping in after) and (read or makes) and letter not in einsum.summed:
            factors.append(Factor(Kind.INDEPENDENT, sizes[letter], before, after))
        elif all(mapping is None for mapping in after) and letter in einsum.summed:
            factors.append(Factor(Kind.REDUCING, sizes[letter], before, after))
    return tuple(factors)


def _uncut(shape: Shape, mappings: Iterable[DimMapping | None]) -> list[int]:
    cut = {mapping.dim for mapping in mappings if mapping is not None}
    return [dim for dim, size in enumerate(shape) if size > 1 and dim not in cut]


def why_uncut(name: str, shapes: Shapes, factors: Sequence[Factor]) -> str:
    """The sentence that names the dimensions that no factor cuts: of a result first, else of an operand."""
    for index, shape in enumerate(shapes.results):
        if dims := _uncut(shape, (factor.results[index] for factor in factors)):
            return f"{name} needs its {_dimensions(dims)} unsplit"
    for index, shape in enumerate(shapes.operands):
        if dims := _uncut(shape, (factor.operands[index] for factor in factors)):
            return f"{name} needs {_dimensions(dims)} of its operand {index} unsplit"
    return f"{name} has no other dimension to split"


def _dimensions(dims: Sequence[int]) -> str:
    if len(dims) == 1:
        return f"dimension {dims[0]}"
    return f"dimensions {', '.join(map(str, dims[:-1]))} and {dims[-1]}"
