"""What the memory model predicts for a program that stands in a test."""

from __future__ import annotations

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.memory.machine import machine_of
from exla_opt.memory.peak import predict


def h200_temp(program: str) -> int:
    """The bytes of temporaries on an H200."""
    with new_context() as context:
        return predict(parse_module("program", program.encode(), context).module, machine_of("cuda:h200")).temp
