"""Searches on one program share what does not depend on their limits: the passes but for recompute, and predictions.

The passes are functions of module and sizes, so a search finds what it would find alone; it only finds it sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from jaxlib.mlir import ir

from exla_opt.budget import search as search_of_budget
from exla_opt.budget.attempt import RECOMPUTE
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import Machine
from exla_opt.memory.timeline import Timeline, read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import Outcome, run_pipeline


@contextmanager
def shared_searches() -> Iterator[None]:
    """While it lasts, searches share their work."""
    passes: dict[Any, tuple[bytes, Outcome]] = {}
    timelines: dict[Any, Timeline] = {}

    def run_once(module: ir.Module, names: Sequence[str], options: Options) -> Outcome:
        key = (serialise(module, "bytecode"), tuple(names), replace(options, memory_limit=None))
        if key not in passes:
            outcome = run_pipeline(module, names, options)
            passes[key] = (serialise(module, "bytecode"), outcome)
            return outcome
        data, outcome = passes[key]
        for view in list(module.body.operations):
            view.operation.erase()
        known = parse_module("shared", data, module.context).module  # whose ops live as long as it does
        for view in list(known.body.operations):
            module.body.append(view.operation.detach_from_parent())
        return outcome

    def run(module: ir.Module, names: Sequence[str], options: Options, **_: Any) -> Outcome:
        at = names.index(RECOMPUTE) if RECOMPUTE in names else len(names)
        done = [run_once(module, names[:at], options)]
        limit = options.memory_limit
        if limit is not None and read(module, options.machine).memory.peak > limit:  # else it does nothing
            done.append(run_pipeline(module, names[at : at + 1], options))
        done.append(run_once(module, names[at + 1 :], options))
        remarks, seconds = zip(*((each.remarks, each.seconds) for each in done), strict=True)
        return Outcome(sum(remarks, ()), sum(seconds, ()))

    def read(module: ir.Module, machine: Machine) -> Timeline:
        key = (serialise(module, "bytecode"), machine)
        if key not in timelines:
            timelines[key] = read_timeline(module, machine)
        return timelines[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_of_budget, "run_pipeline", run)
        patch.setattr(search_of_budget, "read_timeline", read)
        yield
