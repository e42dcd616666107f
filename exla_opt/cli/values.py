"""Option values of exla-opt, checked as soon as they are read; and the options that only print something."""

from __future__ import annotations

import difflib
import re
from importlib.util import find_spec

import click

from exla_opt.cli.common import Command

# As MLIR's tools have it.
_SPELLINGS = {
    **dict.fromkeys(("--verify-each=true", "--verify-each=1"), "--verify-each"),
    **dict.fromkeys(("--verify-each=false", "--verify-each=0"), "--no-verify-each"),
}


class OptCommand(Command):
    """exla-opt: knows --verify-each=false too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        return super().parse_args(ctx, [_SPELLINGS.get(word, word) for word in args])


def split_rule(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The (call target, rule text) pairs of `--op-rule`. Raises BadParameter for what is no rule."""
    rules = []
    for value in values:
        target, _, rule = value.partition("=")
        if not target.strip() or not re.fullmatch(r"\s*\(.*\)\s*->\s*\(.*\)\s*.*", rule):
            raise click.BadParameter(f"{value!r} is not of the form 'target=([i,j],[j])->([i])'", ctx, param)
        rules.append((target.strip(), rule.strip()))
    return tuple(rules)


def list_passes(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Print the passes and exit."""
    if not wanted or ctx.resilient_parsing:
        return
    from exla_opt.pipeline import PASSES, description

    width = max(map(len, PASSES))
    for name in PASSES:
        click.echo(f"{name:{width}}  {description(name)}")
    ctx.exit()


def explain_code(ctx: click.Context, param: click.Parameter, code: str | None) -> None:
    """Print what a remark's code means and exit. Raises BadParameter for a code that does not exist."""
    if code is None or ctx.resilient_parsing:
        return
    from exla_opt.explanations import EXPLANATIONS, explain

    text = explain(code)
    if text is None:
        close = difflib.get_close_matches(code.upper(), EXPLANATIONS, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"The first is {next(iter(EXPLANATIONS))}."
        raise click.BadParameter(f"there is no remark {code!r}. {hint}", ctx=ctx, param=param)
    click.echo(text)
    ctx.exit()


def remarks_file(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """The file of `--remarks-output`. Raises BadParameter for another end of its name."""
    if name is not None and not name.endswith((".json", ".yaml", ".yml")):
        raise click.BadParameter(f"{name!r} must end in .json or .yaml", ctx=ctx, param=param)
    return name


def report_files(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """The files of `--report`. Raises BadParameter for other ends of names, UsageError for a page without plotly."""
    for name in names:
        if not name.lower().endswith((".html", ".json")):
            raise click.BadParameter(f"{name!r} must end in .html or .json; --summary prints the table", ctx, param)
    if any(name.lower().endswith(".html") for name in names) and find_spec("plotly") is None:
        raise click.UsageError("a report as a page needs plotly: pip install 'exla-opt[report]' (.json needs nothing)")
    return names


def stablehlo_version(ctx: click.Context, param: click.Parameter, version: str | None) -> str | None:
    """The version of `--stablehlo-version`. Raises BadParameter for one that cannot be written."""
    if version is None:
        return None
    from exla_opt.ir.portable import check_version

    try:
        check_version(version)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return version


def pass_names(passes: str | None, pipeline: str | None) -> tuple[str, ...]:
    """The passes chosen by `--passes` or `--pass-pipeline`; the default ones without either.

    Raises click.UsageError for both at once and for unknown names.
    """
    from exla_opt.pipeline import DEFAULT_PASSES, PASSES

    if passes is not None and pipeline is not None:
        raise click.UsageError("--passes and --pass-pipeline exclude each other")
    text = passes if pipeline is None else pipeline
    if text is None:
        return DEFAULT_PASSES
    nested = re.fullmatch(r"\s*builtin\.module\s*\((.*)\)\s*", text)
    inner = nested[1] if nested and pipeline is not None else text
    names = tuple(part.strip() for part in inner.split(",")) if inner.strip() else ()
    for name in names:
        if name not in PASSES:
            close = difflib.get_close_matches(name, PASSES, n=1, cutoff=0.5)
            hint = f"Did you mean '{close[0]}'?" if close else f"The passes are {', '.join(PASSES)}."
            raise click.UsageError(f"unknown pass '{name}'. {hint}")
    return names
