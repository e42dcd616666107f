"""Plain lines for standard error, as in MLIR's tools. Does not load rich, as every pipe runs this."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from exla_opt.ir.write import write_file
from exla_opt.remarks import Kind, Remark
from exla_opt.report.sarif import as_sarif
from exla_opt.report.summary import Summary, staying
from exla_opt.sizes import format_size, round_up

if TYPE_CHECKING:
    from exla_opt.budget.bound import Bound
    from exla_opt.budget.fit import Figures, Fit
    from exla_opt.budget.pareto import Choice
    from exla_opt.options import Options

# The file name in locations of an input without locations of its own.
_INPUT = "<stdin>:"


def with_places(remarks: Sequence[Remark], named: Callable[[str], str]) -> list[Remark]:
    """The remarks with their locations mapped by `named`."""
    return [replace(r, location=named(r.location), stopped_at=named(r.stopped_at)) for r in remarks]


def name_place(place: str, name: str) -> str:
    """The location with `name` for the input, so that `name:line:col` is a line of the file that was read."""
    return f"{name}:{place.removeprefix(_INPUT)}" if place.startswith(_INPUT) else place


def remark_lines(remarks: Sequence[Remark], kinds: Collection[Kind]) -> list[str]:
    """One line per remark of these kinds, `file:line:col: remark: ... [pass, code]`; repeated ones once."""
    lines = [
        f"{remark.location}: remark: {remark.tensor} ({format_size(remark.bytes)}){remark.where} "
        f"{' '.join(remark.text.split())} [{remark.pass_name}, {remark.code}]"
        for remark in remarks
        if remark.kind in kinds
    ]
    return list(dict.fromkeys(lines))


def short_remark_lines(remarks: Sequence[Remark], after: Summary, smallest: int) -> list[str]:
    """The lines of missed remarks on tensors that the rewritten module keeps in memory, and the number of others.

    after: the rewritten module. smallest: bytes; smaller tensors count among the others.
    """
    missed = {remark for remark in remarks if remark.kind is Kind.MISSED}
    shown = [remark for remark in staying(remarks, after) if remark.bytes >= smallest]
    lines = remark_lines(shown, (Kind.MISSED,))
    others = len(missed) - len(shown)
    if others:
        which = f"smaller than {format_size(smallest)} or never in memory" if smallest else "never in memory"
        lines.append(f"note: {never_in_memory(others, which)}")
    return lines


def never_in_memory(others: int, which: str = "never in memory") -> str:
    """The number of tensors that are not listed, and why."""
    return f"{others} more {'tensor is' if others == 1 else 'tensors are'} {which}; --remarks=missed prints all"


def remark_records(remarks: Sequence[Remark]) -> list[dict[str, str | int]]:
    """The remarks as plain data, for files: kind, code, pass, tensor, bytes, location, message, and the op to blame."""
    return [
        {
            "kind": remark.kind.value,
            "code": remark.code,
            "pass": remark.pass_name,
            "tensor": remark.tensor,
            "bytes": remark.bytes,
            "devices": remark.devices,
            "location": remark.location,
            "message": remark.message,
            "stopped_by": remark.stopped_by,
            "stopped_at": remark.stopped_at,
        }
        for remark in remarks
    ]


def as_json(records: Sequence[dict[str, str | int]]) -> str:
    """The records as a JSON list."""
    return json.dumps(records, indent=2, ensure_ascii=False) + "\n"


def as_yaml(records: Sequence[dict[str, str | int]]) -> str:
    """The records as a YAML list. Values are written as JSON, which YAML can read."""
    lines = []
    for record in records:
        for place, (key, value) in enumerate(record.items()):
            lines.append(f"{'- ' if place == 0 else '  '}{key}: {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(lines) or "[]\n"


def fit_lines(name: str, found: Fit, limit: int, machine: str, no_compiler: str = "") -> list[str]:
    """Lines that say whether the program fits, with its sizes, or what prevents it and the smallest limit possible.

    machine: whose memory it is, as in "this machine's CPU". no_compiler: why the figure is only predicted, if it is.
    """
    why = f": {no_compiler}" if no_compiler else ""
    missing = f"; {not_known(found.unknown)}" if found.unknown else ""
    at_least = "at least " if found.unknown else ""
    who = f"predicted for {machine}, with a margin{missing}{why}"
    if found.compiled:
        who = f"as XLA compiles it for {machine}"
    if found.fits:
        how = _slices(found.options)
        lines = [f"{name}: remark: fits into {format_size(limit)}, {how}: {at_least}{format_size(found.peak)} ({who})"]
        if found.fitted:
            times = _times(found.before.seconds / found.seconds)
            lines.append(
                f"{name}: note: the original program fits; in slices it is predicted to be {times} times faster"
            )
    else:
        reached = f"{at_least}{format_size(round_up(found.peak))}"
        if found.smallest is not None:
            reached = (
                f"{at_least}{format_size(round_up(found.smallest.peak))} for "
                f"{_times(found.smallest.seconds / found.seconds)} times the time (predicted) of the program that is "
                f"written, which needs {reached}"
            )
        lines = [
            f"{name}: warning: does not fit into {format_size(limit)}; the smallest limit that was reached is "
            f"{reached} ({who}), due to {in_users_words(found.held_by, name)}"
        ]
        if found.bound is not None:
            least = found.peak if found.smallest is None else found.smallest.peak
            lines.append(f"{name}: note: {in_users_words(least_of_all(found.bound, least), name)}")
    if found.ended_early:
        better = "be faster" if found.fits else "need less"
        lines.append(
            f"{name}: note: the search ended early, as each attempt takes long; slices of a size that was not tried "
            f"may {better}: set it with --split-size"
        )
    if found.faster is not None:
        lines.append(f"{name}: note: {much_faster(found.faster, found.seconds)}")
    return lines


def in_users_words(sentence: str, name: str) -> str:
    """The sentence with its locations as remarks show them: in the user's file, relative to the working directory."""
    return sentence.replace(_INPUT, f"{name}:").replace(f" {os.getcwd()}{os.sep}", " ")


def _slices(options: Options) -> str:
    """A clause on how a program is split; some regions may have smaller slices than others."""
    if options.split_size is None:
        return "without a split"
    least, most = format_size(options.least_slice_bytes), format_size(options.slice_bytes)
    how = f"in slices of {most}" if least == most else f"in slices of {least} to {most}"
    how += " of nested tiles" if options.nested_tiles else ""
    return f"{how}, up to {options.slices_a_trip} in a trip" if options.slices_a_trip > 1 else how


def least_of_all(bound: Bound, reached: int) -> str:
    """A clause for what every program with the same results needs, and how far the bytes that were reached are."""
    least = f"no split needs less than {format_size(bound.bytes)}: {bound.reason}"
    if not bound.bytes:
        return least
    factor = round_up(reached) / bound.bytes
    times = f"{factor + 0.005:.2f}" if factor < 100 else f"{math.ceil(factor):,}"
    return f"{least}; the smallest limit that was reached is at most {times} times that"


def choice_lines(choices: Sequence[Choice], machine: str) -> list[str]:
    """A table of programs: the limit that selects each, its peak, its time, and its slices."""
    rows = [("--memory-limit", "peak", "time", "")]
    for choice in choices:
        who = "compiled" if choice.compiled else "predicted"
        how = "unsplit" if choice.slice_bytes is None else f"in slices of {format_size(choice.slice_bytes)}"
        how += " of nested tiles" if choice.nested_tiles else ""
        peak = f"{format_size(choice.peak)}, {who}"
        rows.append((format_size(round_up(choice.peak)), peak, f"{choice.time:.2g} x", how))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]:{widths[2]}}  {row[3]}".rstrip() for row in rows]
    return [*lines, f"time: predicted for {machine}, as multiples of the original program's"]


def much_faster(other: Figures, seconds: float) -> str:
    """A clause on a program that needs more memory and takes less than half of `seconds`."""
    many = _times(seconds / other.seconds)
    return f"with --memory-limit={format_size(round_up(other.peak))} {many} times faster (predicted)"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def not_known(unknown: Sequence[str]) -> str:
    """A clause on ops, one or more, whose own memory a prediction leaves out."""
    *most, last = unknown
    names = f"{', '.join(most)} and {last}" if most else last
    return f"the memory of {names} is not known"


def write_remarks(remarks: Sequence[Remark], name: str) -> None:
    """Write all remarks to a file, in the format of its extension, completely or not at all. Raises InputError."""
    records = remark_records(remarks)
    text = as_json(records) if name.endswith(".json") else as_yaml(records)
    if name.endswith(".sarif"):
        text = as_sarif(remarks)
    write_file(text.encode(), name)


def timing_lines(seconds: Sequence[tuple[str, float]], total: float) -> list[str]:
    """The wall time of each step and the rest up to `total` seconds, in the form of MLIR's --mlir-timing."""
    rows = [(value, name) for name, value in with_rest(seconds, total)]
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


def with_rest(seconds: Sequence[tuple[str, float]], total: float) -> list[tuple[str, float]]:
    """The steps, then the rest of `total` seconds, then the total."""
    rest = max(total - sum(value for _, value in seconds), 0.0)
    return [*seconds, ("Rest", rest), ("Total", total)]


def format_seconds(seconds: float) -> str:
    """Seconds in readable form, as in `1.2 s` or `35 ms`."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
