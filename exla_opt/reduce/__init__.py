"""Makes a module smaller for as long as the caller finds it interesting."""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir import ir

from .search import Interesting, Search
from .steps import take_steps

__all__ = ["NotInteresting", "Search", "reduce_module"]


class NotInteresting(Exception):
    """The original module is not interesting, so there is nothing to reduce."""


def reduce_module(
    text: bytes,
    context: ir.Context,
    interesting: Interesting,
    progress: Callable[[str, Search], None] = lambda step, search: None,
) -> Search:
    """Search for a small interesting module, starting from the module `text`; the result contains it.

    interesting: takes valid modules as text; must be deterministic. progress: called before each check and after each
    success, with the name of the step. Raises NotInteresting when `text` is not.
    """
    search = Search(text, context, interesting, progress)
    if not interesting(text):
        raise NotInteresting
    take_steps(search)
    return search
