"""The module of all devices around a rewritten local program, as a compiler judges it, and the figures of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jaxlib.mlir import ir

from exla_opt.budget.fit import Figures, Fit, unsplit_options
from exla_opt.budget.judge import Judge
from exla_opt.budget.measured import Instead
from exla_opt.budget.search import CannotCompile
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.write import serialise
from exla_opt.ops.sent import MORE
from exla_opt.options import Options
from exla_opt.pipeline import Outcome
from exla_opt.remarks import Remark
from exla_opt.sizes import format_size

from .partition import Partition
from .rewrite import is_changed, joined_if_gained, more_needed, too_much_sent

# What one device sends and needs; None where a compiler does not say what it sends, as of a program that does not fit.
Bytes = tuple[float | None, int]
# These of a module, which is compiled. Raises InputError if the compiler refuses it.
Share = Callable[[ir.Module], Bytes]
# Why a module is left unchanged, by the remarks' code, and why it is if there is none.
_KEPT = {
    "EX312": "the module being left unchanged: in slices, its devices would send more",
    "EX305": "the module being left unchanged: in slices, each device would need more",
}
_NOT_SPLIT = "nothing being split"


class NotKnown(Exception):
    """No compiler says whether a module fits; the message is a clause that says this, and why."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The module of all devices, and the remarks.

    is_original: whether it is the module as it came. before, peak: the compiled bytes of one device, of the module as
    it came and of this one; None where no compiler was asked. note: why it was written although no pass changed it.
    """

    module: ir.Module
    remarks: tuple[Remark, ...]
    is_original: bool
    before: int | None = None
    peak: int | None = None
    note: str = ""


def joined(
    partition: Partition,
    original: ir.Module,
    local: ir.Module,
    remarks: Sequence[Remark],
    limit: int | None,
    share: Share | None,
) -> Joined:
    """Put the rewritten local program back into the module of all devices, unless the original is better.

    remarks: of the passes on the local program. limit: the bytes that one device may need, if the sizes were chosen for
    that: then a local program that no pass changed is taken too, if it fits and the original does not. share: a
    compiler; without one, or if it refuses a module, the bytes that are sent are counted on the ops.
    """
    module, said = joined_if_gained(partition, local, remarks, even_unchanged=limit is not None)
    asked = [original] if module is None else [original, module]
    shares = None if share is None or (module is None and limit is None) else _shares(asked, share)
    if shares is None:
        if module is None or not is_changed(said):
            return Joined(original, tuple(said), True)
        return Joined(module, tuple(said), False)
    (before, needed), (sends, needs) = shares[0], shares[-1]
    if module is None:
        return Joined(original, tuple(said), True, needed, needed)
    instead = instead_of(shares[-1], shares[0])
    if before is not None and sends is not None and _is_more(sends, before):
        return Joined(original, tuple(too_much_sent(said, before, sends)), True, needed, needed)
    if instead.of_changed:
        return Joined(original, tuple(more_needed(said, needed, needs)), True, needed, needed)
    if is_changed(said):
        return Joined(module, tuple(said), False, needed, needs)
    if limit is None or needed <= limit or instead.of_unchanged:
        return Joined(original, tuple(said), True, needed, needed)
    note = f"written as a program of one device: spread by XLA, the original needs {format_size(needed)} on each"
    return Joined(module, tuple(said), False, needed, needs, note)


def instead_of(made: Bytes, original: Bytes, *, more_is_sent: bool = False) -> Instead:
    """When the original is written instead of a module, of which none was better.

    more_is_sent: whether `made` sends more by its ops, which alone counts where a compiler says nothing of traffic.
    """
    (sends, needs), (before, needed) = made, original
    is_worse = more_is_sent or _is_more(sends, before) or needs > MORE * needed
    return Instead(needed, is_worse, is_worse or needs * MORE >= needed)


def _is_more(sends: float | None, before: float | None) -> bool:
    """Whether it is known that a device sends more than before."""
    return sends is not None and before is not None and sends > MORE * before


def as_it_came(
    module: ir.Module, outcome: Outcome, options: Options, seconds: float, limit: int, why: str, judge: Judge
) -> Fit:
    """The outcome of a search for a module without a program of one device: nothing is split.

    outcome: with its remarks. seconds: of a run, predicted. limit: the bytes that one device may need. why: a clause.
    judge: its compiler takes the module of all devices. A prediction would count all of that, so without a compiler, or
    if it refuses the module, NotKnown is raised; for a named device, what the judge's compiler raises.
    """
    not_known = f"it is not known whether it fits into {format_size(limit)}"
    if judge.measure is None:
        raise NotKnown(f"{not_known}: {judge.no_compiler}")
    try:
        found = judge.measure(serialise(module, "bytecode"))
    except CannotCompile as error:
        raise NotKnown(f"{not_known}: {error}") from None
    seconds = seconds if found.seconds is None else found.seconds
    fits = found.peak <= limit
    return Fit(
        module,
        outcome,
        unsplit_options(options),
        found.peak,
        seconds,
        Figures(found.peak, True, seconds),
        fits,
        compiled=True,
        held_by="" if fits else f"the module being left unchanged: {why}",
        note=found.note,
    )


def as_written(found: Fit, written: Joined, limit: int) -> Fit:
    """The outcome of a search with the figures of what is written: the search knows the local program only."""
    if written.before is None or written.peak is None:
        return found
    before = Figures(written.before, True, found.before.seconds)
    if not written.is_original:
        note = "; ".join(filter(None, (found.note, written.note)))
        return replace(found, before=before, fitted=found.fitted and written.before <= limit, note=note)
    fits = written.peak <= limit
    codes = {remark.code for remark in written.remarks}
    is_alike = 1 / MORE < written.peak / found.peak < MORE
    own = found.held_by if is_alike else _NOT_SPLIT
    held_by = next((why for code, why in _KEPT.items() if code in codes), own)
    return replace(
        found,
        options=unsplit_options(found.options),
        before=before,
        peak=written.peak,
        compiled=True,
        seconds=found.before.seconds,
        fits=fits,
        fitted=False,
        held_by="" if fits else held_by,
        bound=None,
        smallest=None,
        faster=None,
        note="",
    )


def _shares(modules: Sequence[ir.Module], share: Share) -> list[Bytes] | None:
    try:
        return [share(module) for module in modules]
    except InputError:
        return None
