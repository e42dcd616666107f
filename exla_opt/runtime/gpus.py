"""NVIDIA's GPUs, as XLA needs them described to compile for one that is not in this machine.

The figures are those that NVIDIA publishes and that drivers report. Memory is rounded down, as drivers reserve a part
of it; it is the published figure if we know of no driver's.
"""

from __future__ import annotations

from dataclasses import dataclass

_GB = 10**9
_KIB = 2**10


@dataclass(frozen=True, slots=True)
class Generation:
    """The properties shared by all GPUs of one compute capability.

    major, minor: the compute capability. accelerated: whether XLA uses features that only this exact capability has.
    fpus: float32 units per streaming multiprocessor. threads: the maximum per multiprocessor. shared_per_block,
    shared_per_core: the maximum shared memory of a block and of a multiprocessor, in bytes.
    """

    major: int
    minor: int
    accelerated: bool
    fpus: int
    threads: int
    shared_per_block: int
    shared_per_core: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One product: its name, memory in bytes, bytes per second, multiprocessors, GHz, and bytes of its cache."""

    name: str
    generation: Generation
    memory: int
    bandwidth: int
    cores: int
    clock: float
    cache: int


_VOLTA = Generation(7, 0, False, 64, 2048, 96 * _KIB, 96 * _KIB)
_TURING = Generation(7, 5, False, 64, 1024, 64 * _KIB, 64 * _KIB)
_AMPERE = Generation(8, 0, False, 64, 2048, 163 * _KIB, 164 * _KIB)
_AMPERE_RTX = Generation(8, 6, False, 128, 1536, 99 * _KIB, 100 * _KIB)
_ADA = Generation(8, 9, False, 128, 1536, 99 * _KIB, 100 * _KIB)
_HOPPER = Generation(9, 0, True, 128, 2048, 227 * _KIB, 228 * _KIB)
_BLACKWELL = Generation(10, 0, True, 128, 2048, 227 * _KIB, 228 * _KIB)
_BLACKWELL_ULTRA = Generation(10, 3, True, 128, 2048, 227 * _KIB, 228 * _KIB)
_BLACKWELL_RTX = Generation(12, 0, True, 128, 1536, 99 * _KIB, 100 * _KIB)
_BLACKWELL_SPARK = Generation(12, 1, True, 128, 1536, 99 * _KIB, 100 * _KIB)


def _gpu(
    name: str, generation: Generation, memory: float, bandwidth: float, cores: int, clock: float, cache: float
) -> Gpu:
    """memory and bandwidth in GB, cache in MiB."""
    return Gpu(
        f"NVIDIA {name}", generation, int(memory * _GB), int(bandwidth * _GB), cores, clock, int(cache * _KIB**2)
    )


# By the names of `--target=cuda:NAME`.
GPUS = {
    "h200": Gpu("NVIDIA H200", _HOPPER, 151_397_597_184, 4_800_000_000_000, 132, 1.98, 50 * _KIB**2),
    "h100": Gpu("NVIDIA H100", _HOPPER, 84_942_979_072, 3_352_320_000_000, 132, 1.98, 50 * _KIB**2),
    "h100-nvl": _gpu("H100 NVL", _HOPPER, 94, 3938, 132, 1.785, 50),
    "h100-pcie": _gpu("H100 PCIe", _HOPPER, 84.9, 2039, 114, 1.755, 50),
    "gh200": _gpu("GH200 144GB", _HOPPER, 144, 4900, 132, 1.98, 50),
    "b200": _gpu("B200", _BLACKWELL, 191.5, 7672, 148, 1.965, 126),
    "gb200": _gpu("GB200", _BLACKWELL, 186, 7672, 148, 1.965, 126),
    "b300": _gpu("B300", _BLACKWELL_ULTRA, 288, 7936, 148, 1.92, 126),
    "gb300": _gpu("GB300", _BLACKWELL_ULTRA, 279, 7936, 148, 1.92, 126),
    "a100-80": _gpu("A100 80GB", _AMPERE, 84.9, 2039, 108, 1.41, 40),
    "a100-40": _gpu("A100 40GB", _AMPERE, 42.3, 1555, 108, 1.41, 40),
    "a30": _gpu("A30", _AMPERE, 24, 933, 56, 1.44, 24),
    "l40s": _gpu("L40S", _ADA, 47.5, 864, 142, 2.52, 96),
    "l40": _gpu("L40", _ADA, 47.5, 864, 142, 2.49, 96),
    "l4": _gpu("L4", _ADA, 23.5, 300, 58, 2.04, 48),
    "a40": _gpu("A40", _AMPERE_RTX, 47.5, 696, 84, 1.74, 6),
    "a10": _gpu("A10", _AMPERE_RTX, 23.5, 600, 72, 1.695, 6),
    "t4": _gpu("T4", _TURING, 15.8, 320, 40, 1.59, 4),
    "v100": _gpu("V100 32GB", _VOLTA, 33.9, 900, 80, 1.53, 6),
    "rtx-pro-6000": _gpu("RTX PRO 6000", _BLACKWELL_RTX, 96, 1792, 188, 2.6, 128),
    "rtx-5090": _gpu("GeForce RTX 5090", _BLACKWELL_RTX, 32, 1792, 170, 2.407, 96),
    "rtx-5080": _gpu("GeForce RTX 5080", _BLACKWELL_RTX, 16, 960, 84, 2.617, 64),
    "rtx-6000-ada": _gpu("RTX 6000 Ada", _ADA, 47.5, 960, 142, 2.505, 96),
    "rtx-4090": _gpu("GeForce RTX 4090", _ADA, 24, 1008, 128, 2.52, 72),
    "rtx-a6000": _gpu("RTX A6000", _AMPERE_RTX, 48, 768, 84, 1.8, 6),
    "rtx-3090": _gpu("GeForce RTX 3090", _AMPERE_RTX, 24, 936, 82, 1.695, 6),
    "gb10": _gpu("GB10", _BLACKWELL_SPARK, 128, 273, 48, 2.42, 24),
}

# The oldest compute capability that CUDA 13's assembler supports.
_OLDEST = (7, 5)


def is_too_old(gpu: Gpu) -> bool:
    """Whether CUDA 13, for which jax's plugin is built, no longer compiles for it."""
    return (gpu.generation.major, gpu.generation.minor) < _OLDEST


def describe(gpu: Gpu) -> str:
    """The GPU as the text of an XLA GpuTargetConfigProto."""
    kind = gpu.generation
    extension = " feature_extension: ACCELERATED_FEATURES" if kind.accelerated else ""
    return f"""
gpu_device_info {{
  name: "{gpu.name}"
  cuda_compute_capability {{ major: {kind.major} minor: {kind.minor}{extension} }}
  device_memory_size: {gpu.memory}
  memory_bandwidth: {gpu.bandwidth}
  device_address_bits: 64
  core_count: {gpu.cores}
  fpus_per_core: {kind.fpus}
  clock_rate_ghz: {gpu.clock}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: {kind.threads}
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {kind.shared_per_block}
  shared_memory_per_core: {kind.shared_per_core}
  l2_cache_size: {gpu.cache}
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
"""
