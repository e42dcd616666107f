"""Where an op comes from, in words a person can follow."""

from __future__ import annotations

import re

from jaxlib.mlir import ir

_FILE = re.compile(r'"([^"]+)":(\d+):(\d+)')
_NAME = re.compile(r'loc\("([^"]*)"')


def describe(op: ir.Operation) -> str:
    """`file:line:col` of the op's own location where it has one, else its name, else the op's kind.

    A fused or call-site location is told by its first file position; `-` is standard input.
    """
    text = str(op.location)
    found = _FILE.search(text)
    if found:
        name = "<stdin>" if found[1] == "-" else found[1]
        return f"{name}:{found[2]}:{found[3]}"
    named = _NAME.search(text)
    return named[1] if named else op.name
