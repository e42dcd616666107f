"""Merges meshes of the same devices in the same order: today's pmap brings a mesh of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxlib.mlir import ir

from exla_opt.ir.walk import inside_out, operations_of

from .mesh import Mesh
from .shardings import read_meshes

# The attributes that name a mesh or its axes.
_NAMING = (
    *("sdy.sharding", "in_shardings", "out_shardings", "manual_axes", "sharding", "arg_attrs", "res_attrs"),
    "replica_groups",  # of collectives from jax 0.12 on
)


def merge_meshes(module: ir.Module) -> None:
    """Replace references to the axes of equal meshes by those of the first mesh, in place."""
    meshes = read_meshes(module)
    for number, mesh in enumerate(meshes):
        like = next((one for one in meshes[:number] if _is_alike(one, mesh)), None)
        if like is None:
            continue
        names = {f"@{mesh.name},": f"@{like.name},"}
        names |= {f'"{old}"': f'"{new}"' for (old, _), (new, _) in zip(mesh.axes, like.axes, strict=True)}
        for op in inside_out(module):
            _rename(op, f"@{mesh.name}", names)
            if op.name == "sdy.mesh" and ir.StringAttr(op.attributes["sym_name"]).value == mesh.name:
                op.erase()


def keep_meshes(module: ir.Module, meshes: Sequence[ir.Operation]) -> None:
    """Copy those meshes that a module lacks to its head, as collectives may name them."""
    named = {str(op.attributes["sym_name"]) for op in operations_of(module.body) if op.name == "sdy.mesh"}
    with ir.InsertionPoint.at_block_begin(module.body):
        for mesh in meshes:
            if str(mesh.attributes["sym_name"]) not in named:
                mesh.clone()


def mesh_ops(module: ir.Module) -> list[ir.Operation]:
    """The ops that define a module's meshes."""
    return [op for op in operations_of(module.body) if op.name == "sdy.mesh"]


def _is_alike(one: Mesh, other: Mesh) -> bool:
    sizes = [[size for _, size in mesh.axes] for mesh in (one, other)]
    return sizes[0] == sizes[1] and one.devices == other.devices


def _rename(op: ir.Operation, symbol: str, names: Mapping[str, str]) -> None:
    texts = {name: str(op.attributes[name]) for name in _NAMING if name in op.attributes}
    if not any(f"{symbol}," in text for text in texts.values()):
        return
    for name, text in texts.items():
        for old, new in names.items():
            text = text.replace(old, new)
        op.attributes[name] = ir.Attribute.parse(text, op.context)
