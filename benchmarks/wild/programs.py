"""All entries of the bench."""

from __future__ import annotations

from . import attention, derivatives, graphs, kernels, losses, neighbours, probabilistic, scans
from .entry import Entry

_THEMES = (losses, attention, kernels, neighbours, scans, graphs, probabilistic, derivatives)
ENTRIES: tuple[Entry, ...] = tuple(entry for theme in _THEMES for entry in theme.ENTRIES)
