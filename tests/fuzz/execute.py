"""Runs several programs as one module; those for several devices, each of which has its own mesh, one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from exla_opt.ir.attributes import PARTITIONS
from exla_opt.runtime import pjrt
from exla_opt.runtime.compile import Program, compile_program, run_program
from exla_opt.runtime.inputs import Array, Signature
from exla_opt.runtime.traffic import traffic_of


def joined(texts: Sequence[str], signatures: Sequence[Signature]) -> str:
    """One module that calls the @main of each, with all their arguments and results in a row."""
    functions: list[str] = []
    calls: list[str] = []
    takes: list[str] = []
    names: list[str] = []
    gives: list[str] = []
    for number, (text, signature) in enumerate(zip(texts, signatures, strict=True)):
        # What is called has no memory to give away.
        text = re.sub(r" \{tf\.aliasing_output = \d+ : i32\}", "", text)
        inner = re.sub(r"\A\s*module[^\n]*\{\n(.*)\}\s*\Z", r"\1", text, flags=re.DOTALL)
        functions.append(re.sub(r"func\.func (public )?@main\(", f"func.func private @main_{number}(", inner))
        head = re.search(r"func\.func private @main_\d+\((.*)\) -> \(?(.*?)\)? \{\n", functions[-1])
        assert head
        arguments = re.findall(r"tensor<[^<>]*(?:<[^<>]*>)?>", head[1])
        results = re.findall(r"tensor<[^<>]*(?:<[^<>]*>)?>", head[2])
        given = [f"%a{len(takes) + i}" for i in range(len(arguments))]
        calls.append(
            f"%c{number}:{len(results)} = call @main_{number}({', '.join(given)}) : "
            f"({', '.join(arguments)}) -> ({', '.join(results)})"
        )
        takes += arguments
        names += [f"%c{number}#{i}" for i in range(len(results))]
        gives += results
        assert len(signature.arguments) == len(arguments)
    head_line = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(takes))
    returned = f"return {', '.join(names)} : {', '.join(gives)}"
    lines = [f"func.func public @main({head_line}) -> ({', '.join(gives)}) {{", *calls, returned, "}", *functions]
    return "\n".join(lines)


def execute(
    texts: Sequence[str], signatures: Sequence[Signature], inputs: Sequence[Sequence[Array]]
) -> list[list[Array]]:
    """The results of each module, all compiled as one. Raises InputError when XLA refuses it."""
    if any(PARTITIONS in text for text in texts):
        return [run_program(_compiled(text), arrays) for text, arrays in zip(texts, inputs, strict=True)]
    program = compile_program(joined(texts, signatures))
    results = iter(run_program(program, [array for arrays in inputs for array in arrays]))
    return [[next(results) for _ in signature.results] for signature in signatures]


def bytes_sent(text: str) -> float:
    """What each device sends to others in a program for several. Raises InputError when XLA refuses it."""
    return traffic_of(pjrt.optimised_hlo(_compiled(text).executable)).bytes


@lru_cache(maxsize=64)
def _compiled(text: str) -> Program:
    return compile_program(text)
