"""Makes a module smaller for as long as it stays interesting, which somebody else decides."""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir import ir

from .search import Interesting, Search
from .steps import take_steps

__all__ = ["NotInteresting", "Search", "reduce_module"]


class NotInteresting(Exception):
    """The module is not interesting as it is: there is nothing to go by."""


def reduce_module(
    text: bytes,
    context: ir.Context,
    interesting: Interesting,
    progress: Callable[[str, Search], None] = lambda step, search: None,
) -> Search:
    """Search for a small module that is interesting, starting from the module `text`; the answer holds it.

    interesting: is given valid modules as text, and answers the same for the same. progress: is called before each
    check and after each success, with the name of the step. Raises NotInteresting when `text` is not.
    """
    search = Search(text, context, interesting, progress)
    if not interesting(text):
        raise NotInteresting
    take_steps(search)
    return search
