"""What an order of multiplications costs, and which of two is better: pure functions of sizes."""

from __future__ import annotations

from dataclasses import dataclass

from exla_opt.options import ChainCost

# A new order must be better by this factor: one that is as good as the old one changes nothing.
CLEARLY = 1.2


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: scalar multiplications and additions. largest: bytes of the largest intermediate tensor."""

    flops: int
    largest: int


def is_better(new: Cost, old: Cost, threshold: int, measure: ChainCost = "both") -> bool:
    """Whether `new` is clearly cheaper than `old`.

    threshold: bytes up to which a tensor fits. By "both", fewer operations win unless they need a larger tensor that
    does not fit; and where the old one did not fit, a smaller one wins that costs no more.
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
