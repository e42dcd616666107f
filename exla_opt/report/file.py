"""Writes the report of `--report`: as a page or as data, by the file extension."""

from __future__ import annotations

import json
from typing import Any

from exla_opt.ir.write import write_file


def write_report(data: dict[str, Any], path: str) -> None:
    """Write the result of `as_data` to `path`, as a page if its name ends in .html, else as JSON.

    The file appears complete or stays as it was. Raises InputError when it cannot be written, ImportError for a page
    without plotly.
    """
    if not path.lower().endswith(".html"):
        write_file(json.dumps(data, indent=2).encode() + b"\n", path)
        return
    from exla_opt.report.page import as_page  # here, so that only a page loads plotly

    write_file(as_page(data).encode("utf-8", "backslashreplace"), path)
