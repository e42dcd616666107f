"""Runs Shardy in a separate process, as it aborts on some modules: python -m exla_opt.sharding.apart."""

from __future__ import annotations

import signal
import subprocess
import sys

from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import PARSER_FILE, InputError
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise

from .prepare import propagate

# CPU time; the largest module of the tests takes less than one.
_SECONDS = 600
_EVENLY = "--evenly"
# The exit status for modules that Shardy refuses: Python's own for an exception is 1.
_REFUSED = 3


class ShardyFailed(Exception):
    """Shardy refuses the module, or crashes on it; the message is a clause that says which."""


def propagated(module: ir.Module, *, evenly: bool) -> ir.Module:
    """A copy of a module without calls, with the shardings that `propagate` writes. Raises ShardyFailed."""
    try:
        found = subprocess.run(
            [sys.executable, "-m", "exla_opt.sharding.apart", *([_EVENLY] if evenly else [])],
            input=serialise(module, "bytecode"),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ShardyFailed("Shardy did not finish on it in time") from None
    if found.returncode < 0:
        raise ShardyFailed(f"Shardy crashed on it ({signal.Signals(-found.returncode).name})")
    if found.returncode:
        last = found.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        if found.returncode != _REFUSED:
            raise ShardyFailed(f"exla-opt failed to partition it, which is a bug ({''.join(last)})")
        raise ShardyFailed(last[0] if last else "Shardy refuses it without a reason")
    try:
        return parse_module(PARSER_FILE, found.stdout, module.context).module
    except InputError as error:
        raise ShardyFailed(f"Shardy writes no valid program for it: {error.message}") from None


def main() -> int:
    """Read a module from standard input, and write it with the shardings of its tensors."""
    try:
        module = parse_module(PARSER_FILE, sys.stdin.buffer.read(), new_context()).module
        propagate(module, evenly=_EVENLY in sys.argv)
    except ir.MLIRError as error:
        print(f"Shardy refuses it: {error.error_diagnostics[0].message}", file=sys.stderr)
        return _REFUSED
    except InputError as error:
        print(error.message, file=sys.stderr)
        return _REFUSED
    sys.stdout.buffer.write(serialise(module, "bytecode"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
