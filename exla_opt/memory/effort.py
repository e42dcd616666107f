"""Counts the ops that the memory model simulates: a measure of effort that is the same on any machine."""

from __future__ import annotations

from contextvars import ContextVar

_SIMULATED: ContextVar[int] = ContextVar("simulated", default=0)


def simulated() -> int:
    """The number of ops that were simulated so far in this context, each as often as it was."""
    return _SIMULATED.get()


def count(ops: int) -> None:
    """Count that many ops as simulated."""
    _SIMULATED.set(_SIMULATED.get() + ops)
