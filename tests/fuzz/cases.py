"""A generated program, what it is rewritten to, and the inputs of both."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.inputs import Array, Signature, read_signature
from tests.fuzz.generate import Program, generate
from tests.fuzz.inputs import make_inputs
from tests.fuzz.partitioned import partitioned

# Of so many programs one is rewritten a second time.
_AGAIN = 20


@dataclass(frozen=True, slots=True)
class Case:
    """A program, what it was rewritten to, and the inputs of both."""

    program: Program
    rewritten: str
    changed: tuple[str, ...]
    signature: Signature
    inputs: tuple[Array, ...]


class Failure(Exception):
    """A program that is not rewritten as it should be."""


def rewrite(program: Program) -> tuple[str, tuple[str, ...], Signature]:
    """The rewritten text, the passes that changed it, and its signature.

    Of every twentieth program it is noted whether a second run changes it. One for several devices is written around
    the program of one, even where nothing changed that. Raises Failure when a pass raises, leaves an invalid module or
    changes the signature, and NotPartitioned.
    """
    with new_context() as context:
        try:
            module = parse_module("<program>", program.text.encode(), context).module
        except InputError as error:
            raise Failure(f"the generator wrote what is no program: {error}") from error
        signature = read_signature(module)
        if program.devices > 1:
            spread = partitioned(module)
            module = spread.local_copy()
        last = [serialise(module, "bytecode")]
        changed: list[str] = []

        def look(name: str, module: ir.Module) -> None:
            now = serialise(module, "bytecode")
            if now != last[0] and name not in changed:
                changed.append(name)
            last[0] = now

        try:
            run_pipeline(module, program.passes, program.options, after_pass=look)
        except Exception as error:
            raise Failure(f"{type(error).__name__}: {error}") from error
        if program.devices > 1:
            module = spread.joined(module)
        if read_signature(module) != signature:
            raise Failure("the signature changed")
        once = serialise(module, "text").decode()
    if program.index % _AGAIN == 0 and program.devices == 1:
        with new_context() as context:
            module = parse_module("<program>", once.encode(), context).module
            run_pipeline(module, program.passes, program.options)
            if serialise(module, "text").decode() != once:
                changed.append("a second run")
    return once, tuple(changed), signature


def prepare(seed: int, index: int, devices: int) -> Case:
    """Generate and rewrite one program. Raises as `rewrite` does."""
    program = generate(seed, index, devices)
    rewritten, changed, signature = rewrite(program)
    inputs = make_inputs(program.arguments, signature.arguments, f"{seed} {index}", special=program.special)
    return Case(program, rewritten, changed, signature, tuple(inputs))
