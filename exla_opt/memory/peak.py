"""The memory that a machine will need for a module, predicted from the module alone.

A prediction orders candidates and promises nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib.mlir import ir

from exla_opt.ir.aliasing import aliased_results
from exla_opt.ir.types import Types
from exla_opt.ir.walk import main_function

from .block import Operation
from .live_ranges import Run
from .machine import CPU, Machine
from .reading import read_block
from .schedule import run_block

# Several results are reached through a table of addresses.
_POINTER = 8
# Ops without traits that need no memory of their own, or whose need the model knows.
_MODELLED = frozenset(
    (
        "after_all broadcast cholesky copy create_token fft get_dimension_size get_tuple_element partition_id "
        "replica_id select_and_scatter splat triangular_solve tuple"
    ).split()
)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one run.

    arguments, results: of the main function.
    aliased: the results that overwrite donated arguments.
    temp: the tensors that exist only during the run.
    unknown: ops, by their full names, whose own memory is not known: if there are any, temp is a lower bound.
    gemm: what multiplies matrices in the compile that this was read from, Triton or cuBLAS, or that kernels
        were tried out on the GPU ("autotuned"); "" for a CPU.
    """

    arguments: int
    results: int
    aliased: int
    temp: int
    gemm: str = ""
    unknown: frozenset[str] = frozenset()

    @property
    def peak(self) -> int:
        """The most bytes alive at once; XLA's own figure leaves out temp on CPU."""
        return self.arguments + self.results - self.aliased + self.temp


def predict(module: ir.Module, machine: Machine = CPU) -> Memory:
    """The memory that the machine's compiler will plan for the module's main function."""
    function = main_function(module)
    types = Types()
    block = read_block(function.regions[0].blocks[0], types, machine)
    run = run_block(block, machine, held=block.returned)
    return memory_of(function, run, types)


def memory_of(function: ir.Operation, run: Run, types: Types) -> Memory:
    """The bytes of a function, from the finished run of its block."""
    made = run.block
    arguments = [types.of(value).bytes for value in function.regions[0].blocks[0].arguments]
    results = [made.sizes[value] or types.of(made.values[value]).bytes for value in made.returned]
    table = _POINTER * len(results) if len(results) > 1 else 0
    aliased = sum(arguments[place] for place in aliased_results(function))
    return Memory(sum(arguments), sum(results) + table, aliased, run.peak, unknown=_unknown(run))


def signature_bytes(module: ir.Module) -> int:
    """The bytes of the main function's arguments and results, without padding."""
    function, types = main_function(module), Types()
    block = function.regions[0].blocks[0]
    returned = list(block.operations)[-1].operation.operands
    return sum(types.of(value).bytes for value in (*block.arguments, *returned))


def _unknown(run: Run) -> frozenset[str]:
    """The ops of a run, and of runs inside it, whose own memory is not known."""
    machine = run.machine
    found = {f"stablehlo.{op.name}" for op in run.block.ops if _is_unknown(op, machine)}
    if not machine.fitted:
        found.add(f"programs on {machine.name}")
    return frozenset(found).union(*(_unknown(inner) for runs in run.inner.values() for inner in runs))


def _is_unknown(op: Operation, machine: Machine) -> bool:
    """Whether the op needs memory of its own that the model does not know."""
    if op.is_library:
        return False
    return op.name in machine.unknown or not (op.traits or op.bodies or op.name in _MODELLED)
