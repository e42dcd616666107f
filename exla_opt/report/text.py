"""Plain lines for standard error, as MLIR's tools print them. No rich here: this is the path of every pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size

# What a remark's location calls an input that has no locations of its own, whatever file it came from.
_INPUT = "<stdin>:"


def name_input(remarks: Sequence[Remark], name: str) -> list[Remark]:
    """The remarks with `name` for the input, so that `name:line:col` is a line of the file that was read."""

    def named(location: str) -> str:
        return f"{name}:{location.removeprefix(_INPUT)}" if location.startswith(_INPUT) else location

    return [replace(r, location=named(r.location), stopped_at=named(r.stopped_at)) for r in remarks]


def remark_lines(remarks: Sequence[Remark]) -> list[str]:
    """One line a missed remark, `file:line:col: remark: ...`; repeated ones once."""
    lines = [
        f"{remark.location}: remark: {remark.tensor} ({format_size(remark.bytes)}) "
        f"{' '.join(remark.text.split())} [{remark.pass_name}]"
        for remark in remarks
        if remark.kind is Kind.MISSED
    ]
    return list(dict.fromkeys(lines))


def timing_lines(seconds: Sequence[tuple[str, float]], total: float) -> list[str]:
    """The wall time of each step and the rest up to `total` seconds, in the form of MLIR's --mlir-timing."""
    rest = max(total - sum(value for _, value in seconds), 0.0)
    rows = [*((value, name) for name, value in seconds), (rest, "Rest"), (total, "Total")]
    rule = f"===-{'-' * 73}-==="
    return [
        rule,
        "... Execution time report ...".center(len(rule)).rstrip(),
        rule,
        f"  Total Execution Time: {total:.4f} seconds",
        "",
        "  ----Wall Time----  ----Name----",
        *(f"  {value:8.4f} ({100 * value / max(total, 1e-9):5.1f}%)  {name}" for value, name in rows),
    ]
