"""exla-opt --print-ir-before, --print-ir-after and --print-ir-after-all: the module on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # at run time this would load MLIR
    from jaxlib.mlir import ir

    from exla_opt.cli.request import Request


def prints_ir(request: Request) -> bool:
    """Whether any of the options is given."""
    return request.print_ir_after_all or bool(request.print_ir_before or request.print_ir_after)


def print_before(request: Request, name: str, module: ir.Module) -> None:
    """Print the module before the pass, if requested."""
    if name in request.print_ir_before:
        _print("Before", name, module)


def print_after(request: Request, name: str, module: ir.Module) -> None:
    """Print the module after the pass, if requested."""
    if request.print_ir_after_all or name in request.print_ir_after:
        _print("After", name, module)


def _print(when: str, name: str, module: ir.Module) -> None:
    from exla_opt.ir.write import serialise

    click.echo(f"// -----// IR Dump {when} {name} //----- //", err=True)
    click.echo(serialise(module, "text"), err=True)
