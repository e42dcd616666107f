"""exla-opt --split-input-file: several modules in one file, separated by lines with `// -----`, as for mlir-opt."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from exla_opt.cli.job import run_job
from exla_opt.cli.request import Request

if TYPE_CHECKING:  # at run time this would load MLIR
    from jaxlib.mlir import ir

_LINE = re.compile(rb"^// -----[^\n]*\n?", re.MULTILINE)
_BETWEEN = b"// -----\n"


def run_each(request: Request) -> int:
    """Rewrite each module of a file and write all of them, separated as in the input; return the largest exit status.

    A faulty module is reported and left out, and the others are rewritten; a file is then left as it was, and not
    written in part. Raises InputError when the file cannot be read or the output cannot be written.
    """
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.read import read_file
    from exla_opt.ir.write import serialise, write_data

    name, data = read_file(request.source)
    status, is_faulty = 0, False
    written: list[bytes] = []

    def take(module: ir.Module) -> None:
        written.append(serialise(module, "text"))

    for piece in pieces(data):
        try:
            status = max(status, run_job(replace(request, source=name), piece, take))
        except InputError as error:
            click.echo(str(error), err=True)
            status, is_faulty = max(status, 1), True
    if not is_faulty or request.output == "-":
        write_data(_BETWEEN.join(written), request.output)
    return status


def pieces(data: bytes) -> list[bytes]:
    """The modules of a file, each after as many empty lines as precede it in the file, so that locations are right."""
    found, start, lines = [], 0, 0
    for end, following in [*(match.span() for match in _LINE.finditer(data)), (len(data), len(data))]:
        piece = data[start:end]
        if piece.strip():
            found.append(b"\n" * lines + piece)
        lines += data.count(b"\n", start, following)
        start = following
    return found
