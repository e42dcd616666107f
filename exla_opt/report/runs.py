"""The output of exla-run: memory and time side by side, and the differences of the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from exla_opt.report.text import format_seconds
from exla_opt.sizes import format_size

if TYPE_CHECKING:  # at run time these would import jax
    from exla_opt.runtime.compare import Comparison, Extreme
    from exla_opt.runtime.gpu_seconds import GpuTime
    from exla_opt.runtime.memory import Memory
    from exla_opt.runtime.traffic import Traffic

_MEMORY_ROWS = ("arguments", "results", "aliased", "temp", "peak")


@dataclass(frozen=True, slots=True)
class Measured:
    """One module's name as the user gave it, its memory, and the median seconds of a run if it was run.

    estimated: the predicted time on the GPU that it was compiled for, if available. devices, traffic: for a module for
    several devices, their number and the bytes that each sends; the memory is then per device.
    """

    name: str
    memory: Memory
    seconds: float | None = None
    estimated: GpuTime | None = None
    devices: int = 1
    traffic: Traffic | None = None


def print_measured(console: Console, sides: Sequence[Measured]) -> None:
    """Print the table of one or two modules; with two, the ratio of the first to the second."""
    rows = _memory_rows(sides) + _traffic_rows(sides)
    times = [side.seconds for side in sides if side.seconds is not None]
    if times:
        rows.append(["time", *map(format_seconds, times), *_ratio(times)])
    heads = _heads(sides)
    print_table(console, heads, [row + [""] * (len(heads) - len(row)) for row in rows])


def print_fits(console: Console, sides: Sequence[Measured], limit_name: str, limit: int) -> None:
    """Print the table of one or two modules that were compiled for a device, and whether each fits in `limit` bytes."""
    rows = _memory_rows(sides) + _traffic_rows(sides)
    rows.append([limit_name, *(format_size(limit) for _ in sides)])
    if any(side.memory.gemm for side in sides):
        rows.append(["gemm", *(side.memory.gemm for side in sides)])
    rows.append(["fits", *("yes" if fits(side, limit) else "no" for side in sides)])
    rows += _time_rows([side.estimated for side in sides])
    heads = _heads(sides)
    print_table(console, heads, [row + [""] * (len(heads) - len(row)) for row in rows])


def _traffic_rows(sides: Sequence[Measured]) -> list[list[str]]:
    """The bytes that each device sends to the others, and the part in loops; empty for programs of one device."""
    found = [side.traffic for side in sides if side.traffic is not None]
    if len(found) < len(sides):
        return []
    count = " / ".join(dict.fromkeys(str(side.devices) for side in sides))
    rows = [["devices, each of them", count]]
    for name, values in (("sent", [one.bytes for one in found]), ("in loops", [one.in_loops for one in found])):
        rows.append([name, *(format_size(round(value)) for value in values), *_ratio(values)])
    return rows


def fits(side: Measured, limit: int) -> bool:
    """Whether the module's peak is at most `limit` bytes."""
    return side.memory.peak <= limit


def print_comparisons(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Print one line per result: the error, its position, the allowed error, and the least tolerance that would pass
    (absolute: the error itself; relative: least rtol)."""
    heads = ["result", "type", "max abs error", "max rel error", "NaN/inf", "least rtol", "allowed", "by", ""]
    rows = []
    for number, one in enumerate(comparisons):
        kind = f"{one.dtype}[{','.join(map(str, one.shape))}]"
        special = "agree" if one.special_agree else "differ"
        verdict = "ok" if one.passed else "differs"
        figures = [_format_extreme(one.absolute), _format_extreme(one.relative)]
        rule = "spread" if one.spread else "type"
        rows.append([str(number), kind, *figures, special, f"{one.required:.2e}", f"{one.allowed:.2e}", rule, verdict])
    if console.is_terminal and _table(heads, rows).__rich_measure__(console, console.options).minimum > console.width:
        for row in rows:  # too wide for the terminal: a table per result
            print_table(console, [heads[0], row[0]], list(zip(heads[1:], row[1:], strict=True)))
    elif rows:
        print_table(console, heads, rows)
    for number, one in enumerate(comparisons):
        if not one.passed:
            _print_line(console, f"result {number}: {one.problem}")
        elif one.all_nan:
            _print_line(console, f"result {number} is NaN throughout in both: give --inputs that suit the module")
        elif one.spread:
            spread = f"inputs that are off by an ulp move the original's by {one.spread:.2e}"
            _print_line(console, f"result {number} is above its type's tolerance and equal by the spread: {spread}")


def as_json(sides: Sequence[Measured], comparisons: Sequence[Comparison] | None, passed: bool | None) -> dict[str, Any]:
    """The same as data: bytes, seconds and errors; numbers that JSON cannot hold are null.

    Bytes are those of one device.
    """
    data: dict[str, Any] = {"modules": [{**_module_data(side), "seconds": side.seconds} for side in sides]}
    if comparisons is not None:
        data["results"] = [_comparison_data(one) for one in comparisons]
    if passed is not None:
        data["passed"] = passed
    return data


def fits_as_json(sides: Sequence[Measured], target: str, limit: int) -> dict[str, Any]:
    """The figures of `print_fits` as data: bytes, the target's name, and whether each module fits."""
    modules = [
        {
            **_module_data(side),
            "gemm": side.memory.gemm or None,
            "fits": fits(side, limit),
            "estimated": None if side.estimated is None else _time_data(side.estimated),
        }
        for side in sides
    ]
    return {"target": target, "limit_bytes": limit, "modules": modules}


def _module_data(side: Measured) -> dict[str, Any]:
    """The file and its bytes and, of a program for several devices, their number and the bytes that each sends."""
    data = {"file": side.name, **{f"{row}_bytes": int(getattr(side.memory, row)) for row in _MEMORY_ROWS}}
    if side.traffic is not None:
        sent, in_loops = round(side.traffic.bytes), round(side.traffic.in_loops)
        data |= {"devices": side.devices, "sent_bytes": sent, "sent_in_loops_bytes": in_loops}
    return data


def _time_data(time: GpuTime) -> dict[str, float | int | bool]:
    return {
        "seconds": time.seconds,
        "traffic_bytes": round(time.traffic),
        "launches": time.launches,
        "overhead_share": time.overhead_share,
        "at_least": time.at_least,
    }


def _comparison_data(one: Comparison) -> dict[str, Any]:
    return {
        "dtype": one.dtype,
        "shape": list(one.shape),
        "passed": one.passed,
        "problem": one.problem,
        "max_abs_error": _finite(one.absolute.value),
        "max_abs_error_index": one.absolute.index,
        "max_rel_error": _finite(one.relative.value),
        "max_rel_error_index": one.relative.index,
        "largest": one.largest,
        "allowed_abs_error": one.allowed,
        "spread": one.spread or None,
        "nan_and_inf_agree": one.special_agree,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _format_extreme(extreme: Extreme) -> str:
    if extreme.index is None or extreme.value == 0:
        return f"{extreme.value:.2e}"
    return f"{extreme.value:.2e} at {list(extreme.index)}"


def _memory_rows(sides: Sequence[Measured]) -> list[list[str]]:
    rows = []
    for row in _MEMORY_ROWS:
        sizes = [int(getattr(side.memory, row)) for side in sides]
        if row != "aliased" or any(sizes):
            rows.append([row, *map(format_size, sizes), *_ratio(sizes)])
    return rows


def _time_rows(times: Sequence[GpuTime | None]) -> list[list[str]]:
    """The rows of estimated times, if they are known for all modules."""
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return []
    least = ["at least " * time.at_least for time in known]
    seconds, traffic, launches = zip(
        *((time.seconds, round(time.traffic), time.launches) for time in known), strict=True
    )
    return [
        ["est. time", *map("".join, zip(least, map(format_seconds, seconds), strict=True)), *_ratio(seconds)],
        ["traffic", *map(format_size, traffic), *_ratio(traffic)],
        ["launches", *(f"{number:,}" for number in launches), *_ratio(launches)],
        ["overhead", *(f"{time.overhead_share:.1%}" for time in known)],
    ]


def _heads(sides: Sequence[Measured]) -> list[str]:
    return ["", *(side.name for side in sides), *(["ratio"] if len(sides) == 2 else [])]


def _ratio(values: Sequence[float]) -> list[str]:
    if len(values) != 2:
        return []
    first, second = values
    return [f"{first / second:.3g}" if second else "1" if not first else "-"]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table()
    for head in heads:
        table.add_column(Text(head), overflow="fold")  # Text: a [ in a file's name is no markup
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def print_table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A drawn table on a terminal, aligned words anywhere else, so that logs and grep can read it."""
    if console.is_terminal:
        console.print(_table(heads, rows))
        return
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        _print_line(console, "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_line(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
