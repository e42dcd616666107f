"""The local program of one device, and back: partition first, then split.

    @main(%x : 1024 rows)          @main(%x : 128 rows)        @main(%x : 1024 rows)
      big ops on all rows     ->     the same on 128      ->     sdy.manual_computation(%x) in, out as before
                                     collectives of 8              the rewritten program of one device

In between, the local program is like any other: tensor sizes, slices and memory are those of one device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir import build
from exla_opt.ir.attributes import PARTITIONS, devices_of, replicas_of
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.values import defining_op
from exla_opt.ir.walk import inside_out, main_function, operations_of, terminator
from exla_opt.options import Options
from exla_opt.passes import normalise

from .apart import ShardyFailed, propagated
from .behind_loops import sum_behind_loops
from .collectives import Collectives
from .equal import merge_equal_collectives
from .forms import FORMS
from .gspmd import is_gspmd, translate
from .join import join
from .localise import Localiser, NoLocalForm
from .mesh import Mesh, Sharding
from .meshes import keep_meshes, merge_meshes, mesh_ops
from .out_of_loops import communicate_outside_loops
from .shardings import SHARDING, read_meshes, shardings_of
from .tile_assignment import NoAxes

_CHANNEL = re.compile(r"handle = (\d+)")
_OTHERWISE = "export with the Shardy partitioner: jax.config.update('jax_use_shardy_partitioner', True)"


class CannotPartition(Exception):
    """There is no local program; the message is a clause that says why."""


@dataclass(slots=True)
class Partition:
    """A module for several devices, and its local program.

    given: the input, unchanged. original: the same with its calls inlined. local: the local program before any pass.
    mesh: the devices. arguments, results: their shardings.
    """

    given: ir.Module
    original: ir.Module
    local: ir.Module
    mesh: Mesh
    arguments: Sequence[Sharding]
    results: Sequence[Sharding]

    def local_copy(self) -> ir.Module:
        """The local program, to be rewritten."""
        return copy_of(self.local)

    def joined(self, local: ir.Module) -> ir.Module:
        """The module of all devices around a local program, which is unchanged."""
        return join(self.original, local, self.mesh, self.arguments, self.results)


def is_partitioned(module: ir.Module) -> bool:
    """Whether the module's tensors are sharded over several devices, or some ops are written for each one of a mesh,
    which may be of one device."""
    return devices_of(module) > 1 or any(True for _ in inside_out(module, "sdy.manual_computation"))


def partition(module: ir.Module) -> Partition:
    """The local program of a module, which is unchanged.

    Raises CannotPartition, and InputError for recursive calls.
    """
    original = copy_of(module)
    normalise.run(original, Options())
    merge_meshes(original)
    _check(original)
    said = _in_words_of_shardy(original)
    refused: list[CannotPartition] = []
    # In case Shardy, or a local form, lacks padding; then in case an op has no local form at all.
    for evenly, lenient in ((False, False), (True, False), (False, True)):
        try:
            return _partition(module, original, said, evenly=evenly, lenient=lenient)
        except CannotPartition as error:
            refused.append(error)
    raise refused[0]


def _partition(given: ir.Module, original: ir.Module, said: ir.Module, *, evenly: bool, lenient: bool) -> Partition:
    """The local program.

    said: the same module in Shardy's terms. evenly: no uneven shards of intermediate tensors. lenient: as in
    `Localiser`.
    """
    try:
        spread = propagated(said, evenly=evenly)
    except ShardyFailed as error:
        raise CannotPartition(str(error)) from None
    # The meshes of the input: from jaxlib 0.12 on, Shardy inlines the mesh where it is named.
    count = devices_of(original)
    meshes = [mesh for mesh in read_meshes(said) if mesh.count == count]
    if len(meshes) != 1:
        raise CannotPartition(f"it has {len(meshes)} meshes of {count} devices")
    [mesh] = meshes
    function = main_function(spread)
    block = function.regions[0].blocks[0]
    if block.arguments and all(0 in build.shape_of(each) for each in block.arguments):
        raise CannotPartition("all arguments are empty: XLA loses where the part of one device begins")
    arguments = shardings_of(function, "arg_attrs", [each.type for each in block.arguments], mesh)
    returned = list(terminator(block).operands)
    results = shardings_of(function, "res_attrs", [each.type for each in returned], mesh)
    try:
        local = _local(spread, mesh, arguments, results, lenient)
    except NoLocalForm as error:
        raise CannotPartition(str(error)) from None
    except ir.MLIRError as error:
        raise CannotPartition(f"the program of one device is not valid: {error.error_diagnostics[0].message}") from None
    return Partition(given, original, local, mesh, arguments, results)


def _check(module: ir.Module) -> None:
    if replicas_of(module) > 1:
        raise CannotPartition("it runs in several replicas, each of them partitioned")
    functions = [op for op in operations_of(module.body) if op.name == "func.func"]
    if len(functions) != 1:
        raise CannotPartition("it has several functions")


def _in_words_of_shardy(module: ir.Module) -> ir.Module:
    """The module, or a copy with GSPMD's shardings translated to Shardy's. Raises CannotPartition."""
    if not is_gspmd(module):
        return module
    made = copy_of(module)
    try:
        if read_meshes(made):
            raise NoAxes("some of its shardings are Shardy's")
        translate(made, devices_of(made))
    except NoAxes as error:
        raise CannotPartition(f"its shardings are GSPMD's, and {error}: {_OTHERWISE}") from None
    except ir.MLIRError as error:
        message = error.error_diagnostics[0].message
        raise CannotPartition(f"its shardings are GSPMD's, and {message}: {_OTHERWISE}") from None
    return made


def _local(
    spread: ir.Module, mesh: Mesh, arguments: Sequence[Sharding], results: Sequence[Sharding], lenient: bool
) -> ir.Module:
    function = main_function(spread)
    old = function.regions[0].blocks[0]
    made = ir.Module.create(spread.operation.location)
    for place in range(len(spread.operation.attributes)):
        named = spread.operation.attributes[place]
        if named.name != PARTITIONS:
            made.operation.attributes[named.name] = named.attr
    with made.context, function.location:
        keep_meshes(made, mesh_ops(spread))
        localiser = Localiser(mesh, Collectives(mesh, _last_channel(spread)), FORMS, lenient)
        kinds = [localiser.local_type(each, one) for each, one in zip(old.arguments, arguments, strict=True)]
        returned = list(terminator(old).operands)
        outputs = [localiser.local_type(each, one) for each, one in zip(returned, results, strict=True)]
        with ir.InsertionPoint(made.body):
            new = _function_like(function, ir.FunctionType.get(kinds, outputs))
        block = new.regions[0].blocks.append(*kinds, arg_locs=[each.location for each in old.arguments])
        for argument, value, sharding in zip(old.arguments, block.arguments, arguments, strict=True):
            localiser.local[argument], localiser.shardings[argument] = value, sharding
        with ir.InsertionPoint(block):
            top = defining_op(build.scalar_i32(0))
            assert top is not None
            localiser.collectives.top = top
            localiser.block(old)
            values = [localiser.resharded(each, one) for each, one in zip(returned, results, strict=True)]
            ir.Operation.create("func.return", operands=values, loc=terminator(old).location)
    top.erase()
    sum_behind_loops(made)
    communicate_outside_loops(made)
    merge_equal_collectives(made)
    made.operation.verify()
    return made


def _function_like(function: ir.Operation, kind: ir.Type) -> ir.Operation:
    """A function of another type, without a body and without shardings."""
    attributes = {"sym_name": function.attributes["sym_name"], "function_type": ir.TypeAttr.get(kind)}
    for name in ("sym_visibility", "arg_attrs", "res_attrs"):
        if name in function.attributes:
            attributes[name] = function.attributes[name]
    for name in ("arg_attrs", "res_attrs"):
        if name in attributes:
            attributes[name] = ir.ArrayAttr.get([_without_sharding(each) for each in ir.ArrayAttr(attributes[name])])
    return ir.Operation.create("func.func", attributes=attributes, regions=1)


def _without_sharding(attributes: ir.Attribute) -> ir.Attribute:
    given = ir.DictAttr(attributes)
    return ir.DictAttr.get(
        {given[place].name: given[place].attr for place in range(len(given)) if given[place].name != SHARDING}
    )


def _last_channel(module: ir.Module) -> int:
    found = [0]
    for op in inside_out(module):
        if "channel_handle" in op.attributes:
            found += map(int, _CHANNEL.findall(str(op.attributes["channel_handle"])))
    return max(found)
