"""What is known of each op: along which factors it may be cut, and how (design: factors)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How the slices of an op make up the whole.

    INDEPENDENT: every result carries the factor; the slices of the results are concatenated.
    REDUCING: no result carries it; the slices' results are combined by the op's own monoid.
    CHAIN: no result carries it; the result of one slice is operand `Factor.chained` of the next.
    """

    INDEPENDENT = "independent"
    REDUCING = "reducing"
    CHAIN = "chain"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a factor stands in one tensor.

    The factor's indices [low, low + length) are elements [0, length * inner) of dimension `dim`; the
    factor is the major part of that dimension, each index being `inner` contiguous elements.
    """

    dim: int
    length: int
    inner: int = 1
    low: int = 0


@dataclass(frozen=True, slots=True)
class Factor:
    """One way to cut an op: the indices [0, size) and where they stand in each operand and result.

    A slot of None means that the tensor does not carry the factor: an operand is used whole, a
    result is a partial one (REDUCING) or the chained value (CHAIN).
    """

    kind: Kind
    size: int
    operands: tuple[Slot | None, ...]
    results: tuple[Slot | None, ...]
    chained: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OpRule:
    """All the factors of one op, and the sentence that says why every other dimension is whole."""

    factors: tuple[Factor, ...]
    reason: str

    def at_operand(self, index: int, dim: int) -> Factor | None:
        """The factor that stands in dimension `dim` of operand `index`, if any."""
        return next((f for f in self.factors if (s := f.operands[index]) is not None and s.dim == dim), None)

    def at_result(self, index: int, dim: int) -> Factor | None:
        """The factor that stands in dimension `dim` of result `index`, if any."""
        return next((f for f in self.factors if (s := f.results[index]) is not None and s.dim == dim), None)
