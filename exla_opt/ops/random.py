"""Ops that draw numbers: none is cut, for what is drawn depends on how much is drawn at once."""

from __future__ import annotations

from .definition import OpDefinition, never_cut

OPS: dict[str, OpDefinition] = {
    f"stablehlo.{name}": never_cut("{} draws numbers that depend on their position")
    for name in ("rng", "rng_bit_generator")
}
