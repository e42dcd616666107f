"""The passes, their order, and what happens between them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxlib.mlir import ir

from exla_opt.options import Options
from exla_opt.passes import (
    blocked_cholesky,
    blocked_solve,
    blocked_top_k,
    canonicalize,
    convolution_layout,
    cse,
    dot_order,
    euclidean_distance,
    half_powers,
    joined_trips,
    late_sums,
    loop_residuals,
    matrix_chain_order,
    narrow_slices,
    normalise,
    order_statistics,
    pointwise_convolutions,
    pooling_gradients,
    rce,
    recompute,
    reshape_sinker,
    reused_products,
    symmetric_products,
    symmetric_sums,
    tensor_splitter,
    unit_dims,
    wide_sums,
)
from exla_opt.remarks import Remark

PassFunction = Callable[[ir.Module, Options], list[Remark]]
AfterPass = Callable[[str, ir.Module], None]

# Every pass by its command-line name, in the order in which the passes are meant to run.
PASSES: dict[str, PassFunction] = {
    "normalise": normalise.run,
    "rce": rce.run,
    "pointwise-convolutions": pointwise_convolutions.run,
    "euclidean-distance": euclidean_distance.run,
    "matrix-chain-order": matrix_chain_order.run,
    "reused-products": reused_products.run,
    "symmetric-sums": symmetric_sums.run,
    "symmetric-products": symmetric_products.run,
    "reshape-sinker": reshape_sinker.run,
    "loop-residuals": loop_residuals.run,
    "late-sums": late_sums.run,
    "blocked-cholesky": blocked_cholesky.run,
    "order-statistics": order_statistics.run,
    "tensor-splitter": tensor_splitter.run,
    "blocked-solve": blocked_solve.run,
    "convolution-layout": convolution_layout.run,
    "pooling-gradients": pooling_gradients.run,
    "recompute": recompute.run,
    "blocked-top-k": blocked_top_k.run,
    "dot-order": dot_order.run,
    "half-powers": half_powers.run,
    "joined-trips": joined_trips.run,
    "narrow-slices": narrow_slices.run,
    "wide-sums": wide_sums.run,
    "unit-dims": unit_dims.run,
    "canonicalize": canonicalize.run,
    "cse": cse.run,
}

DEFAULT_PASSES = (
    "normalise",
    "rce",
    "pointwise-convolutions",  # before all passes that read products
    "euclidean-distance",
    "matrix-chain-order",
    "reused-products",
    "symmetric-sums",  # after all passes that turn big tensors into sums
    "symmetric-products",  # for the products that are still read then
    "reshape-sinker",  # ends with the patterns of rce
    "loop-residuals",
    "late-sums",  # after the steps that a loop recomputes are final
    "blocked-cholesky",
    "order-statistics",  # directly before the splitter: no pass may merge the ops that it repeats
    "tensor-splitter",
    "blocked-solve",  # for the solves that are left: the splitter cuts right-hand sides
    "convolution-layout",  # before recompute, for its copies are held as well
    "pooling-gradients",  # after the splitter, which cuts windows, and before recompute, for the indices that it saves
    "rce",  # a loop of one tile leaves slices of everything, which XLA drops
    "recompute",  # after all passes that make loops, which are recomputed like other ops
    "blocked-top-k",  # for the rows within a tile
    "dot-order",  # after all passes that make loops: a tile makes one operand larger and one smaller
    "half-powers",  # after all passes that read powers
    "joined-trips",  # once the loops are final
    "narrow-slices",
    "wide-sums",
    "reshape-sinker",  # tiles of one row leave dimensions of size 1, which clutter the output
    "unit-dims",  # after all patterns that would merge its reshapes into other ops
    "dot-order",  # again: products without dimensions of size 1 may be such that XLA:CPU does not run them
    "normalise",
)

# Passes that ignore the sizes in the options.
SIZELESS = frozenset({"normalise", "rce", "pointwise-convolutions", "canonicalize", "cse"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The remarks of the passes, in order, and a (pass, seconds) pair per run; the seconds include verification."""

    remarks: tuple[Remark, ...]
    seconds: tuple[tuple[str, float], ...]


def run_pipeline(
    module: ir.Module,
    names: Sequence[str],
    options: Options,
    *,
    verify_each: bool = True,
    after_pass: AfterPass | None = None,
    before_pass: AfterPass | None = None,
    overrides: Mapping[int, Mapping[str, Any]] | None = None,
) -> Outcome:
    """Run the named passes on `module`, in place; `before_pass` and `after_pass` see the module before and after each.

    overrides: options, in bytes, that differ for one pass, by its position in `names`.

    Raises KeyError for an unknown name before anything runs, InputError if a pass rejects the module, RuntimeError if a
    pass leaves an invalid module behind.
    """
    passes = [(name, PASSES[name]) for name in names]
    remarks: list[Remark] = []
    seconds: list[tuple[str, float]] = []
    for place, (name, run) in enumerate(passes):
        own = replace(options, **overrides[place]) if overrides and place in overrides else options
        if before_pass is not None:
            before_pass(name, module)
        start = time.perf_counter()
        try:
            remarks += run(module, own)
        except Exception as error:
            error.add_note(f"in pass {name}")
            raise
        if verify_each:
            _verify(module, name)
        seconds.append((name, time.perf_counter() - start))
        if after_pass is not None:
            after_pass(name, module)
    return Outcome(tuple(remarks), tuple(seconds))


def _verify(module: ir.Module, name: str) -> None:
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise RuntimeError(f"pass '{name}' left an invalid module: {error.error_diagnostics[0].message}") from error


def description(name: str) -> str:
    """The first line of the pass's docstring, without its name. Raises KeyError for an unknown name."""
    documentation = sys.modules[PASSES[name].__module__].__doc__ or ""
    return documentation.split("\n", 1)[0].partition(": ")[2].rstrip(".")
