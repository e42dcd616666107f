"""Who says whether a program fits: the compiler of a machine, or the prediction where that cannot be asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from exla_opt.budget.measured import Measure

THIS_CPU = "this machine's CPU"


@dataclass(frozen=True, slots=True)
class Judge:
    """The machine that a program is to fit.

    name: of the machine, for a person. memory: its bytes, 0 where they are not known. measure: compiles a module that
    is given as bytecode and returns its peak bytes and, for an H200 or H100, the estimated seconds of a run; None where
    only a prediction can be had, and no_compiler says why.
    notes: what a compile had to leave out.
    """

    name: str
    memory: int
    measure: Measure | None
    no_compiler: str = ""
    notes: list[str] = field(default_factory=list)
