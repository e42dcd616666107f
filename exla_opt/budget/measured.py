"""A compiler's findings on a module that is tried for a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """A compiled module.

    peak: bytes. seconds: the estimated time of a run; None if not known. note: what the compile had to leave out.
    """

    peak: int
    seconds: float | None = None
    note: str = ""


# Compiles a module given as bytecode. Raises CannotCompile (exla_opt/budget/search.py).
Measure = Callable[[bytes], Measured]
