"""The judge of whether a program fits: the compiler of a machine, or the prediction if there is none."""

from __future__ import annotations

from dataclasses import dataclass

from exla_opt.budget.measured import Measure

THIS_CPU = "this machine's CPU"


@dataclass(frozen=True, slots=True)
class Judge:
    """The machine that a program must fit.

    name: of the machine, for the user. memory: its bytes, 0 if not known. measure: compiles a module given as bytecode
    and returns its peak bytes and, for an H200 or H100, the estimated seconds of a run; None if only a prediction is
    possible, and `no_compiler` says why.
    note: on all of its compiles. workspace: the bytes that a program may need on top on the machine
    itself, where kernels can be tried out.
    """

    name: str
    memory: int
    measure: Measure | None
    no_compiler: str = ""
    note: str = ""
    workspace: int = 0
