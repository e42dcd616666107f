"""Times convolutions in a loop of four trips: as they stand, after convolution-layout, and outside of a loop.

    python benchmarks/convolutions.py --times 5
    python benchmarks/convolutions.py --times 3 --random 12 --seed 1
    python benchmarks/convolutions.py --times 5 --priced 70 --seed 1

The second line draws so many convolutions of each kind and type, and prints of each kind what the pass gains; the third
compares measured times of random loops that convolve with those that the model predicts.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from ranks import rank_correlation

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.machine import CPU, as_written
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.compile import compile_program, run_program, time_programs

NCHW, NHWC, TRIPS = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), 4
CHWN, CNHW = ("CHWN", "IHWO", "HWNC"), ("CNHW", "IOHW", "CNHW")
TYPES = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True)
class Form:
    """A convolution: the shapes of the image of a trip and the kernel, the orders of their dimensions, and the rest."""

    name: str
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    orders: tuple[str, str, str]
    rest: dict[str, Any] = field(default_factory=dict)


FORMS = [
    Form("plane, features first", (4, 32, 56, 56), (64, 32, 3, 3), NCHW),
    Form("plane, features last", (4, 56, 56, 32), (3, 3, 32, 64), NHWC),
    Form("of stride 2", (4, 32, 56, 56), (64, 32, 3, 3), NCHW, {"window_strides": (2, 2)}),
    Form("kernel dilated by 2", (4, 32, 56, 56), (64, 32, 3, 3), NCHW, {"rhs_dilation": (2, 2)}),
    Form(
        "image dilated by 2", (4, 32, 28, 28), (64, 32, 3, 3), NCHW, {"padding": ((1, 2),) * 2, "lhs_dilation": (2, 2)}
    ),
    Form("three features to eight", (4, 3, 56, 56), (8, 3, 3, 3), NCHW),
    Form("two groups", (4, 32, 56, 56), (64, 16, 3, 3), NCHW, {"feature_group_count": 2}),
    Form("eight groups", (4, 64, 28, 28), (64, 8, 3, 3), NCHW, {"feature_group_count": 8}),
    Form("32 groups of 4", (4, 128, 14, 14), (128, 4, 3, 3), NCHW, {"feature_group_count": 32}),
    Form("depthwise, features first", (4, 32, 56, 56), (32, 1, 3, 3), NCHW, {"feature_group_count": 32}),
    Form("depthwise, features last", (4, 56, 56, 32), (3, 3, 1, 32), NHWC, {"feature_group_count": 32}),
    Form("groups of images", (8, 16, 28, 28), (64, 16, 3, 3), NCHW, {"batch_group_count": 2}),
    Form("line", (4, 32, 1024), (64, 32, 5), ("NCW", "OIW", "NCW"), {"window_strides": (1,)}),
    Form("space", (2, 8, 8, 24, 24), (16, 8, 3, 3, 3), ("NCDHW", "OIDHW", "NCDHW"), {"window_strides": (1,) * 3}),
    Form("gradient by the kernel", (4, 56, 56, 16), (4, 56, 56, 64), CHWN, {"padding": ((1, 1), (1, 1))}),
    Form(
        "the same, of a transposed one",
        (4, 28, 28, 32),
        (4, 56, 56, 16),
        CHWN,
        {"padding": ((2, 2),) * 2, "lhs_dilation": (2, 2)},
    ),
    Form(
        "the same, of 2 groups",
        (4, 32, 28, 28),
        (4, 64, 28, 28),
        CNHW,
        {"padding": ((1, 1),) * 2, "batch_group_count": 2},
    ),
    Form(
        "the same, depthwise",
        (4, 32, 28, 28),
        (4, 32, 28, 28),
        CNHW,
        {"padding": ((1, 1),) * 2, "batch_group_count": 32},
    ),
    Form(
        "gradient by the image, stride 2",
        (4, 64, 14, 14),
        (64, 32, 3, 3),
        ("NCHW", "IOHW", "NCHW"),
        {"padding": ((1, 2),) * 2, "lhs_dilation": (2, 2)},
    ),
]


def program_of(form: Form, dtype: str, in_loop: bool) -> str:
    """The module of a program that convolves an image in each of its steps."""
    arguments = {"window_strides": (1,) * (len(form.image) - 2), "padding": "SAME", **form.rest}

    def convolve(images: Any, weights: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            y = lax.conv_general_dilated(x, weights, dimension_numbers=form.orders, **arguments)
            return total + jnp.sum(y), y

        start = jnp.zeros((), dtype)
        if in_loop:
            return lax.scan(body, start, images)
        made = []
        for step in range(TRIPS):
            start, y = body(start, images[step])
            made.append(y)
        return start, jnp.stack(made)

    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((TRIPS, *form.image), form.kernel)]
    return str(export.export(jax.jit(convolve))(*specs).mlir_module())


def turned(text: str) -> str:
    """The module after the passes that concern it."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise", "convolution-layout", "reshape-sinker", "normalise"), Options())
        return serialise(module, "text").decode()


def seconds_of(form: Form, dtype: str, times: int) -> list[float]:
    """The seconds in a loop before and after, and outside of one."""
    before = program_of(form, dtype, True)
    programs = [compile_program(text) for text in (before, turned(before), program_of(form, dtype, False))]
    generator = np.random.default_rng(0)
    shapes = ((TRIPS, *form.image), form.kernel)
    arrays = [np.asarray(jnp.asarray(generator.standard_normal(shape), dtype)) for shape in shapes]
    for program in programs:
        run_program(program, arrays)
    return time_programs(programs, arrays, times)


def drawn(kind: str, generator: random.Random) -> Form:
    """A random convolution of a kind, of 4 to 120 million products."""
    one = generator.choice
    while True:
        batch, size, window, stride = one([1, 2, 4, 8]), one([14, 20, 28]), one([1, 3, 3, 5, 7]), one([1, 1, 2])
        ins, outs, groups = one([2, 4, 6, 12, 16, 24, 32]), one([3, 4, 8, 12, 16, 24, 32, 48]), 1
        if kind in ("groups", "gradient of groups"):
            groups = one([2, 3, 4, 8, 16, 32])
        if kind in ("depthwise", "gradient of depthwise"):
            groups, ins, outs = one([8, 16, 24, 48, 96]), 1, one([1, 1, 1, 2, 4])
        steps = size * size // (1 if kind.startswith("gradient") else stride * stride)
        work = batch * steps * window * window * groups * ins * outs
        if 4e6 < work < 1.2e8 and groups * max(ins, outs) <= 400:
            break
    rest: dict[str, Any] = {"window_strides": (stride, stride), "feature_group_count": groups}
    name = f"{kind}: {batch} images of {size}, window {window}, stride {stride}, {groups} x {ins} to {outs}"
    last = generator.random() < 0.5
    if kind.startswith("gradient"):
        rest = {"padding": ((window // 2,) * 2,) * 2, "batch_group_count": groups}
        if last:
            return Form(name, (batch, size, size, groups * ins), (batch, size, size, groups * outs), CHWN, rest)
        return Form(name, (batch, groups * ins, size, size), (batch, groups * outs, size, size), CNHW, rest)
    if kind == "line":
        rest = {"window_strides": (1,)}
        length = size * size
        return Form(name, (batch, ins, length), (outs, ins, window), ("NCW", "OIW", "NCW"), rest)
    if last and groups > 1:
        return Form(name, (batch, size, size, groups * ins), (window, window, ins, groups * outs), NHWC, rest)
    return Form(name, (batch, groups * ins, size, size), (groups * outs, ins, window, window), NCHW, rest)


KINDS = ("plain", "line", "groups", "depthwise", "gradient", "gradient of groups", "gradient of depthwise")


def random_rows(count: int, seed: str, times: int, types: Sequence[str]) -> Iterator[str]:
    """Of each kind and type the medians and the extremes of what `count` random convolutions take."""
    yield "| kind | type | before / after | least | after / outside | most |\n| --- | --- | --- | --- | --- | --- |"
    for kind in KINDS:
        for dtype in types:
            generator = random.Random(f"{kind} {dtype} {seed}")
            gains, costs = [], []
            for _ in range(count):
                form = drawn(kind, generator)
                before, after, outside = seconds_of(form, dtype, times)
                gains.append(before / after)
                costs.append(after / outside)
                if gains[-1] < 0.8 or costs[-1] > 1.25:
                    print(
                        f"  {form.name}, {dtype}: {before * 1e3:.2f} {after * 1e3:.2f} {outside * 1e3:.2f} ms",
                        flush=True,
                    )
            gain, cost = statistics.median(gains), statistics.median(costs)
            yield f"| {kind} | {dtype} | {gain:.1f} | {min(gains):.2f} | {cost:.2f} | {max(costs):.2f} |"


def wide_form(generator: random.Random) -> Form:
    """A random convolution with features last, of 1 to 300 million products."""
    one = generator.choice
    while True:
        batch, size, stride = one([1, 2, 4, 8, 16]), one([8, 14, 16, 28, 32, 56, 64, 112, 128]), one([1, 1, 1, 2])
        ins, window = one([1, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256]), one([3, 3, 3, 5, 7, 2])
        outs = one([1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256])
        read = batch * (-(-size // stride)) ** 2 * window * window * ins
        if 1e6 < read * outs < 3e8 and batch * size * size * max(ins, outs) < 2e6:
            rest = {"window_strides": (stride, stride)}
            return Form("", (batch, size, size, ins), (window, window, ins, outs), NHWC, rest)


def maxima_of(form: Form) -> str:
    """The module of a loop that convolves images and returns only the largest element of each feature."""

    def convolve(images: Any, weights: Any) -> Any:
        def largest(x: Any) -> Any:
            y = lax.conv_general_dilated(x, weights, dimension_numbers=form.orders, padding="SAME", **form.rest)
            return y.max((0, 1, 2))

        return lax.map(largest, images)

    specs = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((TRIPS, *form.image), form.kernel)]
    return str(export.export(jax.jit(convolve))(*specs).mlir_module())


def price_row(count: int, seed: str, times: int) -> str:
    """How the predicted seconds of `count` random convolutions in loops compare with the measured ones."""
    generator, predicted, measured = random.Random(seed), [], []
    for _ in range(count):
        form = wide_form(generator)
        text = maxima_of(form)
        with new_context() as context:
            module = parse_module("<program>", text.encode(), context).module
            run_pipeline(module, ("normalise",), Options())  # inlines the body of the loop
            predicted.append(read_timeline(module, as_written(CPU)).seconds)
        values = np.random.default_rng(0)
        arrays = [values.standard_normal(shape).astype("f") for shape in ((TRIPS, *form.image), form.kernel)]
        program = compile_program(text)
        run_program(program, arrays)
        [seconds] = time_programs([program], arrays, times)
        measured.append(seconds)
    off = np.log(np.array(predicted) / np.array(measured))
    ranks = rank_correlation(list(zip(predicted, measured, strict=True)))
    spread, center = np.exp([np.std(off), np.mean(off)])
    return f"{count} loops: rank correlation {ranks:.3f}, ratios {center:.2f} in the mean, off by {spread:.2f} x (sd)"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="timed runs, by turns")
    parser.add_argument("--types", default=",".join(TYPES), help="element types")
    parser.add_argument("--random", type=int, default=0, help="so many random convolutions of each kind and type")
    parser.add_argument("--priced", type=int, default=0, help="compare so many random ones with their predicted times")
    parser.add_argument("--seed", default="1", help="of the random ones")
    arguments = parser.parse_args()
    if arguments.priced:
        print(price_row(arguments.priced, arguments.seed, arguments.times))
        return
    jax.config.update("jax_enable_x64", True)
    types = arguments.types.split(",")
    if arguments.random:
        for row in random_rows(arguments.random, arguments.seed, arguments.times, types):
            print(row, flush=True)
        return
    print("| convolution | type | before, ms | after, ms | outside, ms |\n| --- | --- | --- | --- | --- |")
    for form in FORMS:
        for dtype in types:
            figures = " | ".join(f"{seconds * 1e3:.1f}" for seconds in seconds_of(form, dtype, arguments.times))
            print(f"| {form.name} | {dtype} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
