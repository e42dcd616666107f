"""The time of functions that XLA:CPU does not vectorise: it calls the C library for each element."""

from __future__ import annotations

from .block import Operation
from .machine import Machine
from .operation import JAXLIB

# The seconds of a call, of two cores, on f32; on other floats they differ by less than half. From jaxlib 0.12 on, those
# of the second row take as long as an exponential. Others of 1 to 5 ns count as all slow functions do.
_SECONDS = {
    **{"atan2": 4.5e-8, "cbrt": 3.8e-8, "remainder": 2.8e-8},
    **{"sine": 1.7e-8, "cosine": 1.7e-8, "tan": 3.2e-8},
}
_VECTORISED = frozenset(("sine", "cosine", "tan"))


def may_be_called(name: str) -> bool:
    """Whether some release of XLA:CPU calls the C library for an op of this name, without the dialect."""
    return name in _SECONDS


def seconds_of_calls(op: Operation, elements: float, dtype: str, machine: Machine) -> float:
    """The seconds in which a CPU calls a function for so many elements, besides the time of any op; else 0.

    They count in programs as they are written, and in what a whole module may compute again. Where a trip of a loop is
    compared with what it would compute again, they do not: that limit was measured for all functions alike.
    """
    if machine.kind != "cpu" or not (machine.is_written or machine.any_shape) or not dtype.startswith(("f", "bf")):
        return 0.0
    if op.name in _VECTORISED and machine.vectorised <= JAXLIB:
        return 0.0
    return elements * _SECONDS.get(op.name, 0.0)
