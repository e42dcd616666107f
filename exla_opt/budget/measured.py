"""A compiler's findings on a module that is tried for a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instead:
    """The module of several devices as it came, which may be written instead of the program of one of them.

    peak: its bytes on a device. of_changed, of_unchanged: whether it is written if passes changed the program of one,
    and if none did.
    """

    peak: int
    of_changed: bool
    of_unchanged: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """A compiled module.

    peak: bytes. seconds: the estimated time of a run; None if not known. note: what the compile had to leave out.
    instead: of the program of one device of several, what may be written in its place.
    """

    peak: int
    seconds: float | None = None
    note: str = ""
    instead: Instead | None = None


# Compiles a module given as bytecode. Raises CannotCompile (exla_opt/budget/search.py).
Measure = Callable[[bytes], Measured]
