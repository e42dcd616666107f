"""Ops that talk to other devices: none is cut."""

from __future__ import annotations

from jaxlib.mlir import ir

from exla_opt.ir.attributes import integer

from .definition import OpDefinition, never_cut

# The dimensions along which parts of several devices are joined, or taken apart for them.
_DIMENSIONS = ("all_gather_dim", "scatter_dimension", "split_dimension", "concat_dimension")

OPS: dict[str, OpDefinition] = {
    f"stablehlo.{name}": never_cut("{} talks to other devices")
    for name in (
        "all_gather all_reduce all_to_all collective_broadcast collective_permute cross-replica-sum reduce_scatter"
    ).split()
}


def moved_dims(op: ir.Operation) -> frozenset[int]:
    """The dimensions along which a collective joins parts of several devices, or takes them apart.

    Along all others each element of a result is made of the elements at its own place.
    """
    return frozenset(integer(op, name) for name in _DIMENSIONS if name in op.attributes)
