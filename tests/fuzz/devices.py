"""Constraints on how tensors are spread, and computations that are written for one device and talk to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from exla_opt.sharding.mesh import Axes, Mesh, parts
from tests.fuzz import dtypes, emit
from tests.fuzz.builder import Builder, Value
from tests.fuzz.meshes import axes_of, drawn_sharding, part_shape, spelled, whole_shape

Grow = Callable[[Builder, int], None]
# Types that XLA:CPU sums between devices.
_SENT = frozenset("f32 f64 bf16 f16 i32 i64 ui32 complex<f32>".split())
_CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>"


def spread_out(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """One of the two, where the program is for several devices."""
    rule = "on_each_device" if b.chance(0.4) else "constrained"
    made = on_each_device(b, x, grow) if rule == "on_each_device" else constrained(b, x)
    if made:
        b.kinds.add(rule)
    return made


def constrained(b: Builder, x: Value) -> list[Value]:
    """x, spread in a way that is given; at times such that no part is like the other."""
    mesh = b.mesh
    if mesh is None or not x.rank or b.in_function:
        return []
    sharding = drawn_sharding(b.rng, axes_of(mesh), x.shape, evenly=b.chance(0.7))
    more = [b.chance(0.2) for _ in x.shape]
    return [
        emit.shown(b, "sdy.sharding_constraint", [x], x.type, f"sharding = #sdy.sharding{spelled(sharding, more=more)}")
    ]


def on_each_device(b: Builder, x: Value, grow: Grow) -> list[Value]:
    """What jax.shard_map writes, over all or some axes: what one device makes of its parts and those of others."""
    mesh = b.mesh
    if mesh is None or b.in_function or b.depth:
        return []
    every = axes_of(mesh)
    manual = tuple(every) if b.chance(0.8) else tuple(every[place] for place in b.some(len(every), 1))
    given = [x, *b.rng.sample(b.pool, min(len(b.pool), b.rng.randint(0, 2)))]
    cuts = [drawn_sharding(b.rng, manual, value.shape, least=0.15) for value in given]
    inner = [
        replace(value, name=b.fresh(), shape=part_shape(value.shape, cut))
        for value, cut in zip(given, cuts, strict=True)
    ]
    talks = manual == tuple(every) or b.chance(0.3)
    with b.block(inner, isolated=True) as body:
        for _ in range(b.rng.randint(1, 2)):
            grow(b, b.rng.randint(0, 2))
            if talks:
                b.keep(*_sent(b, mesh, manual, b.rng.choice(b.pool[-4:])))
        fresh = [value for value in b.pool if value not in inner] or inner
        results = [_listed(b, value) for value in fresh[-b.rng.randint(1, 2) :]]
        outs = [drawn_sharding(b.rng, manual, value.shape, evenly=False, least=-1) for value in results]
        b.give_back(results, "sdy.return")
    kinds = [(whole_shape(value.shape, out), value.dtype) for value, out in zip(results, outs, strict=True)]
    named = ", ".join(f'"{axis.name}"' for axis in manual)
    free = len(manual) < len(every)
    attributes = ", ".join(
        f"{name} = #sdy.sharding_per_value<[{', '.join(spelled(one, more=[free] * len(one)) for one in shardings)}]>"
        for name, shardings in (("in_shardings", cuts), ("out_shardings", outs))
    )
    attributes += f", manual_axes = #sdy<manual_axes{{{named}}}>"
    names = b.op("sdy.manual_computation", given, kinds, attributes, body)
    made = [replace(value, name=name, shape=kind[0]) for value, name, kind in zip(results, names, kinds, strict=True)]
    return [value for value in made if b.fits(value.shape)]


def _listed(b: Builder, value: Value) -> Value:
    return value if value.rank else emit.reshape(b, value, (1,))


def _sent(b: Builder, mesh: Mesh, manual: Axes, x: Value) -> list[Value]:
    """What the devices along some of the axes make of x together."""
    axes = tuple(manual[place] for place in b.some(len(manual), 1))
    if x.dtype not in _SENT:
        return []
    kinds = [_all_reduce, _permute, _numbered]
    if x.rank and x.elements:
        kinds += [_all_gather, _reduce_scatter, _all_to_all]
    made = b.rng.choice(kinds)(b, mesh, axes, x)
    return [value for value in made if b.fits(value.shape)]


def _between(mesh: Mesh, axes: Axes, *, named: bool = True) -> str:
    groups = mesh.groups(axes)
    kind = f"tensor<{len(groups)}x{len(groups[0])}xi64>"
    return f"replica_groups = dense<{groups}> : {kind}, {_CHANNEL}{', use_global_device_ids' * named}"


def _all_reduce(b: Builder, mesh: Mesh, axes: Axes, x: Value) -> list[Value]:
    name = "add" if dtypes.is_complex(x.dtype) else b.rng.choice(("add", "add", "maximum", "minimum"))
    x = emit.folded(b, name, x, parts(axes))
    [made] = b.op("stablehlo.all_reduce", [x], [x.type], _between(mesh, axes), [_body(b, name, x)])
    return [emit.combined(x, name, parts(axes), 0.0, x.type, made)]


def _reduce_scatter(b: Builder, mesh: Mesh, axes: Axes, x: Value) -> list[Value]:
    dims = [dim for dim, size in enumerate(x.shape) if size and not size % parts(axes)]
    if not dims:
        return []
    dim = b.rng.choice(dims)
    x = emit.folded(b, "add", x, parts(axes))
    shape = tuple(size // parts(axes) if place == dim else size for place, size in enumerate(x.shape))
    attributes = f"scatter_dimension = {dim} : i64, {_between(mesh, axes)}"
    [made] = b.op("stablehlo.reduce_scatter", [x], [(shape, x.dtype)], attributes, [_body(b, "add", x)])
    return [emit.combined(x, "add", parts(axes), 0.0, (shape, x.dtype), made)]


def _all_gather(b: Builder, mesh: Mesh, axes: Axes, x: Value) -> list[Value]:
    dim = b.rng.randrange(x.rank)
    shape = tuple(size * parts(axes) if place == dim else size for place, size in enumerate(x.shape))
    attributes = f"all_gather_dim = {dim} : i64, {_between(mesh, axes)}"
    return [emit.shown(b, "stablehlo.all_gather", [x], (shape, x.dtype), attributes)]


def _all_to_all(b: Builder, mesh: Mesh, axes: Axes, x: Value) -> list[Value]:
    count = parts(axes)
    dims = [dim for dim, size in enumerate(x.shape) if not size % count]
    if not dims:
        return []
    split, joined = b.rng.choice(dims), b.rng.randrange(x.rank)
    shape = list(x.shape)
    shape[split] //= count
    shape[joined] *= count
    attributes = (
        f"split_dimension = {split} : i64, concat_dimension = {joined} : i64, split_count = {count} : i64, "
        + _between(mesh, axes, named=False)
    )
    return [emit.shown(b, "stablehlo.all_to_all", [x], (tuple(shape), x.dtype), attributes)]


def _permute(b: Builder, mesh: Mesh, axes: Axes, x: Value) -> list[Value]:
    """From each to the next of its group; at times the last sends nothing, and the first gets zeros."""
    pairs = [
        (group[place], group[(place + 1) % len(group)]) for group in mesh.groups(axes) for place in range(len(group))
    ]
    around = b.chance(0.7) or parts(axes) == 1
    last = {group[-1] for group in mesh.groups(axes)}
    rows = [list(pair) for pair in pairs if around or pair[0] not in last]
    attributes = f"source_target_pairs = dense<{rows}> : tensor<{len(rows)}x2xi64>, {_CHANNEL}"
    return [emit.shown(b, "stablehlo.collective_permute", [x], x.type, attributes)]


def _numbered(b: Builder, mesh: Mesh, axes: Axes, x: Value) -> list[Value]:
    """x and the number of the device."""
    [name] = b.op("stablehlo.partition_id", [], [((), "ui32")])
    number = emit.convert(b, Value(name, (), "ui32", True, True, mesh.count - 1.0), x.dtype)
    return [emit.binary(b, "add", x, emit.broadcast(b, number, x.shape, []))]


def _body(b: Builder, name: str, x: Value) -> str:
    return emit.body(b, name, x.dtype)
