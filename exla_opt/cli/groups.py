"""The options of exla-opt in the groups of its --help."""

from __future__ import annotations

import click

GROUPS = {
    "Input and output": "output emit stablehlo_version split_input_file",
    "Memory": "memory_limit target size_threshold split_size nested_tiles strict pareto diagnose",
    "Rewrites": "no_reassociate chain_cost op_rules passes pass_pipeline",
    "Reporting": "remarks remarks_output summary reports quiet explain timing",
    "Checking the result": "check check_memory verify_each crash_reproducer",
    "Debugging passes": "list_passes print_ir_after_all print_ir_before print_ir_after debug_only",
}
_OTHERS = "Others"


def write_options(context: click.Context, formatter: click.HelpFormatter, options: list[click.Parameter]) -> None:
    """Write the options group by group, in the order of the groups; options without a group come last."""
    places = {name: title for title, names in GROUPS.items() for name in names.split()}
    rows: dict[str, list[tuple[int, tuple[str, str]]]] = {title: [] for title in [*GROUPS, _OTHERS]}
    for option in options:
        # From 8.5 on, click has a record of an argument too.
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            title = places.get(option.name or "", _OTHERS)
            order = GROUPS[title].split().index(option.name or "") if title in GROUPS else 0
            rows[title].append((order, record))
    for title, found in rows.items():
        if found:
            with formatter.section(title):
                formatter.write_dl([record for _, record in sorted(found, key=lambda row: row[0])])
