"""A reshape that splits the batch of a gather splits that of its indices instead.

    reshape(gather(x, [n indices]), [k, n / k, ...])   ->   gather(x, reshape([n indices], [k, n / k]))

`x[permutation].reshape(batches, -1, features)`, scanned over its batches, is written so. Then each step of the loop
needs the indices of its own batch only, and reads these rows itself.

Legal: an index selects the same window wherever it stands, and both reshapes keep the order of the indices.
"""

from __future__ import annotations

from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from exla_opt.ir import build
from exla_opt.ir.values import defining_op, has_discardable_attributes
from exla_opt.ir.walk import inside_out
from exla_opt.ops.index_numbers import GATHER, IndexNumbers, attribute_of, indices_of, numbers_of


def split_batches(module: ir.Module) -> bool:
    """Split the batches of all gathers that only such a reshape reads; return whether there was one.

    Replaced ops stay, unused, for the caller to clean up.
    """
    changed = False
    for op in inside_out(module, "stablehlo.reshape"):
        gather = defining_op(op.operands[0], GATHER)
        batch = None if gather is None or has_discardable_attributes(op) else _split_batch(gather, op)
        if gather is None or batch is None:
            continue
        with ir.InsertionPoint(gather), gather.location:
            made = _with_batch(gather, batch)
            made.results[0].set_type(op.results[0].type)
        op.results[0].replace_all_uses_with(made.results[0])
        changed = True
    return changed


def _split_batch(gather: ir.Operation, reshape: ir.Operation) -> list[int] | None:
    """The longer batch of a gather after a reshape; None if the reshape does anything else."""
    numbers = numbers_of(gather)
    before, after = build.shape_of(gather.results[0]), build.shape_of(reshape.results[0])
    indices = build.shape_of(indices_of(gather))
    inner = len(numbers.windows)
    batch = len(before) - inner
    is_plain = numbers.vector == batch == len(indices) - 1 and numbers.windows == tuple(range(batch, len(before)))
    if numbers.batching or not is_plain or has_discardable_attributes(gather):
        return None
    is_read_once = len(list(gather.results[0].uses)) == 1
    if not is_read_once or not batch or len(after) <= len(before) or after[len(after) - inner :] != before[batch:]:
        return None
    longer = after[: len(after) - inner]
    return longer if prod(longer) == prod(before[:batch]) else None  # without elements any shape may become any other


def _with_batch(gather: ir.Operation, batch: list[int]) -> ir.Operation:
    numbers = numbers_of(gather)
    indices = indices_of(gather)
    kind = build.with_shape(build.tensor_of(indices), [*batch, build.shape_of(indices)[-1]])
    parted = stablehlo.reshape(kind, indices)
    made = gather.clone(ip=ir.InsertionPoint.current).operation
    made.operands[1] = parted
    windows = tuple(range(len(batch), len(batch) + len(numbers.windows)))
    name, attribute = attribute_of(gather, IndexNumbers(windows, numbers.single, (), (), numbers.named, len(batch)))
    made.attributes[name] = attribute
    return made
