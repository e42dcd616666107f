"""The reproducer while it is not known whether it will be needed: a hidden file next to the one that was asked for.

The supervising process uses this too, and loads no MLIR unless something has to be kept.
"""

from __future__ import annotations

import os


def pending_path(path: str) -> str:
    """What lies there for the reproducer `path` while it is not known whether it will be needed."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.pending")


def keep(path: str, reason: str) -> str:
    """Make what is pending the reproducer `path`; a clause that says so, or "" where that could not be done."""
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
    """Take away what is pending for the reproducer `path`, which is not needed."""
    if os.path.exists(pending_path(path)):
        os.unlink(pending_path(path))
