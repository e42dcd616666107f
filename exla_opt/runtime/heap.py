"""The memory that this process holds for nothing: what compiles and attempts have freed stays with the C library."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> None:
    """Return freed memory to the system, where the C library can (glibc).

    A search in a process that then runs the program would otherwise hold some hundred megabytes more, which the
    program does not use: its buffers are mapped separately.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
