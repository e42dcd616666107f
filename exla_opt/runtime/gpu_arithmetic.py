"""The arithmetic of an instruction of optimised HLO: its seconds on a machine, and whether they are known.

The weights of ops are those of `exla_opt/memory/seconds.py`. Library calls are estimated for products of matrices,
convolutions, sorts and top-k; the time of all others is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log2, prod

from exla_opt.memory.machine import Machine
from exla_opt.memory.seconds import QUICK, SLOW
from exla_opt.ops.traits import CHLO, STABLEHLO, Trait
from exla_opt.runtime.hlo import Instruction

# The call targets of libraries, or their prefixes.
_PRODUCTS = ("__cublas$gemm", "__cublas$lt$matmul")
_CONVOLUTIONS = "__cudnn$conv"
_TOP_K = "__gpu$TopK"
_RADIX_SORTS = ("__cub$DeviceRadixSort", "xla.gpu.ext.cub_sort")

_REDUCTIONS = frozenset("reduce reduce-window select-and-scatter".split())
# These ops only move data, or describe it.
_NO_ARITHMETIC = frozenset("bitcast broadcast constant get-tuple-element iota parameter tuple".split())
# Seconds of XLA's top-k for each element and for each row, measured on an H200 with 1,000 rows.
_TOP_K_ELEMENT, _TOP_K_ROW = 1.15e-11, 5e-7
# Operations of a Fourier transform, over n log2 n.
_FOURIER = 5

_CONTRACTED = re.compile(r'lhs_contracting_dim(?:ension)?s(?:":\[|=\{)([\d,"]*)')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_WINDOW = re.compile(r"window=\{size=([\dx]+)")
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_HIGHEST = re.compile(r'operand_precision(?:":\[|=\{)"?(?:HIGHEST|highest)')


def seconds_of_work(
    instruction: Instruction, operands: Sequence[Instruction], amount: float, machine: Machine
) -> tuple[float, bool]:
    """The seconds to compute `amount` elements of an instruction's result, and whether they are known."""
    opcode, elements = instruction.opcode, machine.flops_elementwise
    if opcode == "dot":
        return _product(instruction, operands[0], machine), True
    if opcode == "convolution":
        return _convolution(instruction, [*operands[:2], instruction], machine), True
    if opcode == "custom-call":
        return _library(instruction, operands, machine)
    if opcode == "sort":
        return _sort(operands[0], machine), True
    if opcode in _REDUCTIONS:
        return amount * _terms(instruction, operands) / elements, True
    if opcode in ("cholesky", "triangular-solve"):
        return amount * (operands[0].shape.dims or (1,))[-1] / elements, False
    if opcode == "fft":
        return _FOURIER * amount * log2(max(operands[0].shape.elements, 2)) / elements, False
    if opcode in _NO_ARITHMETIC:
        return 0.0, True
    return amount * (SLOW if Trait.SLOW in _traits(opcode) else QUICK) / elements, True


def _traits(opcode: str) -> Trait:
    name = opcode.replace("-", "_")
    return STABLEHLO.get(name, CHLO.get(name, Trait(0)))


def _terms(instruction: Instruction, operands: Sequence[Instruction]) -> float:
    """The number of elements that each element of a reduction combines."""
    if window := _WINDOW.search(instruction.attributes):
        return float(prod(int(size) for size in window[1].split("x")))
    return operands[0].shape.elements / max(instruction.shape.elements, 1) if operands else 1.0


def _sort(operand: Instruction, machine: Machine) -> float:
    length = max(operand.shape.dims, default=1)
    return operand.shape.elements * log2(max(length, 2)) * machine.seconds_per_comparison


def _library(instruction: Instruction, operands: Sequence[Instruction], machine: Machine) -> tuple[float, bool]:
    """The seconds of a library call's arithmetic, and whether they are known."""
    found = _TARGET.search(instruction.attributes)
    target = found[1] if found else ""
    if target.startswith(_PRODUCTS):
        return _product(instruction, operands[0], machine), True
    if target.startswith(_CONVOLUTIONS):
        return _convolution(instruction, _forward(target, [*operands[:2], instruction]), machine), True
    if target == _TOP_K:
        elements = operands[0].shape.elements
        rows = elements // max(operands[0].shape.dims[-1], 1)
        return elements * _TOP_K_ELEMENT + rows * _TOP_K_ROW, True
    if target.startswith(_RADIX_SORTS):
        return _sort(operands[0], machine), True
    return 0.0, False


def _product(instruction: Instruction, left: Instruction, machine: Machine) -> float:
    """The seconds of a product of matrices: two operations for each term of each element."""
    found = _CONTRACTED.search(instruction.attributes)
    contracted = [int(each) for each in re.findall(r"\d+", found[1])] if found else []
    terms = prod(left.shape.dims[dim] for dim in contracted)
    speed = _speed(instruction, left.shape.dtype, machine)
    return 2.0 * instruction.shape.elements * terms / speed


def _forward(target: str, arrays: list[Instruction]) -> list[Instruction]:
    """Image, kernel and result of the convolution that cuDNN differentiates; `target` says which are operands."""
    first, second, result = arrays
    if target.startswith(_CONVOLUTIONS + "BackwardInput"):
        return [result, second, first]
    if target.startswith(_CONVOLUTIONS + "BackwardFilter"):
        return [first, result, second]
    return arrays


def _convolution(instruction: Instruction, arrays: Sequence[Instruction], machine: Machine) -> float:
    """The seconds of a convolution: two operations for each term of each element. arrays: image, kernel, result."""
    labels = _LABELS.search(instruction.attributes)
    kernel, result = arrays[1].shape, arrays[2].shape
    features = kernel.dims[labels[2].index("o")] if labels and "o" in labels[2] else 1
    operations = 2.0 * result.elements * kernel.elements / max(features, 1)
    return operations / _speed(instruction, arrays[0].shape.dtype, machine)


def _speed(instruction: Instruction, dtype: str, machine: Machine) -> float:
    """Operations per second of matrix products with this element type, as HLO spells it."""
    if dtype.startswith("c"):
        return _speed(instruction, "f64" if dtype == "c128" else "f32", machine) / 4
    if dtype == "f32" and _HIGHEST.search(instruction.attributes):
        return machine.flops_elementwise
    return next((speed for name, speed in machine.flops if name.lower() == dtype), machine.flops[0][1])
