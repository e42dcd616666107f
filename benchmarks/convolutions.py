"""Times convolutions in a loop of four trips: as they stand, and after the pass convolution-layout.

python benchmarks/convolutions.py --times 5
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import run_pipeline
from exla_opt.runtime.compile import compile_program, run_program, time_programs

NCHW, TRIPS = ("NCHW", "OIHW", "NCHW"), 4
CHWN = ("CHWN", "IHWO", "HWNC")
# A name, the shapes of the image of a trip and the kernel, the orders of their dimensions, and the rest.
FORMS: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[str, str, str], dict[str, Any]]] = [
    ("plane, features first", (4, 32, 56, 56), (64, 32, 3, 3), NCHW, {"padding": "SAME"}),
    ("plane, features last", (4, 56, 56, 32), (3, 3, 32, 64), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME"}),
    ("of stride 2", (4, 32, 56, 56), (64, 32, 3, 3), NCHW, {"padding": "SAME", "window_strides": (2, 2)}),
    ("kernel dilated by 2", (4, 32, 56, 56), (64, 32, 3, 3), NCHW, {"padding": "SAME", "rhs_dilation": (2, 2)}),
    ("image dilated by 2", (4, 32, 28, 28), (64, 32, 3, 3), NCHW, {"padding": ((1, 2),) * 2, "lhs_dilation": (2, 2)}),
    ("three features to eight", (4, 3, 56, 56), (8, 3, 3, 3), NCHW, {"padding": "SAME"}),
    ("depthwise", (4, 32, 56, 56), (32, 1, 3, 3), NCHW, {"padding": "SAME", "feature_group_count": 32}),
    ("line", (4, 64, 4096), (64, 64, 5), ("NCW", "OIW", "NCW"), {"padding": "SAME", "window_strides": (1,)}),
    (
        "space",
        (2, 8, 16, 32, 32),
        (16, 8, 3, 3, 3),
        ("NCDHW", "OIDHW", "NCDHW"),
        {"padding": "SAME", "window_strides": (1,) * 3},
    ),
    ("gradient by the kernel", (4, 56, 56, 16), (4, 56, 56, 64), CHWN, {"padding": ((1, 1), (1, 1))}),
]


def looped(image: Any, kernel: Any, orders: Any, rest: dict[str, Any]) -> str:
    """The module of a scan that convolves an image in each step."""
    arguments = {"window_strides": (1, 1), **rest}

    def convolve(images: Any, weights: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            y = lax.conv_general_dilated(x, weights, dimension_numbers=orders, **arguments)
            return total + jnp.sum(y), y

        return lax.scan(body, jnp.float32(0), images)

    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((TRIPS, *image), kernel)]
    return str(export.export(jax.jit(convolve))(*specs).mlir_module())


def turned(text: str) -> str:
    """The module after the passes that concern it."""
    with new_context() as context:
        module = parse_module("<program>", text.encode(), context).module
        run_pipeline(module, ("normalise", "convolution-layout", "reshape-sinker", "normalise"), Options())
        return serialise(module, "text").decode()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="timed runs, by turns")
    times = parser.parse_args().times
    generator = np.random.default_rng(0)
    print("| convolution | before, ms | after, ms |\n| --- | --- | --- |")
    for name, image, kernel, orders, rest in FORMS:
        before = looped(image, kernel, orders, rest)
        programs = [compile_program(text) for text in (before, turned(before))]
        arrays = [generator.standard_normal(shape, np.float32) for shape in ((TRIPS, *image), kernel)]
        for program in programs:
            run_program(program, arrays)
        first, second = time_programs(programs, arrays, times)
        print(f"| {name} | {first * 1e3:.1f} | {second * 1e3:.1f} |", flush=True)


if __name__ == "__main__":
    main()
