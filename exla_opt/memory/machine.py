"""Machines: how each compiles ops, as data. The rest of `memory` queries a machine and knows none by name.

The rules are facts of XLA's compilers in jaxlib 0.10, except two that later releases have changed; the speeds are those
that the vendors publish, and the fractions of them that programs reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["cpu", "gpu", "tpu"]
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Machine:
    """One device and its compiler.

    name: as in `cuda:h200`. fitted: whether the memory rules were compared with its compiler; if not, figures for the
    machine are marked as unknown.

    Fusion and memory:
    longest_fused_reduction: the longest reduced dimension with which a reduce is fused with its operand; None for any.
    repeats_cheap: whether a cheap op that some reader needs in memory is recomputed by each other reader.
    cheap: ops that other machines compute once and that this one computes for each reader.
    breadth_first: whether kernels run in the order in which they become ready; otherwise in program order.
    sums_apart: whether a library sums floats, of any length, in kernels with other ops around the sums
    (`library_kernels`).
    widens: whether it multiplies narrow floats as float32, and sums bfloat16 so.
    moves: the narrow floats that it sorts, scatters, joins, and slices in loops unwidened, each with the first jaxlib
    in which it does.
    workspace: bytes that a product of matrices gets for its own use; a GPU without it multiplies with Triton.
    sorts_in_place: whether a sort overwrites its operand.
    unknown: ops, without the dialect, whose own memory is not known: figures with one of them are lower bounds. The
    same holds, on any machine, for ops without traits, except a few (`peak.py`).

    Speeds:
    flops: operations per second in products of matrices, by element type; the first is for all types not listed.
    flops_of_slow_convolutions: the same in loops for convolutions in an order for which there is no fast kernel.
    odd_features: the first jaxlib in which convolutions of an odd number of input features are as fast as others.
    vectorised: the first jaxlib in which sines are about as fast as exponentials.
    is_written: whether programs are priced as they are written (`as_written`); plans price all convolutions alike.
    any_shape: whether products of few rows or elements, as in slices, count as if at full speed.
    flops_elementwise: operations per second in everything else. bytes_per_second: to and from memory.
    cache_bytes, cache_bytes_per_second: how much of the last results is still in the cache, and its read speed.
    seconds_per_kernel, seconds_per_trip: the fixed costs of a kernel and of a loop trip.
    seconds_per_comparison: the time of a sort of n elements, divided by n log2 n.
    doubles: whether it adds and multiplies float64 at no less than half the speed of float32. A GPU stands for all of
    its kind, and most of them are 32 or 64 times slower.
    accumulates: whether the kernel of a product of matrices also adds it to the sum so far.
    full_speed_rows: products of matrices with fewer rows, columns or terms do not reach full speed; 0 if not known.
    half_speed_result: matrices of this many elements add the time of their product once more, on top of what few rows
    add, however long their sums are; 0 if not known.
    slices: the smallest and the largest bytes of a slice with which loops run well.
    """

    name: str
    kind: Kind
    fitted: bool
    longest_fused_reduction: int | None
    repeats_cheap: bool
    cheap: frozenset[str]
    breadth_first: bool
    sums_apart: bool
    widens: bool
    moves: tuple[tuple[str, tuple[int, int]], ...]
    workspace: int
    sorts_in_place: bool
    unknown: frozenset[str]
    flops: tuple[tuple[str, float], ...]
    flops_of_slow_convolutions: float
    odd_features: tuple[int, int]
    vectorised: tuple[int, int]
    flops_elementwise: float
    bytes_per_second: float
    cache_bytes: int
    cache_bytes_per_second: float
    seconds_per_kernel: float
    seconds_per_trip: float
    seconds_per_comparison: float
    doubles: bool
    accumulates: bool
    full_speed_rows: int
    half_speed_result: int
    slices: tuple[int, int]
    is_written: bool = False
    any_shape: bool = False

    def flops_of(self, dtype: str) -> float:
        """Operations a second in a product of matrices of this element type, as in `bf16`."""
        return next((speed for name, speed in self.flops if name == dtype), self.flops[0][1])


CPU = Machine(
    name="cpu",
    kind="cpu",
    fitted=True,
    longest_fused_reduction=32,
    repeats_cheap=True,
    cheap=frozenset(),
    breadth_first=True,
    sums_apart=False,
    widens=True,
    moves=(("bf16", (0, 11)),),
    workspace=0,
    sorts_in_place=True,
    unknown=frozenset("rng rng_bit_generator custom_call".split()),
    flops=(("f32", 1.5e11), ("f64", 7.5e10)),
    flops_of_slow_convolutions=4e9,
    odd_features=(0, 12),
    vectorised=(0, 12),
    flops_elementwise=4e10,
    bytes_per_second=8e9,
    cache_bytes=16 * _MIB,
    cache_bytes_per_second=1e11,
    seconds_per_kernel=2.5e-7,
    seconds_per_trip=1.25e-6,
    seconds_per_comparison=1e-8,
    doubles=True,
    accumulates=False,
    full_speed_rows=128,
    half_speed_result=2**12,
    slices=(2**18, 4 * 10**6),
)


def as_written(machine: Machine) -> Machine:
    """The machine for a program that no pass changes any more: `convolution-layout` has turned what it can."""
    return replace(machine, is_written=True)


# TensorFlow's own XLA takes longer for each trip of a loop than jaxlib's: its slices are larger. The other numbers are
# those of jaxlib's.
TENSORFLOW_CPU = replace(CPU, seconds_per_trip=3e-5, slices=(2**18, 32 * 10**6))

# Kernels that do little else reach 0.65 of the tensor cores' peak and 0.85 of the bandwidth.
_H200 = Machine(
    name="cuda:h200",
    kind="gpu",
    fitted=True,
    longest_fused_reduction=None,
    repeats_cheap=False,
    cheap=frozenset("sqrt rsqrt cbrt divide remainder gather reduce".split()),
    breadth_first=False,
    sums_apart=False,
    widens=False,
    moves=(),
    workspace=4 * _MIB,
    sorts_in_place=True,
    unknown=frozenset("cholesky convolution custom_call fft rng rng_bit_generator triangular_solve".split()),
    flops=(
        ("f32", 0.65 * 494e12),
        ("bf16", 0.65 * 989e12),
        ("f16", 0.65 * 989e12),
        ("f64", 0.65 * 67e12),
        ("f8E4M3FN", 0.65 * 1979e12),
        ("f8E5M2", 0.65 * 1979e12),
    ),
    flops_of_slow_convolutions=0.65 * 494e12,
    odd_features=(0, 0),
    vectorised=(0, 0),
    flops_elementwise=0.65 * 67e12,
    bytes_per_second=0.85 * 4.8e12,
    cache_bytes=30 * 10**6,
    cache_bytes_per_second=7e12,
    seconds_per_kernel=2.2e-6,
    seconds_per_trip=1e-6,
    seconds_per_comparison=3e-12,
    doubles=False,
    accumulates=True,
    full_speed_rows=0,
    half_speed_result=0,
    slices=(256 * 10**6, 10**9),
)
_H100 = replace(_H200, name="cuda:h100", bytes_per_second=0.85 * 3.352e12)

# Published figures of TPUs: bfloat16 product operations and bytes per second. Their compilers' rules were not compared.
_TPUS = {
    "v3": (123e12, 0.9e12),
    "v4": (275e12, 1.228e12),
    "v5e": (197e12, 0.819e12),
    "v5p": (459e12, 2.765e12),
    "v6e": (918e12, 1.64e12),
    "v7x": (2307e12, 7.37e12),
}
_USUAL_TPU = "v5e"


def _tpu(name: str, generation: str) -> Machine:
    flops, bandwidth = _TPUS[generation]
    return replace(
        _H200,
        name=name,
        kind="tpu",
        fitted=False,
        workspace=0,
        seconds_per_kernel=2.5e-6,
        seconds_per_trip=2e-6,
        flops=(("bf16", 0.65 * flops), ("f32", 0.65 * flops / 3)),
        flops_of_slow_convolutions=0.65 * flops / 3,
        odd_features=(0, 0),
        vectorised=(0, 0),
        flops_elementwise=0.65 * flops / 50,
        bytes_per_second=0.85 * bandwidth,
        cache_bytes=0,
    )


GPU = _H200


def machine_of(name: str) -> Machine:
    """The machine of a name: cpu, gpu (an H200), cuda:h100, cuda:h200, tpu, tpu:v5e and so on.

    Any other GPU, as in `cuda:PATH`, is treated as an H200. Raises ValueError for any other name.
    """
    known = {"cpu": CPU, "gpu": GPU, _H200.name: _H200, _H100.name: _H100}
    if name in known:
        return known[name]
    kind, _, rest = name.partition(":")
    if kind == "cuda":
        return GPU
    generation = rest.partition(":")[0] or _USUAL_TPU
    if kind == "tpu" and generation in _TPUS:
        return _tpu(name, generation)
    raise ValueError(f"no machine is called {name!r}: there are {', '.join([*known, 'tpu', 'tpu:v6e'])} and the like")
