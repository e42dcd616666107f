"""Advice to recompute tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from jaxlib.mlir import ir

from exla_opt.advice.words import places_named
from exla_opt.ir.rewrite import copy_of
from exla_opt.ir.write import serialise
from exla_opt.pipeline import run_pipeline
from exla_opt.remarks import Kind
from exla_opt.sizes import format_size

if TYPE_CHECKING:
    from exla_opt.budget.measured import Measure
    from exla_opt.options import Options

# The code of remarks on recomputed tensors: that pass also adds sums early, and orders chains.
_RECOMPUTED = "EX013"


def checkpoint_advice(
    module: ir.Module, options: Options, measure: Measure, peak: int, worth: int, named: Callable[[str], str]
) -> str:
    """Return where `jax.checkpoint` helps, with the compiled peak when those tensors are recomputed.

    "" if recomputing saves fewer than `worth` bytes, also if `normalise` alone saves as much.
    named: maps locations to the user's own.
    """
    copy = copy_of(module)
    least = replace(options, memory_limit=peak // 2)
    remarks = run_pipeline(copy, ("normalise", "recompute"), least).remarks
    done = [remark for remark in remarks if remark.kind is Kind.PASSED and remark.pass_name == "recompute"]
    if not done or any(remark.code != _RECOMPUTED for remark in done):  # the order of ops is not the user's to change
        return ""
    found = measure(serialise(copy, "bytecode")).peak
    if peak - found < worth or _without_recomputing(module, options, measure) - found < worth:
        return ""
    largest = sorted(done, key=lambda remark: -remark.bytes)
    return (
        f"jax.checkpoint around {places_named([named(remark.location) for remark in largest])}: with the tensors "
        f"created there recomputed, peak {format_size(found)}, compiled"
    )


def _without_recomputing(module: ir.Module, options: Options, measure: Measure) -> int:
    """The peak after `normalise` alone, which merges equal ops, and so changes what XLA keeps."""
    copy = copy_of(module)
    run_pipeline(copy, ("normalise",), options)
    return measure(serialise(copy, "bytecode")).peak
