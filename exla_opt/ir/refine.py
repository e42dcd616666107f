"""Shapes that follow from those of a module's arguments.

`jax.export` leaves symbolic shapes in a function that was exported with them, and is called at known sizes.
"""

from __future__ import annotations

import io

from jaxlib.mlir import ir

from exla_opt.ir.hlo import refined
from exla_opt.ir.walk import is_private


def with_known_shapes(module: ir.Module) -> ir.Module | None:
    """The module with all shapes known, in the same context; None if they do not follow from its arguments'.

    Raises InputError for sizes that the module forbids.
    """
    operations = [view.operation for view in module.body.operations]
    functions = [op for op in operations if op.name == "func.func" and not is_private(op)]
    arguments = [value for each in functions for value in each.regions[0].blocks[0].arguments]
    if any(isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape for value in arguments):
        return None
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    found = refined(bytecode.getvalue(), is_sharded=any(op.name == "sdy.mesh" for op in operations))
    return None if found is None else ir.Module.parse(found, module.context)
