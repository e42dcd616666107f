"""The source location of an op, in readable form."""

from __future__ import annotations

import re

from jaxlib.mlir import ir

_FILE = re.compile(r'"([^"]+)":(\d+):(\d+)')
_NAME = re.compile(r'"([^"]+)"(?!:\d)')
# A line of a file below one of these is not in the user's program.
_INSTALLED = ("site-packages", "dist-packages", "/lib/python3", "<frozen ")


def describe(op: ir.Operation) -> str:
    """`file:line:col` of the op's own location if it has one, else its name, else the op's kind.

    For a fused or call-site location, the first file position outside installed packages, callees before their callers.
    A position inside them is not in the user's program, so a name is preferred to it. `-` is standard input.
    """
    text = str(op.location)
    found = _FILE.findall(text)
    own = [place for place in found if not any(folder in place[0] for folder in _INSTALLED)]
    named = _NAME.search(text)
    if named and not own:
        return named[1]
    if not found:
        return op.name
    name, line, column = (own or found)[0]
    return f"{'<stdin>' if name == '-' else name}:{line}:{column}"


def call_site(callee: ir.Location, call: ir.Location) -> ir.Location:
    """The location of an op at `callee` that is reached through a call at `call`; `callee` if that is unknown."""
    return callee if isinstance(call, ir.UnknownLoc) else ir.Location.callsite(callee, [call], callee.context)
