"""Rewrites programs for eight devices and runs them before and after: python -m tests.sharded [--gspmd] [NAME ...].

With --gspmd they are exported, compiled and run for GSPMD, the partitioner before Shardy. Prints a
line of JSON for each program. The parts of the CPU that stand for devices are made here, once in a process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.walk import main_function
from exla_opt.ir.write import serialise
from exla_opt.ops.sent import MORE
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.runtime import pjrt
from exla_opt.runtime.check import compare_results
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.memory import memory_of
from exla_opt.runtime.traffic import traffic_of
from exla_opt.sharding.partition import partition
from exla_opt.sharding.rewrite import joined_if_gained

from .program import DEVICES, Program
from .programs import made

_OPTIONS = Options(size_threshold=65_536, split_size=32_768)


def main(names: Sequence[str]) -> None:
    """Rewrite, run and compare the programs of these names, or all."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    chosen = [name for name in names if name != "--gspmd"]
    if len(chosen) < len(names):
        jax.config.update("jax_use_shardy_partitioner", False)
    programs = made()
    for name in chosen or programs:
        print(
            json.dumps(
                {
                    "name": name,
                    "gain": programs[name].gain,
                    "donates": "donate_argnums" in programs[name].options,
                    **check(programs[name]),
                }
            ),
            flush=True,
        )


def check(program: Program) -> dict[str, Any]:
    """What came of a program: how it compares, what each device needs and sends, before and after.

    local: whether the program of one device alone gives the same. alone: whether it gives the same as one device does,
    if that is asked for. signature: whether arguments and results are spread and donated alike. aliased: bytes that are
    donated. kept: whether the module goes out as it came.
    unsplit: what each device sends by the program of one, before a pass.
    """
    jitted = jax.jit(program.function, **program.options)
    exported = jax.export.export(jitted)(*program.arguments)
    arrays = [_array(number, each) for number, each in enumerate(jax.tree.leaves(program.arguments))]
    with new_context() as context:
        found = partition(parse_module("module", exported.mlir_module_serialized, context).module)
        unsplit = serialise(found.joined(found.local), "portable")
        local = found.local_copy()
        remarks = run_pipeline(local, DEFAULT_PASSES, _OPTIONS).remarks
        module, said = joined_if_gained(found, local, remarks)
        split = exported.mlir_module_serialized if module is None else serialise(module, "portable")
    before, middle, after = (_run(each, arrays) for each in (exported.mlir_module_serialized, unsplit, split))
    alone = _alone(program, arrays) if program.alone else before["results"]
    kept = module is None or any(after[name] > MORE * before[name] for name in ("sent", "peak"))

    def run(inputs: Sequence[Any]) -> Sequence[Any]:
        return run_program(before["program"], inputs)

    return {
        "local": all(one.passed for one in compare_results(before["results"], middle["results"], run, arrays)),
        "equal": all(one.passed for one in compare_results(before["results"], after["results"], run, arrays)),
        "alone": all(one.passed for one in compare_results(alone, middle["results"], run, arrays)),
        "signature": _signature(exported.mlir_module_serialized) == _signature(unsplit) == _signature(split),
        "aliased": [before["aliased"], after["aliased"]],
        "kept": kept,
        "codes": sorted({remark.code for remark in said}),
        "devices": sorted({remark.devices for remark in said}),
        "temp": [before["temp"], after["temp"]],
        "unsplit": middle["sent"],
        "sent": [before["sent"], after["sent"]],
        "in_loops": [before["in_loops"], after["in_loops"]],
    }


def _run(module: bytes, arrays: Sequence[Any]) -> dict[str, Any]:
    # As memory is measured: without the fusions that hide scratch memory.
    program = compile_program(module, count_all_memory=True)
    memory = memory_of(program.executable)
    traffic = traffic_of(pjrt.optimised_hlo(program.executable))
    return {
        "program": program,
        "results": run_program(program, arrays),
        "temp": memory.temp,
        "peak": memory.peak,
        "aliased": memory.aliased,
        "sent": traffic.bytes,
        "in_loops": traffic.in_loops,
    }


def _alone(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """The results of one device."""
    given = jax.tree.unflatten(jax.tree.structure(program.arguments), [jax.device_put(each) for each in arrays])
    return [np.asarray(each) for each in jax.tree.leaves(jax.jit(program.function)(*given))]


def _signature(module: bytes) -> str:
    """The types of arguments and results, their shardings, and what is donated."""
    with new_context() as context:
        parsed = parse_module("module", module, context).module
        function = main_function(parsed)
        names = ("function_type", "arg_attrs", "res_attrs")
        return "\n".join(str(function.attributes[name]) for name in names if name in function.attributes)


def _array(number: int, kind: Any) -> Any:
    rng = np.random.default_rng(number)
    if np.issubdtype(kind.dtype, np.integer):
        return rng.integers(0, 1000, kind.shape).astype(kind.dtype)
    is_square = len(kind.shape) == 2 and len(set(kind.shape)) == 1
    return (rng.normal(size=kind.shape) / (8 if is_square else 1)).astype(kind.dtype)


if __name__ == "__main__":
    main(sys.argv[1:])
