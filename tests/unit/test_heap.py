"""Freed memory goes back to the system."""

from __future__ import annotations

from pathlib import Path

from exla_opt.runtime.heap import give_back


def resident() -> int:
    """The bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_freed_memory_goes_back_to_the_system() -> None:
    small = [bytes(1000) for _ in range(100_000)]
    last = bytes(1000)  # what lies above the others keeps the C library from giving them back unasked
    full = resident()
    small.clear()
    give_back()
    assert last is not None
    assert resident() < full - 50_000_000
