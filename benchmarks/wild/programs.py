"""All entries of the bench."""

from __future__ import annotations

from . import kernels, losses
from .entry import Entry

ENTRIES: tuple[Entry, ...] = tuple(entry for themed in (losses, kernels) for entry in themed.ENTRIES)
