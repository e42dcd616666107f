"""The summary that exla-opt prints on standard error: a table for people, lines for logs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from exla_opt.ir.types import TensorType
from exla_opt.remarks import Kind, Remark
from exla_opt.report.summary import Summary, count_remarks
from exla_opt.sizes import format_size


def print_summary(
    console: Console, before: Summary, after: Summary, remarks: Sequence[Remark], kinds: Collection[Kind] = tuple(Kind)
) -> None:
    """Print the before/after table, then what was split and what was not (of these kinds); fits in 60 columns."""
    console.print(_overview(before, after))
    for kind, title in ((Kind.PASSED, "Changed"), (Kind.MISSED, "Not changed")):
        if kind in kinds and (counted := count_remarks(remarks, kind)):
            console.print(_details(title, counted))


def _overview(before: Summary, after: Summary) -> Table:
    table = Table("", "Before", "After", title="exla-opt", title_justify="left")
    table.add_row("Largest tensor outside loops", _tensor(before.largest), _tensor(after.largest))
    table.add_row("Loops", str(before.loops), _loops(before.loops, after.loops))
    return table


def _details(title: str, counted: Sequence[tuple[Remark, int]]) -> Table:
    table = Table("Tensor", "What and why", title=title, title_justify="left", show_lines=True, expand=False)
    table.columns[0].max_width = 24
    for remark, count in counted:
        tensor = Text(f"{remark.tensor}\n{format_size(remark.bytes)}")
        if count > 1:
            tensor.append(f", {count} times")
        table.add_row(tensor, Group(Text(remark.text), Text(f"{remark.code}, {remark.location}", style="dim")))
    return table


def _tensor(tensor: TensorType | None) -> Text:
    return Text("none" if tensor is None else f"{format_size(tensor.bytes)}\n{tensor}")


def _loops(before: int, after: int) -> str:
    return f"{after} ({after - before:+d})" if after != before else str(after)
