"""Compiling for a TPU that is not in this machine: libtpu in a separate process, which can be stopped.

libtpu writes noise to standard error, needs variables set before it is loaded, and may take minutes; the calling
process should see none of that. If a program does not fit, libtpu fails with one sentence that has the bytes needed;
these are then the peak.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from exla_opt.memory.peak import Memory
from exla_opt.runtime.traffic import Traffic

_GIB = 2**30

# The maximum seconds of one compile.
LONGEST = 600.0
SLOW = "a compile for a TPU takes seconds to minutes, and is stopped after ten"


# The shapes of topologies by their number of chips.
_FLAT = {1: "1x1", 2: "1x2", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8"}
_CUBES = {1: "1x1x1", 2: "1x2x1", 4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4"}


@dataclass(frozen=True, slots=True)
class Tpu:
    """One generation.

    prefix: of libtpu's names of its topologies. shape: the smallest one of a host, in chips. memory: bytes per device.
    kinds: jax's names of such a device. chip_config: a further argument. per_chip: the devices of a chip.
    """

    prefix: str
    shape: str
    memory: int
    kinds: tuple[str, ...]
    chip_config: str = ""
    per_chip: int = 1

    def topology(self, count: int) -> str:
        """The name of the topology of this many devices. Raises TpuError if there is none."""
        if count == 1:
            return f"{self.prefix}:{self.shape}"
        chips, rest = divmod(count, self.per_chip)
        shapes = _FLAT if self.shape.count("x") == 1 else _CUBES
        if rest or chips not in shapes:
            known = ", ".join(str(each * self.per_chip) for each in shapes)
            raise TpuError(f"its topologies have {known} devices, and the module is for {count}")
        return f"{self.prefix}:{shapes[chips]}"


# By the names of `--target=tpu:NAME`; the memory is the size that libtpu reports as available.
TPUS = {
    "v4": Tpu("v4", "2x2x1", int(30.75 * _GIB), ("TPU v4",), "megacore"),
    "v5e": Tpu("v5e", "2x2", int(15.75 * _GIB), ("TPU v5 lite", "TPU v5e")),
    "v5p": Tpu("v5p", "2x2x1", int(95.74 * _GIB), ("TPU v5", "TPU v5p")),
    "v6e": Tpu("v6e", "2x2", int(31.25 * _GIB), ("TPU v6 lite", "TPU v6e")),
    "v7x": Tpu("tpu7x", "2x2x1", int(94.75 * _GIB), ("TPU7x", "TPU v7x"), per_chip=2),
}

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": _GIB, "T": 2**40}
_SIZE = r"([\d.]+)([KMGT]?)\b"
# The two forms of its refusal. Both count everything, arguments and results too, whatever their wording.
_FORMS = r"on HBM, the total memory required for HLO temporaries \(|in memory space hbm\. Used "
_NEEDED = re.compile(rf"Ran out of memory (?:{_FORMS}){_SIZE}")

_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class TpuError(RuntimeError):
    """libtpu did not compile the program; the message is libtpu's first line, or says how long it took."""


class NoTpuCompiler(RuntimeError):
    """libtpu is not installed."""


class TookTooLong(TpuError):
    """The compile was stopped."""


def target_of_kind(kind: str) -> str:
    """The target for a TPU by jax's name of the device, as in "TPU v5 lite"; plain "tpu" if it is not known."""
    return next((f"tpu:{name}" for name, tpu in TPUS.items() if kind in tpu.kinds), "tpu")


def has_tpu_compiler() -> bool:
    """Whether libtpu is installed."""
    return find_spec("libtpu") is not None


def compile_for_tpu(
    module: bytes, tpu: Tpu, signature_bytes: int, seconds: float = LONGEST, devices: int = 1
) -> tuple[Memory, Traffic | None]:
    """The memory of `module` (bytecode) on each of its TPUs, and what one of several sends; nothing is run.

    signature_bytes: of arguments and results, which libtpu does not distinguish in a program that does not fit; they
    are then all reported as arguments, and nothing is known of what it would send. devices: that the module is for.
    seconds: the limit of the compile. Raises NoTpuCompiler, TookTooLong, and TpuError when libtpu refuses the module.
    """
    if not has_tpu_compiler():
        raise NoTpuCompiler
    command = [
        sys.executable,
        "-m",
        "exla_opt.runtime.tpu_compile",
        tpu.topology(devices),
        str(devices),
        tpu.chip_config,
    ]
    environment = {**os.environ, **_ENVIRONMENT}
    try:
        done = subprocess.run(command, input=module, capture_output=True, env=environment, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise TookTooLong(f"the compile was stopped after {seconds:.0f} seconds") from None
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise TpuError(f"libtpu ended with status {done.returncode}") from None
    if "error" in found:
        return memory_refused(found["error"], signature_bytes), None
    arguments, results, aliased = found["arguments"], found["results"], found["aliased"]
    # Its own figure of temporary memory leaves out buffers that live only in loops; the peak includes them.
    memory = Memory(arguments, results, aliased, max(found["peak"] - (arguments + results - aliased), 0))
    return memory, Traffic(**found["traffic"]) if devices > 1 else None


def memory_refused(message: str, signature_bytes: int) -> Memory:
    """The memory of a program that does not fit, from libtpu's message. Raises TpuError for any other message."""
    found = _NEEDED.search(message)
    if found is None:
        raise TpuError(message.strip().partition("\n")[0])
    return Memory(signature_bytes, 0, 0, max(round(float(found[1]) * _UNITS[found[2]]) - signature_bytes, 0))
