"""The local forms of the communication ops that Shardy inserts."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from exla_opt.ir.values import defining_op

from .collectives import moves_of
from .localise import Form, Localiser, NoLocalForm, Results, monoid_between, own_part
from .mesh import Sharding


def _all_gather(localiser: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value] = localiser.operands(op)
    for dim, axes in enumerate(localiser.mesh.read_lists(str(op.attributes["gathering_axes"]))):
        value = localiser.collectives.gather(value, dim, axes)
    return [value]


def _all_slice(localiser: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value] = localiser.operands(op)
    return [own_part(localiser, value, tuple(localiser.mesh.read_lists(str(op.attributes["slicing_axes"]))))]


def _all_reduce(localiser: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value], source = localiser.operands(op), _source(op)
    axes = localiser.mesh.read_axes(str(op.attributes["reduction_axes"]))
    return [localiser.combined(source, localiser.collectives.reduce(value, axes, monoid_between(source)))]


def _reduce_scatter(localiser: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value], source = localiser.operands(op), _source(op)
    scattered = tuple(localiser.mesh.read_lists(str(op.attributes["reduce_scatter_axes"])))
    for dim, axes in enumerate(scattered):
        value = localiser.collectives.reduce_scatter(value, dim, axes, monoid_between(source))
    start = localiser.start.get(source.results[0])
    if start is not None:
        localiser.start[source.results[0]] = own_part(localiser, start, scattered)
    return [localiser.combined(source, value)]


def _source(op: ir.Operation) -> ir.Operation:
    """The op whose results a collective combines. Raises NoLocalForm if there is none."""
    made = defining_op(op.operands[0])
    while made is not None and made.name in ("sdy.all_reduce", "sdy.reduce_scatter"):
        made = defining_op(made.operands[0])
    if made is None:
        raise NoLocalForm("a collective combines the parts of an argument")
    return made


def _all_to_all(localiser: Localiser, op: ir.Operation, _: Sequence[Sharding]) -> Results:
    [value] = localiser.operands(op)
    for axes, source, target in moves_of(localiser.mesh, op):
        value = localiser.collectives.all_to_all(value, axes, source, target)
    return [value]


def _permute(localiser: Localiser, op: ir.Operation, shardings: Sequence[Sharding]) -> Results:
    [value] = localiser.operands(op)
    return [localiser.collectives.permute(value, localiser.shardings[op.operands[0]], shardings[0])]


COMMUNICATION: dict[str, Form] = {
    "sdy.all_gather": _all_gather,
    "sdy.all_slice": _all_slice,
    "sdy.all_reduce": _all_reduce,
    "sdy.reduce_scatter": _reduce_scatter,
    "sdy.all_to_all": _all_to_all,
    "sdy.collective_permute": _permute,
}
