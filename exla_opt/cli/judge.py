"""The judge of a run: silences its compiler, and reports each compile to the parent process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from exla_opt.budget.judge import THIS_CPU, Judge
from exla_opt.cli.common import load_jax
from exla_opt.cli.supervise import COMPILING, doing

if TYPE_CHECKING:  # at run time these are imported inside the function, for they load MLIR and jax
    from exla_opt.sharding.partition import Partition


def judge_of(target: str | None, source: str, partition: Partition | None = None) -> Judge:
    """The judge for a target as written on the command line; None stands for this machine's CPU.

    source: the name of the module. partition: its local programs are compiled. Raises what
    `exla_opt.runtime.judge.judge_of` raises, and click's ClickException when jax cannot be loaded for a target.
    """
    try:
        load_jax(uses_gpu=target == "cuda")
    except click.ClickException as error:
        if target is not None:
            raise
        return Judge(THIS_CPU, 0, None, error.message)
    from exla_opt.runtime import judge

    @contextmanager
    def compiling() -> Iterator[None]:
        doing(COMPILING, source)
        try:
            yield
        finally:
            doing("working on it", source)

    return judge.judge_of(target, partition, compiling)
