"""Where an op comes from, in words a person can follow."""

from __future__ import annotations

import re

from jaxlib.mlir import ir

_FILE = re.compile(r'"([^"]+)":(\d+):(\d+)')
_NAME = re.compile(r'"([^"]+)"(?!:\d)')


def describe(op: ir.Operation) -> str:
    """`file:line:col` of the op's own location where it has one, else its name, else the op's kind.

    Of a fused or call-site location the first file position outside installed packages is told: one inside says
    nothing about the user's program, so a name goes before it. `-` is standard input.
    """
    text = str(op.location)
    found = _FILE.findall(text)
    own = [place for place in found if "site-packages" not in place[0]]
    named = _NAME.search(text)
    if named and not own:
        return named[1]
    if not found:
        return op.name
    name, line, column = (own or found)[0]
    return f"{'<stdin>' if name == '-' else name}:{line}:{column}"
