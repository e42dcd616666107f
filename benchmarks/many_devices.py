"""Programs for eight devices: memory, bytes sent and time before and after exla-opt; prints a Markdown table.

    python -m benchmarks.many_devices export DIRECTORY [--big] [--platform=cuda]
    python -m benchmarks.many_devices measure DIRECTORY                        # on a CPU that stands for eight devices
    python -m benchmarks.many_devices measure DIRECTORY --target=cuda:h200     # compiled for eight, not run

The limit of each is its arguments and results and a part of its temporary memory (--of-temp) on one device. Programs of
middle size are run and compared; those of --big are only compiled. `max` is the largest error of a result over what
exla-run allows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from exla_opt.sizes import format_size
from tests.sharded import stencils
from tests.sharded.program import DEVICES, Array, Program, grid, line, spec
from tests.sharded.programs import (
    attention,
    block,
    classifier,
    constrained,
    cross_entropy,
    gathered,
    heads,
    layers,
    mean_square,
    ring_attention,
    scanned,
    sparse_process,
    squared,
)

# More memory than any device has, in bytes: whether a program fits its device is not the question.
_ANY = 10**15


def programs(big: bool) -> dict[str, Program]:
    """The programs by name, at a size that a CPU runs in seconds or at one that fills a GPU."""
    n = 4 if big else 1
    one, two = line(), grid()
    on = partial(spec, one)
    words, half = partial(on, dtype=jnp.int32), partial(on, dtype=jnp.bfloat16)
    size = 262144 if big else 16384
    attended = [on((512, 8, 64))] * 3 + [on((8, 64, 512))]
    matrices = [on((512 * n, 512 * n), "d")] * 6
    rows = on((65536 * n, 512 * n), "d")
    cut = (on((8, 4096 * n, 64), None, "d"), on((8, 4096 * n, 64)), on((8, 4096 * n, 64)))
    long = (on((16384 * n, 64), "d"),) * 3
    wide = spec(line(AxisType.Explicit), (16384 * n, 3), "d"), spec(line(AxisType.Explicit), (16384 * n, 3))

    def total(function: Callable[..., Array], *arguments: Array) -> Array:
        return (function(*arguments) ** 2).sum()

    def kernel(x: Array, y: Array, v: Array) -> Array:
        return jnp.exp(-squared(x, y)) @ v

    def nearest(points: Array, queries: Array) -> Any:
        return lax.top_k(2 * queries @ points.T - (points**2).sum(1), 10)

    def of_one_head(q: Array, k: Array, v: Array) -> Array:
        return jax.nn.softmax(jnp.einsum("qd,kd->qk", q, k) / 8, -1) @ v

    def by_heads(q: Array, k: Array, v: Array) -> Array:
        """Attention of tensors that are cut along the sequence, computed with the heads cut."""
        fixed = partial(lax.with_sharding_constraint, shardings=NamedSharding(one, P("d")))
        return lax.with_sharding_constraint(attention(fixed(q), fixed(k), fixed(v)), NamedSharding(one, P(None, "d")))

    def by_words(weights: Array, x: Array, labels: Array) -> Array:
        """Logits that are cut along a vocabulary which eight devices do not divide."""
        logits = lax.with_sharding_constraint(x @ weights, NamedSharding(one, P(None, "d")))
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1).mean()

    def dropped(key: Array, x: Array, w: Array) -> Array:
        kept = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, (x.shape[0], w.shape[1]))
        return jnp.where(kept, jnp.tanh(x @ w), 0).sum(0)

    def experts(gates: Array, into: Array, out: Array, x: Array) -> Array:
        chosen = jax.nn.softmax(x @ gates)
        hidden = jax.nn.gelu(jnp.einsum("td,edh->teh", x, into))
        return (jnp.einsum("teh,ehd,te->td", hidden, out, chosen) ** 2).mean()

    def flow(state: tuple[Array, ...]) -> tuple[Array, ...]:
        """A step of the shallow water equations on a grid without edges."""
        h, u, v = state

        def slope(x: Array, dim: int) -> Array:
            return (jnp.roll(x, -1, dim) - jnp.roll(x, 1, dim)) / 2

        return (
            h - 0.01 * (slope(h * u, 0) + slope(h * v, 1)),
            u - 0.01 * (u * slope(u, 0) + v * slope(u, 1) + slope(h, 0)),
            v - 0.01 * (u * slope(v, 0) + v * slope(v, 1) + slope(h, 1)),
        )

    def flowing(h: Array, u: Array, v: Array) -> Array:
        state, _ = lax.scan(lambda state, _: (flow(state), None), (h, u, v), None, length=12)
        return sum((each**2).sum() for each in state)

    def diffusing(u: Array) -> Array:
        for _ in range(4):
            u = stencils.heat(u)
        return (u**2).sum()

    def of_each(x: Array) -> Array:
        return jax.pmap(lambda x: jnp.exp(jnp.sin(x[:, None]) - jnp.cos(x[None])).max(1))(x)

    return {
        "attention layer, batch, gradient": Program(
            jax.grad(partial(mean_square, heads)), (attended, on((16, 1024 * n, 512), "d"))
        ),
        "block, batch and heads, gradient": Program(
            jax.value_and_grad(partial(mean_square, block)),
            (
                [
                    [spec(two, (512, 8, 64), None, "m")] * 3 + [spec(two, (8, 64, 512), "m")],
                    spec(two, (512, 2048), None, "m"),
                    spec(two, (2048, 512), "m"),
                ],
                spec(two, (8, 1024 * n, 512), "d"),
            ),
        ),
        "attention, queries, gradient": Program(jax.grad(partial(total, attention), (0, 1, 2)), cut),
        "attention, keys": Program(attention, (cut[1], cut[0], cut[0])),
        "attention, long keys in bf16": Program(of_one_head, (half((size, 64)), *[half((size, 64), "d")] * 2)),
        "attention, sequence to heads": Program(by_heads, (cut[0],) * 3),
        "layers, fully sharded, step": Program(constrained, (matrices, rows), options={"donate_argnums": 0}),
        "layers, data parallel, gradient": Program(jax.grad(layers), ([on((512, 512))] * 6, on((65536 * n, 512), "d"))),
        "kernel times vector": Program(kernel, (on((16384 * n, 3), "d"), on((16384 * n, 3)), on((16384 * n,)))),
        "kernel, explicit axes": Program(lambda x, y: kernel(x, y, jnp.ones(y.shape[0])), wide),
        "neighbours, points": Program(nearest, (on((131072 * n, 32), "d"), on((1024 * n, 32)))),
        "neighbours, queries": Program(nearest, (on((32768 * n, 32)), on((8192 * n, 32), "d"))),
        "sparse process, gradient": Program(
            jax.value_and_grad(sparse_process, (0, 1)),
            (on((128 * n, 3)), on((65536 * n, 3), "d"), on((65536 * n,), "d")),
        ),
        "cross entropy, batch, gradient": Program(
            jax.value_and_grad(cross_entropy, (0, 1)),
            (on((256, 8000 * n)), on((16384 * n, 256), "d"), words((16384 * n,), "d")),
        ),
        "cross entropy, vocabulary, gradient": Program(
            jax.value_and_grad(cross_entropy, (0, 1)),
            (on((256, 32000 * n), None, "d"), on((4096 * n, 256)), words((4096 * n,))),
        ),
        "cross entropy, uneven vocabulary": Program(
            by_words,
            (on((256, 32003 * n)), on((4096 * n, 256)), words((4096 * n,))),
        ),
        "ring attention": Program(ring_attention, (on((16384 * n, 64), "d"),) * 3),
        "ring attention, gradient": Program(jax.grad(partial(total, ring_attention), (0, 1, 2)), long),
        "shard_map, gradient": Program(
            jax.grad(partial(total, gathered)), (on((128 * n, 128 * n), "d"), on((8192 * n, 128 * n), "d"))
        ),
        "pmap": Program(of_each, (on((8, 4096 * n), "d"),)),
        "scan, batch, gradient": Program(jax.grad(scanned), (on((12, 256 * n, 256 * n)), on((32768, 256 * n), "d"))),
        "scan, weights, gradient": Program(
            jax.grad(scanned), (on((12, 256 * n, 256 * n), None, None, "d"), on((16384, 256 * n)))
        ),
        "dropout": Program(dropped, (on((2,), dtype=jnp.uint32), on((16384 * n, 256), "d"), on((256, 2048 * n)))),
        "experts": Program(
            jax.grad(experts, (0, 1, 2)),
            (
                on((256, 16)),
                on((16, 256, 1024), "d"),
                on((16, 1024, 256), "d"),
                on((4096 * n, 256)),
            ),
        ),
        "diffusion, gradient": Program(jax.grad(diffusing), (on((2048 * n, 2048), "d"),)),
        "flow, gradient": Program(jax.grad(flowing, (0, 1, 2)), (on((1024 * n, 1024), "d"),) * 3),
        "differences, wide, gradient": Program(jax.value_and_grad(stencils.energy), (on((4096 * n, 256), "d"),)),
        "next tokens, gradient": Program(
            jax.value_and_grad(stencils.next_tokens, (0, 1)),
            (on((256, 8000)), on((2, 4096 * n, 256), None, "d"), words((2, 4096 * n), None, "d")),
        ),
        "two views, gradient": Program(
            jax.value_and_grad(stencils.two_views, (0, 1)),
            (on((256, 256)), on((4096 * n, 256), "d"), on((4096 * n, 256), "d")),
        ),
        "images, rows, gradient": Program(
            jax.grad(classifier, (0, 1)),
            (on((4, 1024 * n, 256 * n, 8), None, "d"), on((3, 3, 16, 16)), on((3, 3, 8, 16))),
        ),
        "images, batch, gradient": Program(
            jax.grad(classifier, (1, 2)), (on((64, 256 * n, 64, 8), "d"), on((3, 3, 16, 16)), on((3, 3, 8, 16)))
        ),
    }


def main() -> None:
    """Export the programs, or measure those of a directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["export", "measure"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--big", action="store_true", help="export at sizes that fill a GPU")
    parser.add_argument("--platform", choices=["cpu", "cuda"], default="cpu", help="that the export is for [cpu]")
    parser.add_argument("--pattern", default="*.mlir", help="glob of the files to measure [*.mlir]")
    parser.add_argument("--of-temp", type=float, default=0.125, help="the limit's part of temporary memory [0.125]")
    parser.add_argument("--target", help="as for exla-opt; without, the programs are compiled for a CPU")
    parser.add_argument("--no-run", action="store_true", help="only compile")
    arguments = parser.parse_args()
    if arguments.command == "export":
        export(arguments.directory, arguments.big, arguments.platform)
        return
    print("| program | temp | limit of temp | temp after | ÷ | sent before | sent | of it in loops | time | max | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for path in sorted(arguments.directory.glob(arguments.pattern)):
        print(f"| {path.stem} | {' | '.join(measured(path, arguments))} |", flush=True)


def export(directory: Path, big: bool, platform: str) -> None:
    """Write each program to a file of its name."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    directory.mkdir(parents=True, exist_ok=True)
    for name, program in programs(big).items():
        jitted = jax.jit(program.function, **program.options)
        exported = jax.export.export(jitted, platforms=[platform])(*program.arguments)
        (directory / f"{name}.mlir").write_bytes(exported.mlir_module_serialized)


def measured(path: Path, arguments: argparse.Namespace) -> list[str]:
    """The cells of a row, or what stopped it."""
    runs = not arguments.no_run and arguments.target is None
    compiling = ["--no-run"] if arguments.target is None else [f"--target={arguments.target}", f"--limit={_ANY}"]
    with tempfile.TemporaryDirectory() as folder:
        figures, after = Path(folder, "figures.json"), Path(folder, "after.mlir")
        if problem := _failure("exla-run", path, *compiling, f"--json={figures}"):
            return [problem]
        before = json.loads(figures.read_text())["modules"][0]
        room = int(arguments.of_temp * before["temp_bytes"])
        limit = before["peak_bytes"] - before["temp_bytes"] + room
        start = time.perf_counter()
        target = [] if arguments.target is None else [f"--target={arguments.target}"]
        if problem := _failure("exla-opt", path, f"--memory-limit={limit}", *target, "-o", after, "--quiet"):
            return [problem]
        seconds = time.perf_counter() - start
        compare = ["--repeat=3"] if runs else compiling
        if problem := _failure("exla-run", after, f"--compare={path}", *compare, f"--json={figures}"):
            return [problem]
        found = json.loads(figures.read_text())
    new, old = found["modules"]
    sizes = [format_size(each) for each in (old["temp_bytes"], room, new["temp_bytes"])]
    sent = [format_size(each["sent_bytes"]) for each in (old, new)] + [format_size(new["sent_in_loops_bytes"])]
    return [
        *sizes,
        f"{old['temp_bytes'] / max(new['temp_bytes'], 1):.1f}",
        *sent,
        _time_ratio(new, old),
        f"{max(_of_allowed(one) for one in found['results']):.2g}" if runs else "",
        f"{seconds:.1f}",
    ]


def _of_allowed(result: dict[str, Any]) -> float:
    """A result's largest error over what is allowed."""
    return float("inf") if not result["passed"] else result["max_abs_error"] / (result["allowed_abs_error"] or 1)


def _time_ratio(new: dict[str, Any], old: dict[str, Any]) -> str:
    """The time after over the time before, estimated for a GPU and measured on a CPU; "" if not known."""
    after, before = _seconds(new), _seconds(old)
    return f"{after / before:.2f} ×" if after and before else ""


def _seconds(figures: dict[str, Any]) -> float | None:
    seconds: float | None = (figures.get("estimated") or figures).get("seconds")
    return seconds


def _failure(command: str, *arguments: object) -> str:
    """What went wrong, in one line; "" if nothing did."""
    tool = Path(sys.executable).with_name(command)
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode in (0, 3):
        return ""
    return (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1][:100]


if __name__ == "__main__":
    main()
