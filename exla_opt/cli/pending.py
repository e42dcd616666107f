"""The reproducer before a failure: a hidden file next to the requested path, kept only if something fails.

The supervising process uses this too, and loads no MLIR unless a file has to be kept.
"""

from __future__ import annotations

import os


def pending_path(path: str) -> str:
    """The path of the pending file for the reproducer `path`."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.pending")


def keep(path: str, reason: str) -> str:
    """Make the pending file the reproducer `path`; return a clause that says so, or "" if that fails."""
    from exla_opt.ir.diagnostics import InputError
    from exla_opt.ir.write import write_file

    try:
        with open(pending_path(path), "rb") as file:
            data = file.read()
        write_file(f"// {reason}\n".encode() + data, path)
        os.unlink(pending_path(path))
    except (OSError, InputError):
        return ""
    return f"the module and the options are in {path}"


def drop(path: str) -> None:
    """Remove the pending file for the reproducer `path`."""
    if os.path.exists(pending_path(path)):
        os.unlink(pending_path(path))
