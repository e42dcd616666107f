"""Expands big draws of random bits to elementwise ops, so that a loop can draw its slice separately."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from jaxlib.mlir import ir

from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.types import Types
from exla_opt.ir.values import has_discardable_attributes
from exla_opt.ir.walk import walk_functions
from exla_opt.ops.counts import count_apart
from exla_opt.ops.draw_bits import draw
from exla_opt.ops.element_at import read_part
from exla_opt.ops.joined_halves import Halves, halves_of, write_halves
from exla_opt.ops.random import is_drawn
from exla_opt.ops.traits import Trait, has_trait
from exla_opt.options import Options
from exla_opt.remarks import Reason

# The machines whose compilers expand the op in the same way.
_EXPANDING = ("cpu", "gpu")
# Why a big tensor stays; the second ones apply to all tensors alike.
_KEPT = ("EX2", "EX3")
_OF_ANY = ("EX203", "EX309", "EX311")


def expand_draws(module: ir.Module, options: Options) -> bool:
    """Replace draws of big tensors of bits by elementwise ops that compute the same bits; return whether there was one.

    This includes draws that are written as two halves of words, of which no slice of their result has both. If both
    halves are read, as for 64-bit words, each gets a counter of its own.
    """
    found = _expand_generators(module, options)
    found = _expand_halves(module, options) or found
    return count_apart(module, options.slice_bytes) or found


def _expand_generators(module: ir.Module, options: Options) -> bool:
    if options.machine.kind not in _EXPANDING:
        return False
    types, found = Types(), False
    draws = [op for op in walk_functions(module.operation) if has_trait(op, Trait.RANDOM)]
    for op in draws:
        if types.of(op.results[-1]).bytes <= options.size_threshold or has_discardable_attributes(op):
            continue
        with ir.InsertionPoint(op), op.location:
            made = draw(op)
        if made is None:
            continue
        for result, value in zip(op.results, made, strict=True):
            result.replace_all_uses_with(value)
        op.erase()
        found = True
    return found


def _expand_halves(module: ir.Module, options: Options) -> bool:
    types, found = Types(), False
    joins = [op for op in walk_functions(module.operation) if has_trait(op, Trait.NEW_BLOCK | Trait.MOVES)]
    for op in joins:
        if types.of(op.results[0]).bytes <= options.size_threshold:
            continue
        for use in list(op.results[0].uses):
            # 64-bit numbers take one word of each half: there is nothing to compute twice.
            reader = use.owner.operation
            if (part := read_part(reader)) is not None:
                reader.results[0].replace_all_uses_with(part)
                reader.erase()
                found = True
        halves = halves_of(op) if any(True for _ in op.results[0].uses) else None
        if halves is None or not _is_worthwhile(halves, types.of(op.results[0]).bytes, options):
            continue
        with ir.InsertionPoint(op), op.location:
            halves.last.replace_all_uses_with(write_halves(halves))
        found = True
    if found:
        clean_up(module)
    return found


def _is_worthwhile(halves: Halves, size: int, options: Options) -> bool:
    """Whether slices along the other dimensions, in which the halves are unchanged, are too large. size: in bytes."""
    shape, first = halves.frame.shape, halves.frame.dim
    others = prod(shape[:first]) * prod(shape[first + halves.frame.parts :])
    return size // others > options.slice_bytes


def why_not_split(value: ir.Value, reason: Reason) -> Reason:
    """The sentence of a remark, which describes the words of a draw."""
    if reason.code.startswith(_KEPT) and reason.code not in _OF_ANY and is_drawn(value):
        return replace(reason, code="EX313", text=f"random numbers of jax.random, not split: {reason.text}")
    return replace(reason, text=f"not split: {reason.text}")
