"""The cost of an order of multiplications, and the comparison of two: pure functions of sizes."""

from __future__ import annotations

from dataclasses import dataclass

from exla_opt.options import ChainCost

# A new order must be better by this factor, so that equally good ones change nothing.
CLEARLY = 1.2


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: scalar multiplications and additions. largest: bytes of the largest intermediate tensor."""

    flops: int
    largest: int


def is_better(new: Cost, old: Cost, threshold: int, measure: ChainCost = "both") -> bool:
    """Whether `new` is clearly cheaper than `old`.

    threshold: bytes up to which a tensor fits. For "both", fewer operations win unless they need a larger tensor that
    does not fit; and if the old one did not fit, a smaller one wins that costs no more.
    """
    fewer = new.flops < old.flops and new.flops * CLEARLY <= old.flops
    smaller = new.largest < old.largest and new.largest * CLEARLY <= old.largest
    if measure == "flops":
        return fewer
    if measure == "bytes":
        return smaller
    if fewer:
        return new.largest <= max(old.largest, threshold)
    return smaller and old.largest > threshold and new.flops <= old.flops
