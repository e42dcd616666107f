"""The passes of `--passes` and `--pass-pipeline`, with their options: `tensor-splitter{split-size=8MB}`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import click

from exla_opt.sizes import parse_size

# A pass, and options in braces, which may contain commas.
_ENTRY = re.compile(r"\s*([^{},]*?)\s*(?:\{([^{}]*)\})?\s*(?:,|$)")
_SIZES = {"split-size": "split_size", "size-threshold": "size_threshold"}

# The sizes of single passes, as fields of Options, by position in the pipeline.
Overrides = Mapping[int, Mapping[str, int]]


def read_passes(passes: str | None, pipeline: str | None) -> tuple[tuple[str, ...], dict[int, dict[str, int]]]:
    """The passes of `--passes` or `--pass-pipeline`, by default the default ones, and sizes of single passes.

    Raises click.UsageError for both at once, for unknown names, and for unknown options of a pass.
    """
    from exla_opt.pipeline import DEFAULT_PASSES

    if passes is not None and pipeline is not None:
        raise click.UsageError("--passes and --pass-pipeline exclude each other")
    text = passes if pipeline is None else pipeline
    if text is None:
        return DEFAULT_PASSES, {}
    nested = re.fullmatch(r"\s*builtin\.module\s*\((.*)\)\s*", text)
    inner = nested[1] if nested and pipeline is not None else text
    names: list[str] = []
    overrides: dict[int, dict[str, int]] = {}
    place = 0
    while inner.strip() and place <= len(inner):
        found = _ENTRY.match(inner, place)
        if found is None:
            raise click.UsageError(f"cannot read the pass {inner[place:]!r}; write name or name{{split-size=8MB}}")
        name, options = known_pass(found[1]), found[2]
        if options is not None:
            if pipeline is None:
                raise click.UsageError(f"options of a pass are for --pass-pipeline: {found[0].strip(' ,')}")
            overrides[len(names)] = _sizes(name, options)
        names.append(name)
        if not found[0].endswith(","):
            break
        place = found.end()
    return tuple(names), overrides


def known_pass(name: str) -> str:
    """The name of a pass. Raises click.UsageError for an unknown one."""
    from exla_opt.pipeline import PASSES

    if name not in PASSES:
        close = difflib.get_close_matches(name, PASSES, n=1, cutoff=0.5)
        hint = f"Did you mean '{close[0]}'?" if close else f"The passes are {', '.join(PASSES)}."
        raise click.UsageError(f"unknown pass '{name}'. {hint}")
    return name


def pass_names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The passes of a repeated option."""
    return tuple(known_pass(value) for value in values)


def _sizes(name: str, text: str) -> dict[str, int]:
    from exla_opt.pipeline import SIZELESS

    found: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        option, _, value = word.partition("=")
        if option not in _SIZES or name in SIZELESS:
            has = "it has none" if name in SIZELESS else f"it has {' and '.join(_SIZES)}"
            raise click.UsageError(f"pass '{name}' has no option '{option}': {has}")
        try:
            found[_SIZES[option]] = parse_size(value)
        except ValueError as error:
            raise click.UsageError(f"{option} of pass '{name}': {error}") from None
    return found
