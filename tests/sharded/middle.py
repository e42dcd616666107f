"""Training steps for eight devices where memory matters, compiled and not run: python -m tests.sharded.middle.

Prints a line of JSON for each: the bytes of temporaries of each device before and after, and the bytes that it sends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime import pjrt
from exla_opt.runtime.compile import compile_program
from exla_opt.runtime.memory import memory_of
from exla_opt.runtime.traffic import traffic_of
from exla_opt.sharding.partition import partition
from exla_opt.sharding.rewrite import joined_if_gained

from . import fully_sharded
from .program import DEVICES, Array, Program, line, spec
from .programs import constrained, layers, ring_attention, scanned

_OPTIONS = Options(size_threshold=4_000_000, split_size=2_000_000)


def made() -> dict[str, Program]:
    """The programs by name. Called where there are eight devices."""
    on = partial(spec, line())
    matrices, rows = [on((1024, 1024), "d")] * 6, on((131072, 1024), "d")

    def ring_loss(q: Array, k: Array, v: Array) -> Array:
        return (ring_attention(q, k, v) ** 2).sum()

    return {
        "fsdp": Program(constrained, (matrices, rows), 5, {"donate_argnums": 0}),
        "fsdp without constraints": Program(
            lambda ws, x: [w - 0.1 * d for w, d in zip(ws, jax.grad(layers)(ws, x), strict=True)], (matrices, rows), 5
        ),
        "data parallel": Program(jax.grad(layers), ([on((1024, 1024))] * 6, rows), 5),
        "ring": Program(ring_attention, (on((32768, 64), "d"),) * 3, 5),
        "ring, gradient": Program(jax.grad(ring_loss, (0, 1, 2)), (on((16384, 64), "d"),) * 3, 5),
        "scan, batch": Program(jax.grad(scanned), (on((12, 512, 512)), on((65536, 512), "d")), 5),
        "scan, weights": Program(jax.grad(scanned), (on((12, 512, 512), None, None, "d"), on((32768, 512))), 5),
        **fully_sharded.made(layers=12, rows=65536, width=512, gain=10),
    }


def main(names: Sequence[str]) -> None:
    """Rewrite and compile the programs of these names, or all."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    programs = made()
    for name in names or programs:
        print(json.dumps({"name": name, "gain": programs[name].gain, **_measured(programs[name])}), flush=True)


def _measured(program: Program) -> dict[str, Any]:
    exported = jax.export.export(jax.jit(program.function, **program.options))(*program.arguments)
    before = exported.mlir_module_serialized
    with new_context() as context:
        found = partition(parse_module("module", before, context).module)
        local = found.local_copy()
        module, _ = joined_if_gained(found, local, run_pipeline(local, DEFAULT_PASSES, _OPTIONS).remarks)
        after = before if module is None else serialise(module, "portable")
    (temp, sent), (less, sends) = map(_needed, (before, after))
    return {"temp": [temp, less], "sent": [sent, sends]}


def _needed(module: bytes) -> tuple[int, float]:
    program = compile_program(module, count_all_memory=True, optimise=False)
    return memory_of(program.executable).temp, traffic_of(pjrt.optimised_hlo(program.executable)).bytes


if __name__ == "__main__":
    main(sys.argv[1:])
