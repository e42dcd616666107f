"""Plain lines for standard error, as MLIR's tools print them. No rich here: this is the path of every pipe."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from exla_opt.explanations import NEVER_IN_MEMORY
from exla_opt.ir.write import write_file
from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size, round_up

if TYPE_CHECKING:
    from exla_opt.fit import Fit

# What a remark's location calls an input that has no locations of its own, whatever file it came from.
_INPUT = "<stdin>:"


def with_places(remarks: Sequence[Remark], named: Callable[[str], str]) -> list[Remark]:
    """The remarks with every place as `named` names it."""
    return [replace(r, location=named(r.location), stopped_at=named(r.stopped_at)) for r in remarks]


def name_place(place: str, name: str) -> str:
    """The place with `name` for the input, so that `name:line:col` is a line of the file that was read."""
    return f"{name}:{place.removeprefix(_INPUT)}" if place.startswith(_INPUT) else place


def remark_lines(remarks: Sequence[Remark], kinds: Collection[Kind]) -> list[str]:
    """One line a remark of these kinds, `file:line:col: remark: ... [pass, code]`; repeated ones once."""
    lines = [
        f"{remark.location}: remark: {remark.tensor} ({format_size(remark.bytes)}) "
        f"{' '.join(remark.text.split())} [{remark.pass_name}, {remark.code}]"
        for remark in remarks
        if remark.kind in kinds
    ]
    return list(dict.fromkeys(lines))


def short_remark_lines(remarks: Sequence[Remark], smallest: int) -> list[str]:
    """The lines of what was missed and takes memory, and how many others there are.

    smallest: in bytes; tensors of less are among the others, as are those that are never in memory.
    """
    missed = {remark: None for remark in remarks if remark.kind is Kind.MISSED}
    shown = [remark for remark in missed if remark.bytes >= smallest and remark.code not in NEVER_IN_MEMORY]
    lines = remark_lines(shown, (Kind.MISSED,))
    others = len(missed) - len(shown)
    if others:
        which = f"smaller than {format_size(smallest)} or never in memory" if smallest else "never in memory"
        are = "tensor is" if others == 1 else "tensors are"
        lines.append(f"note: {others} more {are} {which}; --remarks=missed prints all")
    return lines


def remark_records(remarks: Sequence[Remark]) -> list[dict[str, str | int]]:
    """The remarks as plain data, for files: kind, code, pass, tensor, bytes, location, message, and what stops it."""
    return [
        {
            "kind": remark.kind.value,
            "code": remark.code,
            "pass": remark.pass_name,
            "tensor": remark.tensor,
            "bytes": remark.bytes,
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
    """The records as a YAML list. Every value is written as JSON writes it, which YAML reads as well."""
    lines = []
    for record in records:
        for place, (key, value) in enumerate(record.items()):
            lines.append(f"{'- ' if place == 0 else '  '}{key}: {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(lines) or "[]\n"


def fit_lines(name: str, found: Fit, limit: int, machine: str, no_compiler: str = "") -> list[str]:
    """Whether the program fits into the limit, with what sizes, or what stands in the way and what limit can be met.

    machine: whose memory it is, as in "this machine's CPU". no_compiler: why the figure is only predicted, if it is.
    """
    why = f": {no_compiler}" if no_compiler else ""
    missing = f"; {not_known(found.unknown)}" if found.unknown else ""
    at_least = "at least " if found.unknown else ""
    who = f"predicted for {machine}, with a margin{missing}{why}"
    if found.compiled:
        who = f"as XLA compiles it for {machine}"
    if found.fits:
        sizes = found.options
        how = f"in slices of {format_size(sizes.slice_bytes)}" if sizes.split_size else "without a split"
        return [f"{name}: remark: fits into {format_size(limit)}, {how}: {at_least}{format_size(found.peak)} ({who})"]
    return [
        f"{name}: warning: does not fit into {format_size(limit)}; the smallest limit that was reached is "
        f"{at_least}{format_size(round_up(found.peak))} ({who}), held up by {found.held_by.replace(_INPUT, f'{name}:')}"
    ]


def not_known(unknown: Sequence[str]) -> str:
    """A clause for ops, one or more, whose own memory a prediction leaves out."""
    *most, last = unknown
    names = f"{', '.join(most)} and {last}" if most else last
    return f"the memory of {names} is not known"


def write_remarks(remarks: Sequence[Remark], name: str) -> None:
    """Write all remarks to a file, as its name's end asks: whole or not at all. Raises InputError when that fails."""
    records = remark_records(remarks)
    text = as_json(records) if name.endswith(".json") else as_yaml(records)
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
    """The steps, then what is left of `total` seconds, then the total."""
    rest = max(total - sum(value for _, value in seconds), 0.0)
    return [*seconds, ("Rest", rest), ("Total", total)]
