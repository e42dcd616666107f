"""The summary that exla-opt prints on standard error: a table on terminals, lines in logs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from exla_opt.explanations import NEVER_IN_MEMORY
from exla_opt.ir.types import TensorType
from exla_opt.remarks import Kind, Remark
from exla_opt.report.figures import Sides
from exla_opt.report.summary import count_remarks
from exla_opt.report.text import never_in_memory
from exla_opt.sizes import format_size


def print_summary(
    console: Console,
    sides: Sides,
    remarks: Sequence[Remark],
    kinds: Collection[Kind] = tuple(Kind),
    notes: tuple[str, str] = ("", ""),
) -> None:
    """Print the before/after table, the split and unsplit tensors (of these kinds), and the notes around them.

    notes: two clauses, one below the table, one at the end.

    Fits in 60 columns. Tensors that are never in memory are counted, not listed.
    """
    console.print(_overview(sides))
    _print_clause(console, notes[0])
    for kind, title in ((Kind.PASSED, "Changed"), (Kind.MISSED, "Not changed")):
        counted = count_remarks(remarks, kind) if kind in kinds else []
        shown = [(remark, count) for remark, count in counted if remark.code not in NEVER_IN_MEMORY]
        if shown:
            console.print(_details(title, shown))
        if others := len(counted) - len(shown):
            console.print(Text(never_in_memory(others)))
    _print_clause(console, notes[1])


def _print_clause(console: Console, clause: str) -> None:
    if clause:
        console.print(Text(f"{clause[0].upper()}{clause[1:]}."))


def _overview(sides: Sides) -> Table:
    before, after = sides.before, sides.after
    table = Table("", "Before", "After", title="exla-opt", title_justify="left")
    table.add_row("Peak memory", before.peak, after.peak)
    table.add_row(f"Time, {sides.who_timed}", before.time, after.time)
    largest, loops = (before.summary.largest, after.summary.largest), (before.summary.loops, after.summary.loops)
    table.add_row("Largest tensor outside loops", *map(_tensor, largest))
    table.add_row("Loops", str(loops[0]), _loops(*loops))
    return table


def _details(title: str, counted: Sequence[tuple[Remark, int]]) -> Table:
    table = Table("Tensor", "What and why", title=title, title_justify="left", show_lines=True, expand=False)
    table.columns[0].max_width = 24
    for remark, count in counted:
        tensor = Text(f"{remark.tensor}\n{format_size(remark.bytes)}{remark.where}")
        if count > 1:
            tensor.append(f", {count} times")
        table.add_row(tensor, Group(Text(remark.text), Text(f"{remark.code}, {remark.location}", style="dim")))
    return table


def _tensor(tensor: TensorType | None) -> Text:
    return Text("none" if tensor is None else f"{format_size(tensor.bytes)}\n{tensor}")


def _loops(before: int, after: int) -> str:
    return f"{after} ({after - before:+d})" if after != before else str(after)
