"""Checks whether a module would fit: its memory on a device that need not be in this machine.

A CPU is this machine's own. A GPU is described by the text of an XLA GpuTargetConfigProto: XLA compiles for it without
a GPU or a driver, and nothing runs. For a TPU, libtpu compiles in a separate process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import prod
from typing import Any

from jaxlib.mlir import ir

from exla_opt.ir.attributes import all_devices_of, replicas_of
from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import PARSER_FILE, InputError
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import Machine, machine_of
from exla_opt.memory.peak import signature_bytes
from exla_opt.runtime import pjrt
from exla_opt.runtime.compile import compile_program, compile_to_measure, first_line
from exla_opt.runtime.gpu_seconds import GpuTime, estimate
from exla_opt.runtime.gpus import GPUS, describe, is_too_old
from exla_opt.runtime.hlo import HloError
from exla_opt.runtime.memory import Memory, memory_of
from exla_opt.runtime.tpus import LONGEST, TPUS, NoTpuCompiler, Tpu, TpuError, compile_for_tpu
from exla_opt.runtime.traffic import Traffic, traffic_of
from exla_opt.runtime.workspace import workspace_of
from exla_opt.sharding.gspmd import is_gspmd, unspecified_results
from exla_opt.sizes import format_size

# With a GPU, XLA times the candidates for each matrix product and takes the fastest. Without one it obeys a flag: all
# by Triton or all by cuBLAS; the GPU's own choice should lie between the two.
_GEMMS = {"Triton": True, "cuBLAS": False}

# Without some of these XLA divides by zero and crashes the process, without the others it does not compile.
_NEEDED = ("threads_per_warp", "block_dim_limit_x", "shared_memory_per_block_optin", "cuda_compute_capability")

# What `Memory.gemm` says of products whose kernels were tried out.
AUTOTUNED = "autotuned"

# On a GPU that is here XLA replaces most sorts by CUB's, and asks CUB how much memory they need.
_SORT = re.compile(r"= \(?\w+\[([\d,]*)\]\S*(?: (?:[^=\n]|/\*index=\d+\*/)*)? sort\(")
_LARGE_SORT = 2**14  # elements; XLA sorts fewer itself
_SORTS = "sorts may need more: XLA asks a GPU how much while it tries out kernels"

# The GPUs whose speeds are known, by the names that their drivers give them.
_NAME = re.compile(r'^\s*name\s*:\s*"([^"]*)"', re.MULTILINE)
_MACHINES: dict[str, Machine] = {
    "NVIDIA H200": machine_of("cuda:h200"),
    "NVIDIA H100": machine_of("cuda:h100"),
    "NVIDIA H100 80GB HBM3": machine_of("cuda:h100"),
}

# The GPU that the target `gpu` stands for.
_ANY_GPU = "h200"
_TARGETS = "cpu, gpu, cuda (the GPU that is here), cuda:h200 (or another GPU), cuda:PATH or tpu:v5e (or another TPU)"

_EXTRA = "pip install 'exla-opt[cuda]'"
_TPU_EXTRA = "pip install 'exla-opt[tpu]'"
_NO_COMPILER = re.compile(r"No PTX compilation provider|libdevice not found|ptxas too old")
_EXPORT_HELP = "the module was exported for a CPU: jax.export.export(f, platforms=['cuda']) makes one for GPUs"


class TargetError(InputError):
    """The target cannot be compiled for, whatever the module."""

    exit_status = 2

    def __init__(self, target: str, message: str) -> None:
        super().__init__(message, file=f"--target={target}")

    def locate(self, name: str, data: bytes) -> None:
        """Do nothing: the fault is not in the module `name`."""


class NoSuchTarget(TargetError):
    """The name is of no known target."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device to compile for.

    name: as the user wrote it.
    memory: of the device, in bytes.
    description: the GPU as a text of GpuTargetConfigProto; "" for this machine's CPU and for a TPU.
    tpu: the TPU; None for all others.
    is_here: whether it is this machine's GPU, on which XLA can try out kernels.
    """

    name: str
    memory: int
    description: str = ""
    tpu: Tpu | None = None
    is_here: bool = False


def parse_target(text: str) -> Target:
    """Parse a target: cpu, gpu (an H200), cuda (this machine's), cuda:NAME, cuda:PATH or tpu:NAME.

    The names are in `gpus.py` and `tpus.py`. Raises NoSuchTarget when it names none or PATH cannot be read, TargetError
    when there is no GPU here, when CUDA no longer compiles for the GPU, and when PATH lacks a field that XLA requires.
    """
    if text == "cpu":
        return Target(text, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if text == "cuda":
        return replace(_described(text, _own_description()), is_here=True)
    if text == "gpu":
        return _described(text, describe(GPUS[_ANY_GPU]))
    platform, _, name = text.partition(":")
    if platform == "tpu":
        if name not in TPUS:
            raise NoSuchTarget(text, f"no such TPU is known: give {', '.join(f'tpu:{each}' for each in TPUS)}")
        return Target(text, TPUS[name].memory, tpu=TPUS[name])
    if platform == "rocm":
        raise TargetError(text, "XLA compiles for AMD's GPUs only where ROCm is installed; name an NVIDIA GPU or a TPU")
    if platform != "cuda" or not name:
        raise NoSuchTarget(text, f"no such target: give {_TARGETS}")
    if name not in GPUS:
        return _described(text, _read(text, name))
    if is_too_old(GPUS[name]):
        raise TargetError(
            text, f"CUDA 13, which jax's plugin is built for, no longer compiles for an {GPUS[name].name}"
        )
    return _described(text, describe(GPUS[name]))


@dataclass(frozen=True, slots=True)
class Compiled:
    """The findings of a compile for a device.

    memory: the bytes of one run. note: the part that could not be compiled although the rest could, a clause; normally
    "". time: the estimated time of one run; None on a CPU or TPU and on a GPU whose speeds are not known. traffic: of
    each device of several; None if there is one.
    """

    memory: Memory
    note: str = ""
    time: GpuTime | None = None
    traffic: Traffic | None = None


def has_gpu_compiler() -> bool:
    """Whether jax's CUDA plugin is installed; NVIDIA's assembler, which it needs as well, may still be missing."""
    return find_spec("jax_plugins") is not None and find_spec("jax_plugins.xla_cuda13") is not None


def compiled_memory(module: str | bytes, target: Target, gemms: Sequence[str] = tuple(_GEMMS)) -> Compiled:
    """Compile `module` (text, bytecode or portable artifact) for `target` and read its memory; it is not run.

    For a GPU it is compiled twice, with the matrix products of Triton and of cuBLAS, and the larger peak is reported;
    if XLA refuses one of the two, the other, with a note. The time is that with cuBLAS's products, which are fast
    without tuning; with Triton's if XLA refuses the others. Without a GPU, JAX_PLATFORMS=cpu must be set before jax is
    imported, or else jax's CUDA plugin looks for a driver and does not load. Everything independent of the module is
    made once per process. gemms: which of Triton and cuBLAS to try. A TPU's compile is stopped after ten minutes.

    This machine's GPU compiles as for a run: XLA tries out kernels and takes the fastest. If it cannot, because it has
    no room to try them or too few devices, the module is compiled as for a GPU that is not here, with a note.

    Raises TargetError without the extra `cuda` or `tpu` and when XLA cannot read the description, and InputError when
    the module cannot be read or XLA refuses it.
    """
    if target.tpu is not None:
        return compiled_for_tpu(module, target, LONGEST)
    if not target.description:
        programs = compile_to_measure(module, "cpu")
        memory = max((memory_of(each.executable) for each in programs), key=lambda memory: memory.peak)
        is_alone = len(programs[0].devices) == 1
        return Compiled(memory, traffic=None if is_alone else traffic_of(pjrt.optimised_hlo(programs[0].executable)))
    data = module.encode() if isinstance(module, str) else module
    parsed = parse_module(PARSER_FILE, data, new_context()).module
    untried = ""
    if target.is_here:
        try:
            return _compiled_here(data, target)
        except InputError as error:
            workspace = workspace_of(target.description)
            more = f", and products may need {format_size(workspace)} more" if workspace else ""
            untried = f"no kernels were tried out{more}: {error.message}"
    devices = _devices(target, all_devices_of(parsed))
    choices: list[Memory] = []
    executable: Any = None
    refused: list[tuple[str, InputError]] = []
    for gemm in gemms:
        try:
            executable = _compile_for_gpu(parsed, target, devices, gemm)
            choices.append(memory_of(executable, gemm))
        except TargetError:
            raise
        except InputError as error:
            refused.append((gemm, error))
    if not choices:
        raise refused[0][1]
    notes = [f"{gemm}'s matrix products left out: {error.message}" for gemm, error in refused]
    # The last is cuBLAS's: its products are as fast as they get, while Triton's have untuned tiles.
    hlo = pjrt.optimised_hlo(executable)
    notes += [_SORTS] if _has_large_sort(hlo) else []
    note = "; ".join([untried, *notes] if untried else notes)
    memory = max(choices, key=lambda memory: memory.peak)
    return Compiled(memory, note, _time_of(hlo, target), traffic_of(hlo) if len(devices) > 1 else None)


def _compiled_here(data: bytes, target: Target) -> Compiled:
    program = compile_program(data, "cuda")
    hlo = pjrt.optimised_hlo(program.executable)
    traffic = traffic_of(hlo) if len(program.devices) > 1 else None
    return Compiled(memory_of(program.executable, AUTOTUNED), "", _time_of(hlo, target), traffic)


def share_of(target: str | None) -> Callable[[ir.Module], tuple[float | None, int]]:
    """A compiler of modules for several devices, which returns the bytes that one device sends, if known, and needs.

    target: as on the command line; None is this machine's CPU. It raises what `compiled_memory` raises.
    """
    machine = parse_target(target or "cpu")

    def share(module: ir.Module) -> tuple[float | None, int]:
        found = compiled_memory(serialise(module, "bytecode"), machine)
        return None if found.traffic is None else found.traffic.bytes, found.memory.peak

    return share


def compiled_for_tpu(module: str | bytes, target: Target, seconds: float) -> Compiled:
    """The memory of `module` on a TPU, and what one of several sends, from a compile that is stopped after `seconds`.

    Raises TargetError without the extra `tpu`, and InputError when libtpu refuses the module or takes too long.
    """
    assert target.tpu is not None
    data = module.encode() if isinstance(module, str) else module
    parsed = parse_module(PARSER_FILE, data, new_context()).module
    count = all_devices_of(parsed)
    # Of several devices none has all arguments: what does not fit is then reported as temporary memory.
    signature = signature_bytes(parsed) if count == 1 else 0
    try:
        memory, traffic = compile_for_tpu(serialise(parsed, "bytecode"), target.tpu, signature, seconds, count)
        return Compiled(memory, traffic=traffic)
    except NoTpuCompiler:
        raise TargetError(target.name, f"compiling for a TPU needs libtpu: {_TPU_EXTRA}") from None
    except TpuError as error:
        raise InputError(f"XLA cannot compile this module for {target.name}: {error}") from None


def _has_large_sort(hlo: str) -> bool:
    sizes = (prod(int(size) for size in found[1].split(",") if size) for found in _SORT.finditer(hlo))
    return any(size >= _LARGE_SORT for size in sizes)


def _time_of(hlo: str, target: Target) -> GpuTime | None:
    """The estimated time of one run; None if the GPU's speeds are not known or its HLO cannot be read."""
    name = _NAME.search(target.description)
    if name is None or name[1] not in _MACHINES:
        return None
    try:
        return estimate(hlo, _MACHINES[name[1]])
    except HloError:
        return None


def _compile_for_gpu(module: ir.Module, target: Target, devices: Sequence[Any], gemm: str) -> Any:
    try:
        flags = [("xla_gpu_enable_triton_gemm", _GEMMS[gemm])]
        by_shardy, unspecified, replicas = not is_gspmd(module), unspecified_results(module), replicas_of(module)
        return pjrt.compile_for(devices, module, flags, replicas=replicas, by_shardy=by_shardy, unspecified=unspecified)
    except pjrt.COMPILE_ERRORS as error:
        message = first_line(error)
        if _NO_COMPILER.search(message):
            raise TargetError(target.name, f"compiling for a GPU needs NVIDIA's assembler: {_EXTRA}") from None
        help = _EXPORT_HELP if "lapack_" in message else ""
        raise InputError(f"XLA cannot compile this module for {target.name}: {message}", help=help) from None


def _devices(target: Target, count: int) -> Sequence[Any]:
    """`count` devices that stand for the GPU; they can only compile."""
    try:
        return pjrt.described_devices(target.description, count)
    except NotImplementedError:
        raise TargetError(target.name, f"compiling for a GPU needs jax's CUDA plugin: {_EXTRA}") from None
    except pjrt.XlaError as error:
        raise TargetError(target.name, f"XLA cannot take this GPU: {first_line(error)}") from None


def _own_description() -> str:
    try:
        return pjrt.own_description()
    except RuntimeError as error:
        raise TargetError("cuda", f"no GPU can be used here ({first_line(error)})") from None


def _read(target: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        known = ", ".join(GPUS)
        raise NoSuchTarget(target, f"neither a GPU that is known ({known}) nor a file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TargetError(target, "the file is not text") from None


def _described(name: str, description: str) -> Target:
    facts = re.sub(r"#.*", "", description)
    memory = re.search(r"\bdevice_memory_size\s*:\s*([1-9]\d*)\b", facts)
    if memory is None or not all(re.search(rf"\b{fact}\s*(:\s*[1-9]|:?\s*{{)", facts) for fact in _NEEDED):
        needed = ", ".join(_NEEDED)
        raise TargetError(name, f"the description of a GPU has to give device_memory_size, {needed}")
    return Target(name, int(memory[1]), description)
