"""Attention and its gradient on eight devices, cut into slices on each of them.

    python examples/sharded.py
    python examples/sharded.py --cut=keys --tokens=4096 -o sharded.mlir

Runs on any machine: the CPU is eight devices. With -o the module is written for the command line instead.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import exla_opt  # noqa: E402

Array = Any
HEADS, WIDTH = 8, 64
# Which dimension of queries, keys and values, [heads, tokens, width], is cut: by data, by heads as tensor parallelism
# does, or by tokens as sequence parallelism does.
CUTS = {
    "heads": (P("d"), P("d"), P("d")),
    "queries": (P(None, "d"), P(), P()),
    "keys": (P(), P(None, "d"), P(None, "d")),
}


def loss(q: Array, k: Array, v: Array) -> Array:
    """The mean square of attention."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / WIDTH**0.5
    return (jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v) ** 2).mean()


def temporaries(function: Callable[..., Any], arrays: list[Array]) -> int:
    """The bytes of temporary memory that each device needs, as XLA plans it."""
    analysis = jax.jit(function).lower(*arrays).compile().memory_analysis()
    return int(analysis.temp_size_in_bytes)


def main() -> None:
    """Write the module, or run it before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cut", choices=CUTS, default="queries")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("-o", "--output", type=Path, help="write the module, and run nothing")
    given = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
    shardings = [NamedSharding(mesh, spec) for spec in CUTS[given.cut]]
    step = jax.value_and_grad(loss, (0, 1, 2))
    shape = (HEADS, given.tokens, WIDTH)
    if given.output is not None:
        specs = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=each) for each in shardings]
        given.output.write_text(jax.export.export(jax.jit(step))(*specs).mlir_module())
        return
    rng = np.random.default_rng(0)
    arrays = [jax.device_put(rng.normal(size=shape).astype(np.float32), each) for each in shardings]
    exported = jax.export.export(jax.jit(step))(*arrays)
    smaller = exla_opt.optimize(exported, size_threshold="4MB", split_size="2MB").program.call
    before, after = jax.jit(step)(*arrays), jax.jit(smaller)(*arrays)
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-7)
        assert other.sharding.is_equivalent_to(one.sharding, one.ndim)
    figures = [temporaries(function, arrays) for function in (step, smaller)]
    print(
        "temporaries of each of 8 devices: {:,} bytes before, {:,} after; equal results, spread alike".format(*figures)
    )


if __name__ == "__main__":
    main()
