"""`exla_opt.jit`, and a rewritten Exported, on arrays spread over 8 host devices: in a process of its own, which has them."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BEGIN = """
import jax, jax.numpy as jnp, numpy as np
from functools import partial
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import exla_opt
jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
def attention(q, k, v):
    return jax.nn.softmax(q @ k.T / 3, axis=-1) @ v
def loss(call):
    return lambda *given: jnp.sum(call(*given) ** 2)
values = [np.random.default_rng(seed).normal(size=(512, 8)).astype("float32") for seed in range(3)]
rows = [jax.device_put(value, NamedSharding(mesh, P("d"))) for value in values]
ones = [jnp.asarray(value) for value in values]
sliced = partial(exla_opt.jit, size_threshold="64KB", split_size="32KB")
def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        assert a.sharding.is_equivalent_to(b.sharding, a.ndim), (a.sharding, b.sharding)
def temp(jitted, *given):
    return jitted.lower(*given).compile().memory_analysis().temp_size_in_bytes
"""

_CASES = {
    "values": """
split, plain = sliced(attention), jax.jit(attention)
same(split(*rows), plain(*rows))
same(split(*ones), plain(*ones))
assert temp(split, *rows) < temp(plain, *rows) / 2
""",
    "gradients inside": """
step = jax.value_and_grad(loss(attention), (0, 1, 2))
split, plain = sliced(step), jax.jit(step)
same(split(*rows), plain(*rows))
assert temp(split, *rows) < temp(plain, *rows) / 2
""",
    "gradients outside": """
found, wanted = (jax.grad(loss(call))(*rows) for call in (sliced(attention), attention))
np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)  # spread as Shardy likes: see docs/jax.md
""",
    "a mesh that only the function names": """
def spread(q, k, v):
    return jax.shard_map(attention, mesh=mesh, in_specs=(P("d"), P(), P()), out_specs=P("d"))(q, k, v)
same(sliced(spread)(*values), jax.jit(spread)(*values))
same(sliced(loss(spread))(*values), jax.jit(loss(spread))(*values))
same(jax.grad(sliced(loss(spread)))(*values), jax.grad(jax.jit(loss(spread)))(*values))
""",
    "gradients outside, with explicit shardings": """
explicit = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Explicit,))
def squares(x):
    return jnp.sum(jnp.sin(x[:, :1] * x) ** 2)
with jax.set_mesh(explicit):
    given = jax.device_put(values[0], NamedSharding(explicit, P("d")))
    same(jax.grad(sliced(squares))(given), jax.grad(jax.jit(squares))(given))
""",
    "a limit": """
rows = [jax.device_put(np.tile(value, (4, 1)), NamedSharding(mesh, P("d"))) for value in values]
split, plain = exla_opt.jit(attention, memory_limit="1MB"), jax.jit(attention)
same(split(*rows), plain(*rows))
assert temp(split, *rows) < temp(plain, *rows) / 2
""",
    "shardings of jax.jit": """
cut = NamedSharding(mesh, P("d"))
split = sliced(attention, in_shardings=(cut,) * 3, out_shardings=cut)
same(split(*ones), jax.jit(attention, in_shardings=(cut,) * 3, out_shardings=cut)(*ones))
""",
    "no more is sent": """
def symmetric(x):
    return jnp.sum(jax.nn.softmax(x @ x.T) @ x)
whole = np.random.default_rng(0).normal(size=(2048, 64)).astype("float32")
cut = jax.device_put(whole, NamedSharding(mesh, P("d")))
split, plain = exla_opt.jit(jax.grad(symmetric), size_threshold="1MB", split_size="500KB"), jax.jit(jax.grad(symmetric))
same(split(cut), plain(cut))
codes = [remark.code for remark in split.explain(cut)]
assert "EX312" in codes and "EX104" not in codes
assert temp(split, cut) == temp(plain, cut)
""",
    "one program for each way": """
traced = []
def counted(q, k, v):
    traced.append(None)
    return attention(q, k, v)
grid = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
ways = P(("b", "a")), P(None, "b"), P("a")
both = [jax.device_put(value, NamedSharding(grid, way)) for value, way in zip(values, ways, strict=True)]
split, plain = sliced(counted), jax.jit(attention)
wanted = [plain(*given) for given in (rows, ones, both)]
for _ in range(2):
    for given, expected in zip((rows, ones, both), wanted, strict=True):
        same(split(*given), expected)
same(split(*rows), wanted[0])
assert len(traced) == 3, traced
assert len({split.lower(*given).as_text() for given in (rows, ones, both)}) == 3
""",
    "an Exported": """
plain = jax.jit(attention)
given = jax.export.export(plain)(*rows)
split = exla_opt.optimize(given, size_threshold="64KB", split_size="32KB").program
same(split.call(*rows), plain(*rows))
same(jax.jit(split.call)(*rows), plain(*rows))
assert split.nr_devices == 8 and split.in_shardings_hlo == given.in_shardings_hlo
assert temp(jax.jit(split.call), *rows) < temp(plain, *rows) / 2
found, wanted = (jax.jit(jax.grad(loss(call), (0, 1, 2)))(*rows) for call in (split.call, attention))
for one, other in zip(found, wanted, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
""",
    "a mesh of one": """
first = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices()[3:4])
ones = [jax.device_put(value, NamedSharding(first, P("d"))) for value in values]
same(sliced(attention)(*ones), jax.jit(attention)(*ones))
assert temp(sliced(attention), *ones) < temp(jax.jit(attention), *ones) / 2
""",
    "inside of shard_map": """
def each(q, k, v):
    return sliced(attention)(q, k, v)
given = dict(mesh=mesh, in_specs=(P("d"), P(), P()), out_specs=P("d"))
plain = jax.jit(jax.shard_map(attention, **given))
same(jax.jit(jax.shard_map(each, **given, check_vma=False))(*ones), plain(*ones))
""",
}


@pytest.mark.parametrize("case", _CASES)
def test_it_does_as_jax_jit_does(case: str) -> None:
    done = subprocess.run([sys.executable, "-c", _BEGIN + _CASES[case]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
