"""The settings of one run, made by the command line or the caller and passed down as one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from exla_opt.memory.machine import CPU, Machine

ChainCost = Literal["flops", "bytes", "both"]


@dataclass(frozen=True, slots=True)
class Options:
    """User-visible settings, shared by all passes.

    size_threshold: bytes; larger tensors are big and are split.
    split_size: bytes; the maximum size of one slice of a big tensor; the threshold when None.
    reassociate: whether a floating-point sum may be computed tile by tile.
    op_rules: sharding rules for custom calls, as (call target, rule text) pairs.
    chain_cost: what to minimise when reordering a product of matrices: operations, the bytes of its largest
    intermediate tensor, or operations unless that tensor is big.
    machine: the machine that runs the program; its memory and its run time count.
    calls_in_loops: whether a library call at the end of a loop stays in it, which may take longer and less memory.
    nested_tiles: whether a loop's tile may be larger than a slice, and be cut along another dimension in its body.
    slices_a_trip: how many slices a trip of a loop may compute.
    memory_limit: bytes; while the predicted peak is above it, tensors are recomputed. None: no tensor is.
    separates_parts: whether parts of a tensor that a loop would need together may be computed separately: where they
    are, the module is split anew.
    slices_at: overrides of split_size for the regions with an op at a given location, as (location, bytes) pairs.
    Only the search for a limit sets the last two.
    """

    size_threshold: int = 10**9
    split_size: int | None = None
    reassociate: bool = True
    op_rules: tuple[tuple[str, str], ...] = ()
    chain_cost: ChainCost = "both"
    machine: Machine = CPU
    calls_in_loops: bool = False
    nested_tiles: bool = False
    slices_a_trip: int = 1
    memory_limit: int | None = None
    separates_parts: bool = True
    slices_at: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.size_threshold < 1:
            raise ValueError("size_threshold must be at least one byte")
        if self.split_size is not None and not 1 <= self.split_size <= self.size_threshold:
            raise ValueError("split_size must be between one byte and size_threshold")

    @property
    def slice_bytes(self) -> int:
        """The maximum bytes of one slice."""
        return self.size_threshold if self.split_size is None else self.split_size

    @property
    def least_slice_bytes(self) -> int:
        """The smallest maximum in bytes that any region has for its slices."""
        return min((size for _, size in self.slices_at), default=self.slice_bytes)
