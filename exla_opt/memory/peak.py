"""The memory that a machine will need for a module, predicted from the module alone.

A prediction orders candidates and is no promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function

from .machine import CPU, Machine
from .reading import read_block
from .schedule import Run, run_block

# Several results are found through a table of addresses.
_POINTER = 8


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one run.

    arguments, results: what goes in and what comes out.
    aliased: the results that are written into donated arguments.
    temp: what exists only while the program runs.
    gemm: what multiplies matrices in the compile that this was read from, Triton or cuBLAS; "" for a CPU.
    """

    arguments: int
    results: int
    aliased: int
    temp: int
    gemm: str = ""

    @property
    def peak(self) -> int:
        """The most that is alive at once; XLA's own figure leaves out temp on CPU."""
        return self.arguments + self.results - self.aliased + self.temp


def predict(module: ir.Module, machine: Machine = CPU) -> Memory:
    """The memory that the machine's compiler will plan for the module's main function."""
    function = main_function(module)
    types = Types()
    block = read_block(function.regions[0].blocks[0], types, is_function=True)
    run = run_block(block, machine, held=block.returned)
    return memory_of(function, run, types)


def memory_of(function: ir.Operation, run: Run, types: Types) -> Memory:
    """The bytes of a function whose block has run."""
    made = run.block
    arguments = [types.of(value).bytes for value in function.regions[0].blocks[0].arguments]
    results = [made.sizes[value] or types.of(made.values[value]).bytes for value in made.returned]
    table = _POINTER * len(results) if len(results) > 1 else 0
    return Memory(sum(arguments), sum(results) + table, _aliased(function, arguments), run.peak)


def _aliased(function: ir.Operation, arguments: Sequence[int]) -> int:
    if "arg_attrs" not in function.attributes:
        return 0
    attributes = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return sum(size for size, each in zip(arguments, attributes, strict=True) if "tf.aliasing_output" in each)
