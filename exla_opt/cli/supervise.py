"""Runs a command in a child process, so that even a crash of MLIR or XLA ends in a sentence.

Some damaged files make the libraries abort the whole process, and the kernel may kill it for want of memory. The
parent loads none of them, waits, and reports what became of the child.
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

# What `doing` is given while XLA compiles.
COMPILING = "compiling"
INTERRUPTED = 128 + signal.SIGINT
_NOTE_BYTES = 4096
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else ()
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
# What the child may take to end when it is asked to.
_GRACE_SECONDS = 5
# What MLIR may take to read a module, of the processor's time: seconds, and bytes a second (it reads some 6 MB).
_READING_SECONDS = 20
_SLOWEST_READING = 10**6


@dataclass(slots=True)
class _Note:
    """What the child is doing, in memory that the parent sees too; None where there is no parent.

    words: what is being done, with which file, and where the reproducer is.
    """

    shared: mmap.mmap | None = None
    words: list[str] = field(default_factory=lambda: ["", "", ""])

    def say(self) -> None:
        if self.shared is not None:
            data = "\0".join(self.words).encode("utf-8", "surrogateescape")[: _NOTE_BYTES - 1]
            self.shared[:] = data.ljust(_NOTE_BYTES, b"\0")


_note = _Note()


def doing(what: str, file: str) -> None:
    """Report to the parent what is being done with which file: that is what it says if the process dies of it."""
    _note.words[:2] = what, file
    _note.say()


def keep_after_crash(path: str) -> None:
    """Report to the parent that a reproducer for `path` is pending, to be kept if the process dies."""
    _note.words[2] = path
    _note.say()


@contextmanager
def bounded_reading(size: int) -> Iterator[None]:
    """Let a signal end the child if MLIR takes far too long for a module of `size` bytes, as for some damaged ones.

    Does nothing where nobody would report it.
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
    """Return in a child process; the parent does not return, but ends as the child does.

    Does nothing where processes cannot be forked. A signal to end goes on to the child, which cleans up.
    """
    if not hasattr(os, "fork"):
        return
    shared = mmap.mmap(-1, _NOTE_BYTES)
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until both sides know what to do with them
    child = os.fork()
    if child:
        _wait(child, shared, command)
    _note.shared = shared
    _die_with(parent)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)


def _wait(child: int, shared: mmap.mmap, command: str) -> NoReturn:
    asked: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        os.kill(child, number)
        signal.alarm(_GRACE_SECONDS)

    def insist(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, insist)  # inside MLIR and XLA, Python hears of no signal
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
    """What the parent says of a child that a signal has ended."""
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
    """Let Linux end this process when its parent is killed, which cannot end it then."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End like any exception does: what is half written goes."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
