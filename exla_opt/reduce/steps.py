"""The steps that make a module smaller, in their order."""

from __future__ import annotations

from jaxlib.mlir import ir

from . import structure, values
from .search import Search, Step
from .sizes import shrink_dimensions

# The steps that remove the most per check come first.
_STEPS: tuple[tuple[str, Step], ...] = (
    ("calls", structure.inline_functions),
    ("functions", structure.drop_functions),
    ("ops", values.cut_out),
    ("results", structure.drop_results),
    ("control flow", structure.unwrap),
    ("ops as operands", values.ops_to_operands),
    ("ops as constants", values.ops_to_constants),
    ("ops as arguments", values.ops_to_arguments),
    ("ops as new arguments", values.ops_to_new_arguments),
    ("loop carries", structure.drop_loop_carries),
    ("operands", values.operands_to_constants),
    ("equal ops", values.merge_equal_ops),
    ("equal arguments", structure.merge_arguments),
    ("arguments as constants", structure.arguments_to_constants),
    ("unused arguments", structure.drop_arguments),
    ("attributes", structure.drop_attributes),
)


def take_steps(search: Search) -> None:
    """Take the steps, in order, until none of them makes the module smaller."""
    search.minimise(structure.drop_locations, "locations")
    search.minimise(values.drop_dead_ops, "dead ops")
    if not search.count(values.drop_dead_ops):  # else unused ops are part of what is interesting
        search.tidy = _drop_dead_ops
    before = b""
    while search.text != before:
        before = search.text
        for name, step in _STEPS:
            search.minimise(step, name)
        shrink_dimensions(search, "dimensions")


def _drop_dead_ops(module: ir.Module) -> None:
    values.drop_dead_ops(module, lambda: True)
