"""Locations in a module, named as the user knows them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # at run time this would load MLIR
    from exla_opt.ir.read import Source


def place_names(source: Source) -> Callable[[str], str]:
    """Return a function that turns locations of the module into the user's, relative to the working directory."""
    from exla_opt.ir.write import has_own_locations
    from exla_opt.report.text import name_place

    if has_own_locations(source.module):
        # With locations of its own, a module made in an interactive Python may mean that session by <stdin>.
        return relative
    return partial(name_place, name=source.name)


def relative(place: str) -> str:
    """The location, with its file relative to the working directory if that contains it."""
    name, colon, rest = place.partition(":")
    if not os.path.isabs(name):
        return place
    found = os.path.relpath(name)
    return place if found.startswith(os.pardir) else f"{found}{colon}{rest}"
