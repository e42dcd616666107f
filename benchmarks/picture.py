"""Draws memory over a program, before and after exla-opt, as predicted: python benchmarks/picture.py docs/memory.svg

The program is the gradient of a transformer of six layers, with an eighth of its temporaries as the limit.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import exla_opt  # noqa: E402
from exla_opt.ir.context import new_context  # noqa: E402
from exla_opt.ir.read import parse_module  # noqa: E402
from exla_opt.memory.machine import CPU  # noqa: E402
from exla_opt.memory.timeline import read_timeline  # noqa: E402
from exla_opt.options import Options  # noqa: E402
from exla_opt.pipeline import run_pipeline  # noqa: E402
from exla_opt.runtime.target import compiled_memory, parse_target  # noqa: E402
from exla_opt.sizes import format_size  # noqa: E402

Array = Any
LAYERS, BATCH, TOKENS, HEADS, WIDTH = 6, 2, 2048, 8, 64
LEFT, TOP, WIDE, HIGH = 70, 50, 760, 300


def loss(weights: Sequence[tuple[Array, Array]], x: Array) -> Array:
    """The mean square of what six layers of attention and a dense layer each make of x."""
    for mix, feed in weights:
        q, k, v = (x @ mix).reshape(BATCH, TOKENS, 3, HEADS, WIDTH).transpose(2, 0, 3, 1, 4)
        scores = jnp.einsum("bhqw,bhkw->bhqk", q, k) / WIDTH**0.5
        mixed = jnp.einsum("bhqk,bhkw->bqhw", jax.nn.softmax(scores), v)
        x = x + jnp.tanh(mixed.reshape(x.shape) @ feed)
    return (x**2).mean()


def memory_over(program: bytes) -> list[int]:
    """The bytes of temporary memory at each kernel of a program."""
    with new_context() as context:
        module = parse_module("program", program, context).module
        run_pipeline(module, ("normalise",), Options())
        return [point.bytes for point in read_timeline(module, CPU).points]


def area(points: Sequence[int], most: int, fill: str, edge: str) -> str:
    """The area under a curve of steps, from the first to the last point."""
    wide = WIDE / len(points)
    path = f"M{LEFT} {TOP + HIGH}"
    for place, value in enumerate(points):
        high = TOP + HIGH - HIGH * value / most
        path += f" L{LEFT + place * wide:.1f} {high:.1f} L{LEFT + (place + 1) * wide:.1f} {high:.1f}"
    return f'<path d="{path} L{LEFT + WIDE} {TOP + HIGH} Z" fill="{fill}" stroke="{edge}"/>'


def text(x: float, y: float, words: str, fill: str, anchor: str = "start", weight: int = 400) -> str:
    """A line of text."""
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    output = parser.parse_args().output
    width = HEADS * WIDTH
    weights = [tuple(jax.ShapeDtypeStruct((width, n * width), jnp.float32) for n in (3, 1))] * LAYERS
    x = jax.ShapeDtypeStruct((BATCH, TOKENS, width), jnp.float32)
    before = jax.export.export(jax.jit(jax.grad(loss)))(weights, x).mlir_module_serialized
    curves = [memory_over(before)]
    most = max(curves[0])
    # The bytes of the arguments, and of the gradients, which have the shapes of the weights.
    fixed = 4 * LAYERS * 2 * 4 * width * width + 4 * BATCH * TOKENS * width
    after = exla_opt.optimize(before, memory_limit=fixed + most // 8).program
    curves.append(memory_over(after))
    low = TOP + HIGH - HIGH * max(curves[1]) / most
    middle = LEFT + WIDE // 2
    frame = f"M{LEFT} {TOP} L{LEFT} {TOP + HIGH} L{LEFT + WIDE} {TOP + HIGH}"
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 400" font-family="system-ui" font-size="14">',
        '<rect width="860" height="400" fill="#ffffff"/>',
        text(LEFT, 28, "Temporary memory over a gradient of a transformer, on a CPU, predicted", "#0f172a", weight=600),
        area(curves[0], most, "#fecaca", "#dc2626"),
        area(curves[1], most, "#bbf7d0", "#16a34a"),
        f'<path d="{frame}" fill="none" stroke="#0f172a"/>',
        text(LEFT - 8, TOP + 10, format_size(most), "#b91c1c", "end"),
        text(LEFT - 8, low + 5, format_size(max(curves[1])), "#15803d", "end"),
        text(middle, TOP + HIGH * 0.55, "as it came: each layer keeps its scores", "#b91c1c", "middle"),
        text(middle, low - 10, "after exla-opt", "#15803d", "middle"),
        text(LEFT, TOP + HIGH + 22, "first op", "#475569"),
        text(LEFT + WIDE, TOP + HIGH + 22, "last op", "#475569", "end"),
        "</svg>",
    ]
    output.write_text("\n".join(lines) + "\n")
    compiled = [compiled_memory(program, parse_target("cpu")).memory.temp for program in (before, after)]
    for name, curve, temp in zip(("before", "after"), curves, compiled, strict=True):
        print(f"{name}: {format_size(max(curve))} predicted, {format_size(temp)} compiled")


if __name__ == "__main__":
    main()
