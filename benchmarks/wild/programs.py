"""All entries of the bench."""

from __future__ import annotations

from . import attention, derivatives, graphs, kernels, losses, neighbours, physics, probabilistic, scans, vision
from .entry import Entry

_THEMES = (losses, attention, kernels, neighbours, scans, graphs, probabilistic, derivatives, vision, physics)
ENTRIES: tuple[Entry, ...] = tuple(entry for theme in _THEMES for entry in theme.ENTRIES)
