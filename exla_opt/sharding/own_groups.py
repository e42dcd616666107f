"""The device groups of collectives that a program writes itself, in `jax.shard_map`."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np
from jaxlib.mlir import ir

from .mesh import Mesh

_NAMED = re.compile(r'axis_ref<name = "([^"]*)"')
_GROUPS, _PAIRS = "replica_groups", "source_target_pairs"


def stays_between(op: ir.Operation, mesh: Mesh, manual: Collection[str]) -> bool:
    """Whether a collective moves data only along the manual axes, and alike at each position of the other axes.

    Then it does the same to all shards along the other axes. Devices are numbered over the mesh.
    """
    free = tuple(mesh.axis(name) for name, size in mesh.axes if size > 1 and name not in manual)
    if not free:
        return True
    attribute = op.attributes[_GROUPS if _GROUPS in op.attributes else _PAIRS]
    if not isinstance(attribute, ir.DenseElementsAttr):  # axes by name, as in jax 0.12
        return set(_NAMED.findall(str(attribute))) <= set(manual)
    if _GROUPS in op.attributes and not _counts_devices(op):
        return False
    within = tuple(mesh.axis(name) for name, _ in mesh.axes if name in manual)
    along, across = mesh.indices(within), mesh.indices(free)
    rows: dict[int, set[tuple[int, ...]]] = {place: set() for place in across}
    for row in np.asarray(attribute).tolist():
        if len({across[device] for device in row}) != 1:
            return False
        rows[across[row[0]]].add(tuple(along[device] for device in row))
    return len({frozenset(each) for each in rows.values()}) == 1


def _counts_devices(op: ir.Operation) -> bool:
    """Whether the groups contain devices, not replicas. An all_to_all has no attribute that says so."""
    has_channel = "channel_handle" in op.attributes
    return "use_global_device_ids" in op.attributes or (has_channel and op.name == "stablehlo.all_to_all")
