"""The tasks of the bench against peers: all ways to compute one give the same, with KeOps where it is installed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.peers import keops
from benchmarks.peers.tasks import Task, nearest, tasks
from exla_opt.api import optimize
from exla_opt.runtime.compare import compare
from exla_opt.runtime.compile import compile_program, run_program
from exla_opt.runtime.inputs import Array

TASKS = tasks(part=100)
FORMULAS = keops.programs()
THRESHOLD = 20_000


def arrays_of(task: Task) -> list[Array]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(np.float32) for shape in task.shapes]


def check(expected: Any, actual: Any) -> None:
    pairs = zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True)
    for comparison in (compare(np.asarray(one), np.asarray(other)) for one, other in pairs):
        assert comparison.passed, comparison.problem


def test_names_differ_and_formulas_are_used() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS)
    assert not FORMULAS or {task.keops for task in TASKS} - {""} == set(FORMULAS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_all_ways_give_the_same(task: Task) -> None:
    arrays = arrays_of(task)
    expected = jax.jit(task.naive)(*arrays)
    for other in (task.by_map(7), task.by_hand(8), task.library):
        if other is not None:
            check(expected, jax.jit(other)(*arrays))
    if task.keops in FORMULAS:
        check(expected, FORMULAS[task.keops](*arrays))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_exla_opt_gives_the_same_in_a_loop(task: Task) -> None:
    arrays = arrays_of(task)
    before = str(jax.jit(task.naive).lower(*arrays).as_text())
    after = optimize(before, size_threshold=THRESHOLD, split_size=THRESHOLD // 2).program
    # XLA:CPU fuses what an argmin compares: there is nothing to cut.
    assert ("stablehlo.while" in after) == (task.rows is not nearest)
    results = [run_program(compile_program(text), arrays) for text in (before, after)]
    check(*results)
