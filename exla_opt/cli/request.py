"""The command line of exla-opt, as one frozen value."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from exla_opt.cli.pass_list import Overrides, read_passes
from exla_opt.memory.machine import CPU, Machine, machine_of
from exla_opt.options import Options
from exla_opt.sizes import format_size

# The output forms. None: a file of jax.export is written as one, anything else as text.
Form = Literal["text", "bytecode", "portable", "hlo", "jax"]


@dataclass(frozen=True, slots=True)
class Request:
    """The options of one run. Options of the command line have the same names here (`exla-opt --help`).

    options: the settings of the passes; with a limit, without sizes. passes: their names, in order. overrides: sizes of
    single passes. limit: the bytes of --memory-limit. quiet: whether only errors are printed.
    """

    source: str
    output: str
    emit: Form | None
    options: Options
    passes: tuple[str, ...]
    overrides: Overrides = field(default_factory=dict)
    stablehlo_version: str | None = None
    limit: int | None = None
    pareto: bool = False
    diagnose: bool = False
    split_input_file: bool = False
    target: str | None = None
    strict: bool = False
    remarks: str | None = None
    remarks_output: tuple[str, ...] = ()
    print_ir_after_all: bool = False
    print_ir_before: tuple[str, ...] = ()
    print_ir_after: tuple[str, ...] = ()
    verify_each: bool = True
    check: bool = False
    check_memory: int | None = None
    crash_reproducer: str | None = None
    timing: bool = False
    summary: bool = False
    quiet: bool = False
    reports: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        """Whether to choose the sizes for a limit."""
        return self.limit is not None or self.target is not None

    def outputs(self) -> list[str]:
        """The names of the files to write, `-` among them.

        Raises click.UsageError if two options name the same file, as one would overwrite the other's output.
        """
        named = [("--output", self.output)] if self.output != "-" else []
        named += [("--report", name) for name in dict.fromkeys(self.reports)]
        named += [("--remarks-output", name) for name in dict.fromkeys(self.remarks_output)]
        named += [] if self.crash_reproducer is None else [("--crash-reproducer", self.crash_reproducer)]
        seen: dict[str, str] = {}
        for option, name in named:
            other = seen.setdefault(os.path.realpath(name), option)
            if other != option and not Path(name).is_char_device():
                raise click.UsageError(f"{option} and {other} name the same file")
        return [self.output, *(name for _, name in named)]

    def _pipeline(self) -> str:
        if not self.overrides:
            return f"--passes={','.join(self.passes)}"
        own = {
            place: " ".join(f"{name.replace('_', '-')}={size}" for name, size in sizes.items())
            for place, sizes in self.overrides.items()
        }
        names = [f"{name}{{{own[place]}}}" if place in own else name for place, name in enumerate(self.passes)]
        return f"--pass-pipeline=builtin.module({','.join(names)})"

    def words(self) -> list[str]:
        """The options that reproduce this run, without input and output."""
        options = self.options
        words = [self._pipeline()]
        if not self.is_limited:
            words.append(f"--size-threshold={options.size_threshold}")
            words += [] if options.split_size is None else [f"--split-size={options.split_size}"]
            words += ["--nested-tiles"] if options.nested_tiles else []
        words += [] if self.limit is None else [f"--memory-limit={self.limit}"]
        words += [] if self.target is None else [f"--target={self.target}"]
        words += [] if options.reassociate else ["--no-reassociate"]
        words += [] if options.chain_cost == Options().chain_cost else [f"--chain-cost={options.chain_cost}"]
        words += [f"--op-rule={target}={rule}" for target, rule in options.op_rules]
        words += [] if self.verify_each else ["--no-verify-each"]
        words += ["--check"] if self.check else []
        return words + ([] if self.check_memory is None else [f"--check-memory={self.check_memory}"])


def read_request(source: str, output: str, emit: Form | None, flags: dict[str, Any]) -> Request:
    """The request of a command line; `flags` are the options by their Python names.

    Raises click.UsageError if options contradict each other.
    """
    if flags["summary"] and flags["quiet"]:
        raise click.UsageError("--summary and --quiet exclude each other")
    if flags["check_memory"] is not None and not flags["check"]:
        raise click.UsageError("--check-memory is for --check")
    if flags["stablehlo_version"] is not None and emit != "portable":
        raise click.UsageError("--stablehlo-version is for --emit=portable")
    if flags["pareto"] and (given := _excluded(output, flags)):
        raise click.UsageError(f"--pareto writes no module and chooses no program: leave out {given}")
    if flags["diagnose"] and (given := _excluded(output, flags, _DIAGNOSED)):
        raise click.UsageError(f"--diagnose writes no module: leave out {given}")
    if flags["target"] == "":
        raise click.UsageError("--target= names no device")
    passes, overrides = read_passes(flags["passes"], flags["pass_pipeline"])
    searches = next((name for name in ("memory_limit", "target", "pareto", "diagnose", "check") if flags[name]), None)
    if overrides and searches is not None:
        raise click.UsageError(f"options of passes and --{searches.replace('_', '-')} exclude each other")
    options = options_of(flags)
    for place, sizes in overrides.items():
        try:
            threshold = sizes.get("size_threshold", options.size_threshold)
            Options(size_threshold=threshold, split_size=sizes.get("split_size", options.split_size))
        except ValueError as error:
            raise click.UsageError(f"options of pass '{passes[place]}': {error}") from None
    if flags["split_input_file"] and (any(flags[name] for name in _OF_ONE_MODULE) or emit not in (None, "text")):
        raise click.UsageError("--split-input-file writes modules as text, and no file for each of them")
    return Request(
        source=source,
        output=output,
        emit=emit,
        options=options,
        passes=passes,
        overrides=overrides,
        limit=flags["memory_limit"],
        **{name: flags[name] for name in _AS_THEY_ARE},
    )


_AS_THEY_ARE = (
    "stablehlo_version",
    "pareto",
    "diagnose",
    "split_input_file",
    "target",
    "strict",
    "remarks",
    "remarks_output",
    "print_ir_after_all",
    "print_ir_before",
    "print_ir_after",
    "verify_each",
    "check",
    "check_memory",
    "crash_reproducer",
    "timing",
    "summary",
    "quiet",
    "reports",
)


# Options that need a rewritten program, or report on one.
_OF_ONE_PROGRAM = (
    "memory_limit size_threshold split_size nested_tiles strict check summary reports remarks remarks_output "
    "print_ir_after_all print_ir_before print_ir_after "
    "timing"
).split()


# Options whose output is for a single module, or that write no module.
_OF_ONE_MODULE = ("pareto", "diagnose", "remarks_output", "reports", "crash_reproducer")
# Options that are allowed with --diagnose all the same.
_DIAGNOSED = ("memory_limit",)


def _excluded(output: str, flags: dict[str, Any], allowed: Sequence[str] = ()) -> str:
    """The first given option that needs a single program and is not allowed; "" if there is none."""
    if output != "-":
        return "--output"
    given = [name for name in _OF_ONE_PROGRAM if flags[name] and name not in allowed]
    return f"--{given[0].removesuffix('s' if given[0] == 'reports' else '').replace('_', '-')}" if given else ""


def options_of(flags: dict[str, Any]) -> Options:
    """The settings of the command line. Raises click.UsageError if options contradict each other."""
    threshold, split = flags["size_threshold"], flags["split_size"]
    limited = flags["memory_limit"] is not None or flags["target"] is not None
    if limited and (threshold, split) != (None, None):
        raise click.UsageError(
            "--memory-limit and --target choose --size-threshold and --split-size themselves; leave them out"
        )
    if limited and flags["nested_tiles"]:
        raise click.UsageError("--memory-limit and --target choose --nested-tiles themselves; leave it out")
    if flags["strict"] and not limited:
        raise click.UsageError("--strict needs a --memory-limit or a --target")
    threshold = Options().size_threshold if threshold is None else threshold
    if split is not None and split > threshold:
        raise click.UsageError(
            f"--split-size ({format_size(split)}) is above --size-threshold ({format_size(threshold)}): "
            "a slice would be as large as the tensors to split"
        )
    return Options(
        size_threshold=threshold,
        split_size=split,
        reassociate=not flags["no_reassociate"],
        op_rules=flags["op_rules"],
        chain_cost=flags["chain_cost"],
        nested_tiles=flags["nested_tiles"],
        machine=_machine(flags["target"]),
        memory_limit=flags["memory_limit"],
    )


def _machine(target: str | None) -> Machine:
    """The machine to choose sizes for. An unknown name is refused later, when its compiler is requested."""
    try:
        return CPU if target is None else machine_of(target)
    except ValueError:
        return CPU
