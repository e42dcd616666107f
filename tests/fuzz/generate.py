"""A random program from (seed, index): patterns that the passes look for, in random surroundings."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES
from tests.fuzz import dtypes, emit
from tests.fuzz.algebra import ALGEBRA
from tests.fuzz.builder import Argument, Builder, Value
from tests.fuzz.contractions import CONTRACTIONS
from tests.fuzz.control import CONTROL
from tests.fuzz.devices import spread_out
from tests.fuzz.distances import DISTANCES
from tests.fuzz.indexing import INDEXING
from tests.fuzz.maps import MAPS
from tests.fuzz.meshes import drawn_mesh
from tests.fuzz.movements import MOVEMENTS
from tests.fuzz.ordering import ORDERING
from tests.fuzz.reductions import REDUCTIONS, reduced
from tests.fuzz.sources import make
from tests.fuzz.stencils import STENCILS
from tests.fuzz.steps import STEPS

Rule = Callable[[Builder, Value], list[Value]]
Weighted = Sequence[tuple[Rule, float]]

# How often an op is taken from each family.
FAMILIES: tuple[tuple[str, Weighted, float], ...] = (
    ("maps", MAPS, 8),
    ("movements", MOVEMENTS, 4),
    ("reductions", REDUCTIONS, 5),
    ("contractions", CONTRACTIONS, 3),
    ("distances", DISTANCES, 1.5),
    ("indexing", INDEXING, 2),
    ("ordering", ORDERING, 1),
    ("algebra", ALGEBRA, 0.4),
    ("stencils", STENCILS, 0.8),
)
_DTYPES = (
    ("f32", 10),
    ("f64", 4),
    ("bf16", 2),
    ("f16", 2),
    ("i32", 3),
    ("i64", 1),
    ("i8", 1),
    ("ui8", 1),
    ("ui32", 1),
    ("i16", 0.5),
    ("i1", 0.7),
    ("complex<f32>", 1.5),
    ("complex<f64>", 0.7),
    ("f8E4M3FN", 0.5),
    ("f8E5M2", 0.5),
    ("i4", 0.4),
)
# XLA chooses by the shape how it computes these: their slices may be rounded otherwise.
_CHOSEN_BY_SHAPE = ("dot", "einsum", "convolution", "fft", "cholesky", "triangular_solve", "batch_norm")
_SIZES = (2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 24, 29, 32, 37, 48, 61)
# Of programs for eight devices: most of them divide.
_SIZES_ON_DEVICES = (1, 3, 4, 5, 8, 8, 12, 16, 16, 24, 24, 32, 40, 48, 64)
REWRITES = tuple(dict.fromkeys(name for name in DEFAULT_PASSES if name != "normalise"))


@dataclass(frozen=True, slots=True)
class Program:
    """One generated program and the settings to rewrite it by.

    reads_bits: whether it reads the bits of floats, so that it has no counterpart in float64.
    exact: of each result, whether it must be equal bit by bit.
    in_order: whether all must be, as long as the order of its sums stays: nothing is rounded otherwise in slices.
    """

    seed: int
    index: int
    text: str
    reads_bits: bool
    arguments: tuple[Argument, ...]
    exact: tuple[bool, ...]
    in_order: bool
    special: bool
    options: Options
    passes: tuple[str, ...]
    kinds: frozenset[str]
    devices: int = 1


def generate(seed: int, index: int, devices: int = 1) -> Program:
    """The program of this number, for one device or eight."""
    narrow, results = _write(seed, index, devices)
    text = narrow.module(results)
    # The settings are drawn apart, so that they stay when a rule of generation changes.
    options, passes = settings(random.Random(f"settings {seed} {index}"))
    in_order = (
        devices == 1 and not options.reassociate and not any(f"stablehlo.{name}" in text for name in _CHOSEN_BY_SHAPE)
    )
    return Program(
        seed,
        index,
        text,
        narrow.bits_are_read,
        tuple(narrow.arguments),
        tuple(value.exact for value in results),
        in_order,
        narrow.special,
        options,
        passes,
        frozenset(narrow.kinds),
        devices,
    )


def text_with(program: Program, floats: str) -> str:
    """The same program with every float as f64, or as f32; "" where it has no such counterpart."""
    if program.reads_bits:
        return ""
    b, results = _write(program.seed, program.index, program.devices, floats)
    return b.module(results)


def settings(rng: random.Random) -> tuple[Options, tuple[str, ...]]:
    """Tiny sizes, mostly the default passes, else one alone, and at times a limit that makes all be recomputed."""
    threshold = rng.choice((64, 128, 256, 256, 512, 512, 1000, 1000, 2048, 2048, 4096))
    split = rng.choice((None, threshold, threshold // 2, threshold // 4, max(threshold // 16, 16)))
    options = Options(
        size_threshold=threshold,
        split_size=split,
        reassociate=rng.random() > 0.15,
        chain_cost=rng.choice(("both", "both", "both", "flops", "bytes")),
    )
    passes = DEFAULT_PASSES if rng.random() < 0.7 else ("normalise", rng.choice(REWRITES))
    if "recompute" in passes and rng.random() < 0.4:
        options = replace(options, memory_limit=1)
    return replace(options, nested_tiles=rng.random() < 0.3), passes


def _write(seed: int, index: int, devices: int, floats: str = "") -> tuple[Builder, list[Value]]:
    rng = random.Random(f"program {seed} {index}" + (f" on {devices}" if devices > 1 else ""))
    [dtype] = rng.choices([name for name, _ in _DTYPES], [weight for _, weight in _DTYPES])
    sizes = rng.sample(_SIZES if devices == 1 else _SIZES_ON_DEVICES, rng.randint(2, 4))
    if rng.random() < 0.06:
        sizes = [rng.choice((2, 3, 5)), rng.choice((211, 307))]  # long and thin
    if rng.random() < 0.25:
        sizes.append(1)
    if rng.random() < 0.04:
        sizes.append(0)
    b = Builder(
        rng=rng,
        prefix=f"p{index}",
        dtype=dtype,
        sizes=sizes,
        whole_numbers=rng.random() < 0.55,
        special=rng.random() < 0.2 and dtypes.is_float(dtype) and not dtype.startswith("f8"),
        floats=floats,
        mesh=drawn_mesh(rng) if devices > 1 else None,
    )
    for _ in range(rng.choice((1, 1, 2))):
        shape = b.shape(rng.choice((1, 2, 2, 2, 3, 3, 4)))
        b.keep(b.argument(shape, dtype) if b.chance(0.15) else make(b, shape, dtype))
    grow(b, rng.randint(2, 8))
    results = _results(b)
    for argument in b.arguments:
        if (made := _updated(b, argument.value)) is not None:
            b.donated[argument.value.name] = len(results)
            results.append(made)
    return b, results


def _updated(b: Builder, x: Value) -> Value | None:
    """An argument and something of its type that is subtracted from it, sometimes what another one became."""
    like = [value for value in b.pool if value.type == x.type and value.name != x.name]
    if not like or x.dtype == "i1" or b.chance(0.3):
        return None
    made = emit.binary(b, "subtract", x, like[-1] if b.chance(0.5) else b.rng.choice(like))
    b.keep(made)
    b.kinds.add("updated")
    return made


def grow(b: Builder, steps: int) -> None:
    """Add ops that read what is there."""
    if not b.pool:
        b.keep(make(b, b.shape(2), b.dtype))
    for _ in range(steps):
        x = _picked(b)
        if b.depth < 2 and b.chance(0.06):
            blocks = CONTROL + STEPS
            [build] = b.rng.choices([rule for rule, _ in blocks], [weight for _, weight in blocks])
            b.keep(*build(b, x, grow))
            b.kinds.add(build.__name__)
            continue
        if b.mesh is not None and b.chance(0.3):
            b.keep(*spread_out(b, x, grow))
            continue
        [rules] = b.rng.choices([rules for _, rules, _ in FAMILIES], [weight for _, _, weight in FAMILIES])
        [rule] = b.rng.choices([rule for rule, _ in rules], [weight for _, weight in rules])
        made = rule(b, x)
        if made:
            b.kinds.add(rule.__name__)
        b.keep(*[value for value in made if b.fits(value.shape)])


def _picked(b: Builder) -> Value:
    """A value to go on from: mostly a late one, mostly a big one."""
    candidates = b.pool[-5:] if b.chance(0.7) else b.pool
    if b.chance(0.6):
        return max(candidates, key=lambda value: value.bytes)
    return b.rng.choice(candidates)


def _results(b: Builder) -> list[Value]:
    """What nobody reads, mostly reduced where it is big, and sometimes something that others read as well."""
    used = "\n".join(b.lines)
    results: list[Value] = []
    for value in b.pool:
        last = f"({value.name}," not in used and f" {value.name}," not in used and f"{value.name})" not in used
        if not last and not b.chance(0.08):
            continue
        if value.rank and value.elements > 16 and b.chance(0.75):
            made = reduced(b, value) if b.chance(0.8) else [emit.reduce(b, value, _sum(value), range(value.rank))]
            results += made
            if b.chance(0.1):
                results.append(value)
        else:
            results.append(value)
    return results[:6] or [b.pool[-1]]


def _sum(value: Value) -> str:
    return "or" if value.dtype == "i1" else "add"
