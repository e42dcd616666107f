"""The report as one self-contained HTML page: it includes style, data, script and plotting library.

Everything from the module is escaped: by `escape` in the text of the page, by `_script_data` in data for the script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs

from exla_opt.explanations import NEVER_IN_MEMORY
from exla_opt.report.figures import times
from exla_opt.report.text import never_in_memory, not_known
from exla_opt.sizes import format_size

_PLACE = re.compile(r"@@(\w+)@@")


def as_page(data: dict[str, Any]) -> str:
    """The page for the result of `as_data`."""
    parts = {
        "title": escape(data["input"]),
        "settings": escape(_settings(data)),
        "cards": _cards(data),
        "changed": _remark_table(data["changed"], "Nothing was changed."),
        "not_changed": _remark_table(data["not_changed"], "No pass had to leave a big tensor alone."),
        "timings": _timing_table(data["seconds"]),
        "data": _script_data({key: data[key] for key in ("options", "fit", "before", "after")}),
        "library": get_plotlyjs(),
        "style": _resource("page.css"),
        "script": _resource("page.js"),
    }
    # One pass: inserted text is not searched again, whatever it contains.
    return _PLACE.sub(lambda found: parts[found[1]], _resource("page.html"))


def _resource(name: str) -> str:
    return files("exla_opt.report").joinpath(name).read_text("utf-8")


def _script_data(value: Any) -> str:
    """JSON that cannot end a script element or start a comment in one."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _settings(data: dict[str, Any]) -> str:
    options, fit = data["options"], data["fit"]
    passes = ", ".join(options["passes"]) or "no passes"
    sizes = f"tensors over {format_size(options['size_threshold'])} in slices of {format_size(options['split_size'])}"
    if fit is not None:
        verdict = "fits" if fit["fits"] else "does not fit"
        held = f", due to {fit['held_by']}" if fit["held_by"] else ""
        device = f" of {options['target']}" if options["target"] else ""
        who = "as XLA compiles it" if fit["compiled"] else "predicted, with a margin"
        at_least, missing = _unknown(fit["unknown"])
        need = f"it needs {at_least}{format_size(fit['peak'])} ({who}{missing})"
        sizes = f"{verdict} into {format_size(options['memory_limit'])}{device}: {need}{held}"
    return f"exla-opt {data['version']}; {sizes}; {passes}"


def _cards(data: dict[str, Any]) -> str:
    sides = data["before"], data["after"]
    peaks, temps = ([_predicted(side, key) for side in sides] for key in ("peak", "temp"))
    held = format_size(sides[1]["memory"]["peak"] - sides[1]["memory"]["temp"])
    missing = _unknown(sides[1]["unknown"])[1]
    rows = [
        ("Predicted peak", *peaks, f"including {held} of arguments and results{missing}"),
        ("Temporary memory", *temps, "at the peak"),
        (
            "Predicted time",
            *times(*(side["predicted_seconds"] for side in sides)),
            "for the machine that the sizes are chosen for",
        ),
        ("Largest tensor", *(_largest(side, "bytes") for side in sides), _largest_note(*sides)),
        ("Loops", *(str(side["loops"]) for side in sides), ""),
    ]
    return "".join(_card(*row) for row in rows)


def _predicted(side: dict[str, Any], key: str) -> str:
    return _unknown(side["unknown"])[0] + format_size(side["memory"][key])


def _unknown(names: Sequence[str]) -> tuple[str, str]:
    """The text before and after a predicted figure that leaves out the memory of these ops."""
    return ("at least ", f"; {not_known(names)}") if names else ("", "")


def _largest(side: dict[str, Any], key: str) -> str:
    tensor = side["largest_tensor"]
    if tensor is None:
        return "none"
    return format_size(tensor[key]) if key == "bytes" else str(tensor[key])


def _largest_note(before: dict[str, Any], after: dict[str, Any]) -> str:
    types = [_largest(side, "type") for side in (before, after)]
    return f"{' → '.join(dict.fromkeys(types))}, outside loops"


def _card(title: str, before: str, after: str, note: str) -> str:
    change = f"{escape(before)} <span class=to>→</span> " if before != after else ""
    figure = f"<p class=figure>{change}{escape(after)}</p>"
    return f"<div class=card><h3>{escape(title)}</h3>{figure}<p>{escape(note)}</p></div>"


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> str:
    """A table of cells that already are HTML."""
    head = "".join(f"<th scope=col>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table class={kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _remark_table(remarks: Sequence[dict[str, Any]], empty: str) -> str:
    if not remarks:
        return f"<p>{escape(empty)}</p>"
    shown = [remark for remark in remarks if remark["code"] not in NEVER_IN_MEMORY]
    rows = ((_tensor(remark), _reason(remark)) for remark in shown)
    others = len(remarks) - len(shown)
    rest = f"<p>{escape(never_in_memory(others))}</p>" if others else ""
    return (_table(("Tensor", "What and why"), rows, "remarks") if shown else "") + rest


def _tensor(remark: dict[str, Any]) -> str:
    times = f", {remark['count']} times" if remark["count"] > 1 else ""
    return f"{_code(remark['tensor'])}<br>{format_size(remark['bytes'])}{times}"


def _reason(remark: dict[str, Any]) -> str:
    stop = ""
    if remark["stopped_by"]:
        stop = f"<br>stopped by {_code(remark['stopped_by'])} at {_code(remark['stopped_at'])}"
    source = escape(f"{remark['pass']}, {remark['code']}")
    return f"{escape(remark['message'])}{stop}<br><span class=place>{_code(remark['location'])}, {source}</span>"


def _timing_table(steps: Sequence[dict[str, Any]]) -> str:
    total = max(steps[-1]["seconds"], 1e-9)
    rows = ((escape(one["step"]), f"{one['seconds']:.4f} s", f"{100 * one['seconds'] / total:.1f} %") for one in steps)
    return _table(("Step", "Time", "Share"), rows, "timings")
