"""Translates the shardings of GSPMD, the older partitioner, to Shardy's.

    custom_call @Sharding(x)                                     sdy.sharding_constraint x
    p = custom_call @SPMDFullToShardShape(x)                     sdy.manual_computation(x) {
    q = f(p)                                              ->       p: q = f(p)
    custom_call @SPMDShardToFullShape(q)                         }

XLA has such a translation, but only as a part of its compiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import string
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import inside_out, main_function, operations_of

from .manual import Boundary, gather_bodies
from .mesh import Mesh, Sharding
from .shardings import SHARDING, text_of
from .tile_assignment import NoAxes, Tiles, axes_of, common_mesh, read_tiles

GSPMD = "mhlo.sharding"
CONSTRAINT, ENTER, LEAVE = "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"
_OPEN = "unspecified_dims=["
_NAMES = ("arg_attrs", "res_attrs")


def is_gspmd(module: ir.Module) -> bool:
    """Whether any sharding of the module is GSPMD's."""
    return any(True for _ in _texts(module)) or any(_target(op) in (CONSTRAINT, ENTER, LEAVE) for op in _calls(module))


def unspecified_results(module: ir.Module) -> list[bool]:
    """For each result of the entry function, whether its sharding is left to the partitioner, GSPMD or Shardy."""
    function = main_function(module)
    count = len(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results)
    if "res_attrs" not in function.attributes:
        return [True] * count
    attributes = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["res_attrs"])]
    return [GSPMD not in each and SHARDING not in each for each in attributes]


def translate(module: ir.Module, devices: int) -> None:
    """Replace GSPMD's shardings by Shardy's attributes and ops, in place, in a module without calls.

    Raises NoAxes for a sharding that Shardy cannot express.
    """
    tiles = {text: read_tiles(text) for text in set(_texts(module))}
    mesh = common_mesh("mesh", devices, tiles.values())
    translation = _Translation(mesh, tiles)
    with module.context, ir.Location.unknown():
        with ir.InsertionPoint.at_block_begin(module.body):
            axes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
            attributes = {
                "sym_name": ir.StringAttr.get(mesh.name),
                "mesh": ir.Attribute.parse(f"#sdy.mesh<[{axes}]>"),
            }
            ir.Operation.create("sdy.mesh", attributes=attributes)
        for function in operations_of(module.body):
            if function.name == "func.func":
                translation.signature(function)
        gather_bodies(module, translation.boundary)
        for op in inside_out(module):
            translation.op(op)


@dataclass(frozen=True, slots=True)
class _Translation:
    mesh: Mesh
    tiles: Mapping[str, Tiles]

    def signature(self, function: ir.Operation) -> None:
        """Translate the shardings of arguments and results."""
        kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        for name, types in zip(_NAMES, (kind.inputs, kind.results), strict=True):
            if name in function.attributes:
                given = zip(ir.ArrayAttr(function.attributes[name]), types, strict=True)
                function.attributes[name] = ir.ArrayAttr.get(
                    [self._named(ir.DictAttr(one), each) for one, each in given]
                )

    def _named(self, attributes: ir.DictAttr, kind: ir.Type) -> ir.Attribute:
        found = {attributes[place].name: attributes[place].attr for place in range(len(attributes))}
        text = found.pop(GSPMD, None)
        if text is not None:
            sharding, manual = self._axes(ir.StringAttr(text).value, kind)
            if manual:
                raise NoAxes("an argument or a result is sharded manually")
            found[SHARDING] = _sharding(text_of(sharding, self.mesh))
        return ir.DictAttr.get(found)

    def op(self, op: ir.Operation) -> None:
        """Translate a constraint, or an op that carries a sharding."""
        if GSPMD not in op.attributes:
            return
        text = string(op, GSPMD)
        if len(op.results) != 1:
            raise NoAxes(f"a sharding is {text}")
        sharding, _ = self._axes(text, op.results[0].type)
        if _target(op) != CONSTRAINT:
            del op.attributes[GSPMD]
            if any(sharding):
                op.attributes[SHARDING] = ir.Attribute.parse(
                    f"#sdy.sharding_per_value<[{text_of(sharding, self.mesh)}]>"
                )
            return
        opened = self._opened(op)
        if any(sharding) or (not self.tiles[text].is_manual and not all(opened)):
            attribute = _sharding(text_of(sharding, self.mesh, opened))
            with ir.InsertionPoint(op), op.location:
                value = ir.Operation.create(
                    "sdy.sharding_constraint", [op.results[0].type], list(op.operands), {"sharding": attribute}
                ).results[0]
        else:
            value = op.operands[0]
        op.results[0].replace_all_uses_with(value)
        op.erase()

    def boundary(self, op: ir.Operation) -> Boundary | None:
        """The boundary of a computation written for one device; None for any other op."""
        target = _target(op)
        if target not in (ENTER, LEAVE):
            return None
        inner = string(op, GSPMD) if target == ENTER else _own_text(op.operands[0])
        outer = _own_text(op.operands[0]) if target == ENTER else string(op, GSPMD)
        whole = op.operands[0] if target == ENTER else op.results[0]
        said = defining_op(op.operands[0]) if target == ENTER else op
        if inner not in self.tiles or outer not in self.tiles or said is None:
            raise NoAxes(f"{target} does not say how its operand is sharded")
        _, every = self._axes(inner, op.operands[0].type)
        sharding, around = self._axes(outer, whole.type)
        manual = every - around
        own = tuple(tuple(axis for axis in axes if axis.name in manual) for axes in sharding)
        return Boundary(
            enters=target == ENTER,
            sharding=text_of(own, self.mesh, self._opened(said) if len(every) < len(self.mesh.axes) else ()),
            manual=tuple(name for name, _ in self.mesh.axes if name in manual),
            depth=len(around),
        )

    def _axes(self, text: str, kind: ir.Type) -> tuple[Sharding, frozenset[str]]:
        rank = len(ir.RankedTensorType(kind).shape) if isinstance(kind, ir.RankedTensorType) else 0
        tiles = self.tiles[text]
        if not tiles.rank_is(rank):
            raise NoAxes(f"a sharding of a tensor of rank {rank} is {text}")
        return axes_of(tiles, rank, self.mesh)

    def _opened(self, op: ir.Operation) -> Sequence[bool]:
        config = string(op, "backend_config")
        rank = len(build.shape_of(op.results[0]))
        if not config.startswith(_OPEN):
            return (False,) * rank
        dims = {int(dim) for dim in config.removeprefix(_OPEN).removesuffix("]").split(",") if dim}
        return tuple(dim in dims for dim in range(rank))


def _sharding(text: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#sdy.sharding{text}")


def _own_text(value: ir.Value) -> str:
    op = defining_op(value)
    return string(op, GSPMD) if op is not None else ""


def _calls(module: ir.Module) -> list[ir.Operation]:
    return inside_out(module, "stablehlo.custom_call")


def _target(op: ir.Operation) -> str:
    return string(op, "call_target_name") if op.name == "stablehlo.custom_call" else ""


def _texts(module: ir.Module) -> Iterator[str]:
    for op in inside_out(module):
        if GSPMD in op.attributes:
            yield string(op, GSPMD)
        for name in _NAMES:
            if op.name == "func.func" and name in op.attributes:
                for each in map(ir.DictAttr, ir.ArrayAttr(op.attributes[name])):
                    if GSPMD in each:
                        yield ir.StringAttr(each[GSPMD]).value
