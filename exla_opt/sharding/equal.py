"""Merges equal collectives of one block, as their channels differ and the compiler does not, and drops unread ones.

The forward and the backward pass of a layer gather the same weights, and a recomputed step gathers again.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib.mlir import ir

from exla_opt.ir.walk import operations_of
from exla_opt.ops.reducers import body_of, componentwise
from exla_opt.ops.traits import Trait, has_trait

_CHANNEL = "channel_handle"


def merge_equal_collectives(module: ir.Module) -> None:
    """Replace equal collectives of the same values by the first, and erase those that nothing reads, in place."""
    for function in operations_of(module.body):
        for block in _blocks(function):
            _merge(block)
            _drop_unread(block)


def _blocks(op: ir.Operation) -> Iterator[ir.Block]:
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in operations_of(block):
                yield from _blocks(inner)


def _merge(block: ir.Block) -> None:
    first: dict[tuple[object, ...], ir.Operation] = {}
    for op in operations_of(block):
        if not has_trait(op, Trait.COLLECTIVE):
            continue
        body = componentwise(body_of(op)) if op.regions else ()
        if body is None:
            continue
        names = [op.attributes[place].name for place in range(len(op.attributes))]
        texts = tuple((name, str(op.attributes[name])) for name in sorted(names) if name != _CHANNEL)
        same = first.setdefault((op.name, tuple(op.operands), body, texts), op)
        if same == op:
            continue
        for old, new in zip(op.results, same.results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


def _drop_unread(block: ir.Block) -> None:
    for op in reversed(operations_of(block)):
        if has_trait(op, Trait.COLLECTIVE) and not any(True for result in op.results for _ in result.uses):
            op.erase()
