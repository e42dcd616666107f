"""Option values of exla-opt, checked as soon as they are read; and the options that only print something."""

from __future__ import annotations

import difflib
import re
from importlib.util import find_spec

import click

from exla_opt import __version__
from exla_opt.cli.common import Command
from exla_opt.cli.groups import write_options
from exla_opt.debug import TOPICS

# The same spellings as MLIR's tools.
_SPELLINGS = {
    **dict.fromkeys(("--verify-each=true", "--verify-each=1"), "--verify-each"),
    **dict.fromkeys(("--verify-each=false", "--verify-each=0"), "--no-verify-each"),
}


class OptCommand(Command):
    """exla-opt's command: accepts --verify-each=false too, and groups its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        return super().parse_args(ctx, [_SPELLINGS.get(word, word) for word in args])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        write_options(ctx, formatter, self.get_params(ctx))


def split_rule(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The (call target, rule text) pairs of `--op-rule`. Raises BadParameter for anything that is not a rule."""
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
    """Print the meaning of a remark's code and exit. Raises BadParameter for an unknown code."""
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


def remarks_files(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """The files of `--remarks-output`. Raises BadParameter for other file extensions."""
    for name in names:
        if not name.endswith((".json", ".yaml", ".yml", ".sarif")):
            raise click.BadParameter(f"{name!r} must end in .json, .yaml or .sarif", ctx=ctx, param=param)
    return names


def debug_topics(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The topics of `--debug-only`, of which one value may name several, as in mlir-opt.

    Raises BadParameter for unknown ones.
    """
    topics = tuple(dict.fromkeys(topic.strip() for value in values for topic in value.split(",")))
    for topic in topics:
        if topic not in TOPICS:
            known = ", ".join(f"{name} ({what})" for name, what in TOPICS.items())
            raise click.BadParameter(f"there is no topic {topic!r}; there are {known}", ctx=ctx, param=param)
    return topics


def print_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Print the versions of exla-opt, jaxlib and StableHLO, and exit."""
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    from jaxlib.mlir.dialects import stablehlo

    versions = f"jaxlib {version('jaxlib')}, StableHLO {stablehlo.get_current_version()}"
    click.echo(f"exla-opt {__version__} ({versions})")
    ctx.exit()


def report_files(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """The files of `--report`. Raises BadParameter for other file extensions, UsageError for a page without plotly."""
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
