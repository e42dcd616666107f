"""The time of functions that XLA:CPU does not vectorise: it calls the C library for each element."""

from __future__ import annotations

from .machine import Machine
from .operation import JAXLIB

# The seconds of a call, of two cores, on f32; on other floats they differ by less than half. From jaxlib 0.12 on, those
# of the second row take as long as an exponential. Others of 1 to 5 ns count as all slow functions do.
_SECONDS = {
    **{"atan2": 4.5e-8, "cbrt": 3.8e-8, "remainder": 2.8e-8},
    **{"sine": 1.7e-8, "cosine": 1.7e-8, "tan": 3.2e-8},
}
_VECTORISED = frozenset(("sine", "cosine", "tan"))


def seconds_of_calls(name: str, elements: float, dtype: str, machine: Machine) -> float:
    """The seconds in which a CPU calls a function for so many elements, besides the time of any op; else 0.

    name: of the op, without the dialect.
    """
    if machine.kind != "cpu" or not dtype.startswith(("f", "bf")):
        return 0.0
    if name in _VECTORISED and machine.vectorised <= JAXLIB:
        return 0.0
    return elements * _SECONDS.get(name, 0.0)
