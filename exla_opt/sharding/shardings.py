"""Shardings in Shardy's attributes on ops and functions, read as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from exla_opt.ir import build
from exla_opt.ir.walk import CONTROL_FLOW, operations_of

from .mesh import Axis, Mesh, Sharding

SHARDING = "sdy.sharding"


def read_meshes(module: ir.Module) -> list[Mesh]:
    """The meshes of a module, in order."""
    found = []
    for op in operations_of(module.body):
        if op.name == "sdy.mesh":
            found.append(_read_mesh(ir.StringAttr(op.attributes["sym_name"]).value, op.attributes["mesh"]))
    return found


def _read_mesh(name: str, attribute: ir.Attribute) -> Mesh:
    mesh = sdy.MeshAttr(attribute)
    axes = tuple((axis.name, axis.size) for axis in map(sdy.MeshAxisAttr, mesh.axes))
    return Mesh(name, axes, tuple(mesh.device_ids) or tuple(range(prod(size for _, size in axes))))


def sharding_of_attribute(attribute: ir.Attribute, mesh: Mesh) -> Sharding:
    """The axes of every dimension."""
    found = sdy.TensorShardingAttr(attribute)
    return tuple(
        tuple(_axis(axis, mesh) for axis in sdy.DimensionShardingAttr(dim).axes) for dim in found.dimension_shardings
    )


def _axis(attribute: ir.Attribute, mesh: Mesh) -> Axis:
    axis = sdy.AxisRefAttr(attribute)
    if axis.sub_axis_info is None:
        return mesh.axis(axis.name)
    part = sdy.SubAxisInfoAttr(axis.sub_axis_info)
    return mesh.axis(axis.name, part.pre_size, part.size)


def shardings_of_results(op: ir.Operation, mesh: Mesh) -> list[Sharding]:
    """The shardings of an op's results; replicated by default."""
    if "out_sharding" in op.attributes:
        return [sharding_of_attribute(op.attributes["out_sharding"], mesh)]
    name = "out_shardings" if op.name == "sdy.manual_computation" else SHARDING
    if name not in op.attributes:
        return [((),) * _rank(result) for result in op.results]
    found = sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings
    return [sharding_of_attribute(each, mesh) for each in found]


@dataclass(frozen=True, slots=True)
class Spread:
    """The sharding of a value, and its mesh."""

    sharding: Sharding
    mesh: Mesh


def sharding_of_value(value: ir.Value, meshes: Mapping[str, Mesh]) -> Spread | None:
    """The sharding propagated to a value; None if there is none, or its axes do not matter."""
    attribute = _attribute_of(value)
    if attribute is None:
        return None
    mesh = _mesh_of(sdy.TensorShardingAttr(attribute).mesh_or_ref, meshes)
    sharding = sharding_of_attribute(attribute, mesh)
    owner = value.owner
    if isinstance(owner, ir.Block) and owner.owner.operation.name == "sdy.manual_computation":
        sharding = without(sharding, axes_in_manual(owner.owner.operation, mesh))
    return Spread(sharding, mesh)


def axes_in_manual(op: ir.Operation, mesh: Mesh) -> frozenset[str]:
    """The axes along which the body of a manual computation is already local."""
    return frozenset(axis.name for axis in mesh.read_axes(str(op.attributes["manual_axes"])))


def without(sharding: Sharding, names: frozenset[str]) -> Sharding:
    """The sharding without these axes."""
    return tuple(tuple(axis for axis in axes if axis.name not in names) for axes in sharding)


def _mesh_of(attribute: ir.Attribute, meshes: Mapping[str, Mesh]) -> Mesh:
    """The mesh that a sharding names, or contains inline, as in jaxlib 0.12."""
    if str(attribute).startswith("@"):
        return meshes[ir.FlatSymbolRefAttr(attribute).value]
    return _read_mesh(str(attribute).removeprefix("#sdy."), attribute)


def _attribute_of(value: ir.Value) -> ir.Attribute | None:
    owner = value.owner
    if isinstance(owner, ir.Block):
        place, around = ir.BlockArgument(value).arg_number, owner.owner.operation
        if around.name not in (*CONTROL_FLOW, "func.func", "sdy.manual_computation"):
            return None  # scalar code
        if around.name != "func.func":
            if around.name != "sdy.manual_computation":
                return _nth(around, SHARDING, place) or _propagated(around.results[place])
            return _nth(around, "in_shardings", place)
        if "arg_attrs" not in around.attributes:
            return None
        given = ir.DictAttr(ir.ArrayAttr(around.attributes["arg_attrs"])[place])
        return _named(given, SHARDING)
    op = owner.operation
    for name in ("out_sharding", "sharding"):
        if name in op.attributes:
            return op.attributes[name]
    name = "out_shardings" if op.name == "sdy.manual_computation" else SHARDING
    return _nth(op, name, ir.OpResult(value).result_number)


def _propagated(carried: ir.Value) -> ir.Attribute | None:
    """The sharding of what a loop carries, which stands on an op of its own until Shardy's export."""
    for use in carried.uses:
        edge = use.owner.operation
        if edge.name == "sdy.data_flow_edge" and "sharding" in edge.attributes:
            found: ir.Attribute = edge.attributes["sharding"]
            return found
    return None


def _named(attributes: ir.DictAttr, name: str) -> ir.Attribute | None:
    if name not in attributes:
        return None
    found: ir.Attribute = attributes[name]
    return found


def _nth(op: ir.Operation, name: str, place: int) -> ir.Attribute | None:
    if name not in op.attributes:
        return None
    found: ir.Attribute = sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings[place]
    return found


def reshard(value: ir.Value, sharding: Sharding, mesh: Mesh) -> ir.Value:
    """The value with another sharding."""
    attribute = ir.Attribute.parse(f"#sdy.sharding{text_of(sharding, mesh)}")
    made: ir.Value = ir.Operation.create("sdy.reshard", [value.type], [value], {"sharding": attribute}).results[0]
    return made


def shardings_of(function: ir.Operation, name: str, values: list[ir.Type], mesh: Mesh) -> list[Sharding]:
    """The shardings of a function's arguments (`arg_attrs`) or results (`res_attrs`)."""
    if name not in function.attributes:
        return [((),) * len(ir.RankedTensorType(kind).shape) for kind in values]
    attributes = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes[name])]
    return [
        sharding_of_attribute(each[SHARDING], mesh)
        if SHARDING in each
        else ((),) * len(ir.RankedTensorType(kind).shape)
        for each, kind in zip(attributes, values, strict=True)
    ]


def text_of(sharding: Sharding, mesh: Mesh, opened: Sequence[bool] = ()) -> str:
    """The sharding as Shardy prints it in a list: `<@mesh, [{"d"}, {}]>`.

    opened: which dimensions may be sharded further.
    """
    more = opened or (False,) * len(sharding)
    dims = [
        "{" + ", ".join([_axis_text(axis, mesh) for axis in axes] + ["?"] * is_open) + "}"
        for axes, is_open in zip(sharding, more, strict=True)
    ]
    name = mesh.name if mesh.name.startswith("mesh<") else f"@{mesh.name}"
    return f"<{name}, [{', '.join(dims)}]>"


def _axis_text(axis: Axis, mesh: Mesh) -> str:
    is_all = axis.size == dict(mesh.axes)[axis.name]
    return f'"{axis.name}"' if is_all else f'"{axis.name}":({axis.pre}){axis.size}'


def set_shardings(op: ir.Operation, shardings: Sequence[Sharding], mesh: Mesh) -> None:
    """Annotate an op with the shardings of its results."""
    listed = ", ".join(text_of(each, mesh) for each in shardings)
    op.attributes[SHARDING] = ir.Attribute.parse(f"#sdy.sharding_per_value<[{listed}]>", op.context)


def _rank(value: ir.Value) -> int:
    return len(build.shape_of(value)) if isinstance(value.type, ir.RankedTensorType) else 0
