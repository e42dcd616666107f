"""Ops that talk to other devices: none is cut."""

from __future__ import annotations

from .definition import OpDefinition, never_cut

OPS: dict[str, OpDefinition] = {
    f"stablehlo.{name}": never_cut("{} talks to other devices")
    for name in (
        "all_gather all_reduce all_to_all collective_broadcast collective_permute cross-replica-sum reduce_scatter"
    ).split()
}
