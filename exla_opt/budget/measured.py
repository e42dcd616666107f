"""What a compiler says of a module that is tried for a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """A compiled module.

    peak: bytes. seconds: what a run is estimated to take; None where that is not known.
    """

    peak: int
    seconds: float | None = None


# Compiles a module, which is given as bytecode. Raises CannotCompile (exla_opt/budget/attempts.py).
Measure = Callable[[bytes], Measured]
