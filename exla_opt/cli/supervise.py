"""Runs a command in a child process, so that even a crash of MLIR or XLA ends in an error message.

Some damaged files make the libraries abort the process, and the kernel may kill it when memory runs out. The parent
loads none of them, waits, and reports how the child ended.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from exla_opt import __version__
from exla_opt.cli.pending import drop, keep

# The argument of `doing` while XLA compiles.
COMPILING = "compiling"
INTERRUPTED = 128 + signal.SIGINT
_NOTE_BYTES = 4096
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else ()
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
# Seconds, longer than a callback takes.
_MOMENT = 0.05
# The seconds that the child has to exit after a signal.
_GRACE_SECONDS = 5
# The CPU time in which MLIR must read a module: seconds, and bytes per second (it reads some 6 MB).
_READING_SECONDS = 20
_SLOWEST_READING = 10**6


@dataclass(slots=True)
class _Note:
    """The child's current activity, in memory shared with the parent; None if there is no parent.

    words: the activity, the file, and the path of the reproducer.
    """

    shared: mmap.mmap | None = None
    words: list[str] = field(default_factory=lambda: ["", "", ""])

    def say(self) -> None:
        if self.shared is not None:
            data = "\0".join(self.words).encode("utf-8", "surrogateescape")[: _NOTE_BYTES - 1]
            self.shared[:] = data.ljust(_NOTE_BYTES, b"\0")


_note = _Note()


def doing(what: str, file: str) -> None:
    """Record the current activity and its file for the parent, which names them if the process dies."""
    _note.words[:2] = what, file
    _note.say()


def keep_after_crash(path: str) -> None:
    """Record for the parent that a reproducer for `path` is pending; it keeps the file if the process dies."""
    _note.words[2] = path
    _note.say()


@contextmanager
def bounded_reading(size: int) -> Iterator[None]:
    """Let a signal end the child if MLIR takes far too long for a module of `size` bytes, as for some damaged ones.

    Does nothing without a parent that could report it.
    """
    if _note.shared is None:
        yield
        return
    signal.setitimer(signal.ITIMER_VIRTUAL, _READING_SECONDS + size / _SLOWEST_READING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def supervise(command: str) -> None:
    """Return in a child process; in the parent, wait and then exit like the child.

    Does nothing where processes cannot be forked. Termination signals are passed on to the child, which cleans up.
    """
    if not hasattr(os, "fork"):
        return
    shared = mmap.mmap(-1, _NOTE_BYTES)
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until both processes have their handlers
    child = os.fork()
    if child:
        _wait(child, shared, command)
    _note.shared = shared
    _die_with(parent)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    sys.unraisablehook = _end_soon
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)


def _wait(child: int, shared: mmap.mmap, command: str) -> NoReturn:
    asked: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        os.kill(child, number)
        signal.alarm(_GRACE_SECONDS)

    def insist(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, insist)  # Python handles no signal while inside MLIR or XLA
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    killer = os.WTERMSIG(status)
    if killer in _FORWARDED:
        os._exit(128 + killer)
    what, file, reproducer = shared[:].decode("utf-8", "surrogateescape").split("\0")[:3]
    if killer == signal.SIGKILL and asked:
        if reproducer:
            drop(reproducer)
        print(f"{command}: interrupted", file=sys.stderr, flush=True)
        os._exit(128 + asked[0])
    print(_obituary(command, killer, what, file, reproducer), file=sys.stderr)
    sys.stderr.flush()
    os._exit(1)


def _obituary(command: str, number: int, what: str, file: str, reproducer: str) -> str:
    """The parent's message on a child that a signal has ended."""
    name = signal.Signals(number).name
    who = file or command
    if what == "reading" and number == signal.SIGVTALRM:
        return f"{who}: error: MLIR did not finish reading it\nhelp: the file may be damaged; copy or export it again"
    if what == "reading" and number != signal.SIGKILL:
        return (
            f"{who}: error: MLIR crashed while reading it ({name})\n"
            "help: the file may be damaged, or nested too deeply; copy or export it again"
        )
    if what == COMPILING and number != signal.SIGKILL:
        return (
            f"{who}: error: XLA crashed while it compiled a program for the limit ({name})\n"
            "help: this is a bug in XLA; --split-size instead of --memory-limit needs no compiler"
        )
    if command == "exla-run" and what != "reading" and number != signal.SIGKILL:
        return (
            f"{who}: error: XLA crashed while it compiled or ran it ({name})\n"
            "help: this is a bug in XLA; exla-reduce makes the module smaller for a report"
        )
    reason = f"ended by {name}"
    where = keep(reproducer, reason) if reproducer else ""
    if number == signal.SIGKILL:
        return (
            f"{who}: error: {reason} while {what or 'starting'}: perhaps memory ran out{f'; {where}' if where else ''}"
        )
    return f"{who}: internal error: {reason} (version {__version__}); {f'{where}; ' if where else ''}please report this"


def _die_with(parent: int) -> None:
    """Let Linux end this process when its parent is killed, which then cannot do it."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Exit by an exception, so that partial output is removed."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _end_soon(info: sys.UnraisableHookArgs) -> None:
    """Exit a moment later where Python drops the exception that should: in callbacks, as of the garbage collector."""
    wanted = info.exc_value
    if not isinstance(wanted, SystemExit):
        sys.__unraisablehook__(info)
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(wanted.code)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _MOMENT)
