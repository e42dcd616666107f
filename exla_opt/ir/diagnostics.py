"""Diagnostics in the compilers' common form: `file:line:col: error: ...`, the source line and a caret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

# The bindings take a fifth of a second to load, which `import exla_opt` should not.
if TYPE_CHECKING:
    from jaxlib.mlir import ir

# The parser's name for its input; the location of every op that came without a `loc(...)` contains it.
PARSER_FILE = "-"

_POSITION = re.compile(r'"([^"]*)":(\d+):(\d+)')
_LINE_WIDTH = 100


class InputError(Exception):
    """Something is wrong with the user's files; `str(error)` is the complete diagnostic.

    file: the file's name as the user knows it, `-` until the reader fills it in.
    line, col: counted from one, or None.
    message: one sentence, without a capital and a full stop, as in compilers.
    source_line: the line and its caret, or "".
    help: a remedy, or "".
    exit_status: of the command.
    """

    exit_status = 1

    def __init__(
        self, message: str, *, file: str = PARSER_FILE, line: int | None = None, col: int | None = None, help: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.col = col
        self.help = help
        self.source_line = ""

    def __str__(self) -> str:
        position = "" if self.line is None else f":{self.line}" if self.col is None else f":{self.line}:{self.col}"
        lines = [f"{self.file}{position}: error: {self.message}"]
        if self.source_line:
            lines.append(self.source_line)
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)

    def locate(self, name: str, data: bytes) -> None:
        """Name the input and, if `data` is text that the error points into, quote its line."""
        if self.file != PARSER_FILE:
            if self.file != name:
                self.message += f" (in {name})"
            return
        self.file = name
        if self.line is not None and not data.startswith(b"ML\xefR"):
            self.source_line = _quote(data, self.line, self.col)


def error_at(location: ir.Location, message: str, help: str = "") -> InputError:
    """An error that points at the first file position in `location`, if there is one."""
    position = _POSITION.search(str(location))
    if position is None or position[2] == "0":
        return InputError(message, help=help)
    return InputError(message, file=position[1], line=int(position[2]), col=int(position[3]), help=help)


def _quote(data: bytes, line: int, col: int | None) -> str:
    """The line and a caret under column `col`; a long line (a constant's hex data) is cut around the column."""
    rows = data.split(b"\n", line)
    if line > len(rows):
        return ""
    row = rows[line - 1].rstrip(b"\r")
    text = row.decode("utf-8", "replace")
    if col is None:
        return text[:_LINE_WIDTH]
    caret = len(row[: col - 1].decode("utf-8", "replace"))  # MLIR's columns count bytes
    start = max(caret - _LINE_WIDTH // 2, 0) if len(text) > _LINE_WIDTH else 0
    left = "..." if start else ""
    right = "..." if start + _LINE_WIDTH < len(text) else ""
    shown = left + text[start : start + _LINE_WIDTH] + right
    caret += len(left) - start
    return shown + "\n" + "".join("\t" if c == "\t" else " " for c in shown[:caret].ljust(caret)) + "^"
