"""Remarks as SARIF 2.1.0, which code hosts show next to their lines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from exla_opt.remarks import Kind, Remark
from exla_opt.sizes import format_size
from exla_opt.version import __version__

_PLACE = re.compile(r"(.+):(\d+):(\d+)")


def as_sarif(remarks: Sequence[Remark]) -> str:
    """One run with a result per remark: a note for a change, a warning for a missed one."""
    rules = [{"id": code} for code in sorted({remark.code for remark in remarks})]
    driver = {"name": "exla-opt", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": [_result(remark) for remark in remarks]}
    data = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _result(remark: Remark) -> dict[str, Any]:
    text = " ".join(remark.text.split())
    result: dict[str, Any] = {
        "ruleId": remark.code,
        "level": "note" if remark.kind is Kind.PASSED else "warning",
        "message": {"text": f"{remark.tensor} ({format_size(remark.bytes)}){remark.where} {text}"},
    }
    place = _PLACE.fullmatch(remark.location)
    if place is not None and not place[1].startswith("<"):  # <string> and <stdin> are no files
        region = {"startLine": int(place[2]), "startColumn": int(place[3])}
        where = {"artifactLocation": {"uri": place[1]}, "region": {**region}}
        result["locations"] = [{"physicalLocation": where}]
    return result
