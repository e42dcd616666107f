"""The settings of one run, made by the command line or the caller and handed down whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from exla_opt.memory.machine import CPU, Machine

ChainCost = Literal["flops", "bytes", "both"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the passes may know of the user's wishes.

    size_threshold: bytes; a tensor strictly above it is big and is to be split.
    split_size: bytes; the most that one slice of a big tensor may take; the threshold when None.
    reassociate: whether a floating-point sum may be computed tile by tile.
    op_rules: sharding rules for custom calls, as (call target, rule text) pairs.
    chain_cost: what the order of a product of matrices should lower: operations, the bytes of its largest intermediate
    tensor, or operations unless that tensor is big.
    machine: what the program is meant for: its memory and its time are those that count.
    calls_in_loops: whether a library's call at the end of a loop stays in it, which may take longer and less memory.
    slices_a_trip: how many slices a trip of a loop may compute.
    memory_limit: bytes; as long as a program is predicted to need more, tensors are recomputed. None: nothing is.
    slices_at: the most that one slice may take in regions with an op at some place of the program, as (place, bytes)
    pairs, in the place of split_size. Only the search for a limit asks for them.
    """

    size_threshold: int = 10**9
    split_size: int | None = None
    reassociate: bool = True
    op_rules: tuple[tuple[str, str], ...] = ()
    chain_cost: ChainCost = "both"
    machine: Machine = CPU
    calls_in_loops: bool = False
    slices_a_trip: int = 1
    memory_limit: int | None = None
    slices_at: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.size_threshold < 1:
            raise ValueError("size_threshold must be at least one byte")
        if self.split_size is not None and not 1 <= self.split_size <= self.size_threshold:
            raise ValueError("split_size must be between one byte and size_threshold")

    @property
    def slice_bytes(self) -> int:
        """The bytes that one slice may take."""
        return self.size_threshold if self.split_size is None else self.split_size

    @property
    def least_slice_bytes(self) -> int:
        """The bytes of the smallest slices that are asked for anywhere."""
        return min((size for _, size in self.slices_at), default=self.slice_bytes)
