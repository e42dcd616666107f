"""Time of exla-opt over the number of ops: stacks of transformer layers, written here as text; prints a Markdown table.

    python benchmarks/scaling.py --layers 20 200 2000
    python benchmarks/scaling.py --returned 1000 10000                # chains of which every step is a result
    python benchmarks/scaling.py --layers 200 --write layers.mlir     # only write the module

Each layer has 8 heads of attention over 4,096 positions, whose scores take 537 MB. The first threshold splits all of
them, the second none. A step of a chain takes 67 MB and must stay, which the splitter has to find out for each. Seconds
are the processor's, so that what else runs on the machine counts little; the memory is the most that the process held.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_HEADS, _LENGTH, _WIDTH, _HIDDEN = 8, 4096, 512, 2048
_DEPTH = _WIDTH // _HEADS
_THRESHOLDS = ("100MB", "100GB")
_CHAIN_THRESHOLDS = ("10MB", "100GB")

_X = f"{_LENGTH}x{_WIDTH}"
_H = f"{_LENGTH}x{_HIDDEN}"
_PARTED = f"{_LENGTH}x{_HEADS}x{_DEPTH}"
_SCORES = f"{_HEADS}x{_LENGTH}x{_LENGTH}"
_ROWS = f"{_HEADS}x{_LENGTH}"

# The weights of one layer: name and shape.
_WEIGHTS = {
    "scale": f"{_WIDTH}",
    "shift": f"{_WIDTH}",
    "query": f"{_WIDTH}x{_WIDTH}",
    "key": f"{_WIDTH}x{_WIDTH}",
    "value": f"{_WIDTH}x{_WIDTH}",
    "out": f"{_WIDTH}x{_WIDTH}",
    "up": f"{_WIDTH}x{_HIDDEN}",
    "down": f"{_HIDDEN}x{_WIDTH}",
}


def main() -> None:
    """Print a row for every number of layers, or write one module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[20, 200, 2000], help="how many, a row each")
    parser.add_argument("--returned", type=int, nargs="+", help="print chains of so many steps, a row each, instead")
    parser.add_argument("--write", type=Path, help="write the module of the first number here, and stop")
    arguments = parser.parse_args()
    lengths: list[int] = arguments.returned or arguments.layers
    text_of = chain_text if arguments.returned else module_text
    if arguments.write is not None:
        arguments.write.write_text(text_of(lengths[0]))
        return
    print(f"| ops | {'steps' if arguments.returned else 'layers'} | threshold | seconds | per op | memory, GB |")
    print("| ---: | ---: | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for length in lengths:
            path = Path(folder, f"{length}.mlir")
            path.write_text(text_of(length))
            count = path.read_text().count(" = stablehlo.")
            for threshold in _CHAIN_THRESHOLDS if arguments.returned else _THRESHOLDS:
                seconds, held = cost_of(path, threshold)
                cells = [f"{count:,}", f"{length:,}", threshold, f"{seconds:.2f}", f"{1e6 * seconds / count:.0f} µs"]
                print(f"| {' | '.join(cells)} | {held / 1e9:.2f} |", flush=True)


def cost_of(path: Path, threshold: str) -> tuple[float, int]:
    """The processor's seconds and the most bytes held by one run of the command, its start included.

    Raises CalledProcessError if it fails.
    """
    command = [sys.executable, "-m", "exla_opt", str(path), f"--size-threshold={threshold}", "--quiet"]
    process = subprocess.Popen([*command, "-o", f"{path}.out"])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss


def chain_text(steps: int) -> str:
    """A module whose main function is a chain of sines of 67 MB, each of them a result."""
    kind = f"tensor<{_LENGTH}x{_LENGTH}xf32>"
    types = ", ".join([kind] * steps)
    lines = [f"func.func public @main(%x0: {kind}) -> ({types}) {{"]
    lines += [f"  %x{step + 1} = stablehlo.sine %x{step} : {kind}" for step in range(steps)]
    lines += [f"  return {', '.join(f'%x{step + 1}' for step in range(steps))} : {types}", "}"]
    return "\n".join(lines) + "\n"


def module_text(layers: int) -> str:
    """A module whose main function is a stack of layers, each with weights of its own."""
    weights = [f"%{name}{layer}: tensor<{shape}xf32>" for layer in range(layers) for name, shape in _WEIGHTS.items()]
    lines = [f"func.func public @main({', '.join(['%x0: tensor<' + _X + 'xf32>', *weights])}) -> tensor<{_X}xf32> {{"]
    for name, number in {
        "zero": "0.0",
        "low": "0xFF800000",
        "one": "1.0",
        "size": f"{_WIDTH}.0",
        "eps": "1.0e-6",
    }.items():
        lines.append(f"  %{name} = stablehlo.constant dense<{number}> : tensor<f32>")
    for layer in range(layers):
        lines += _Layer(layer).lines()
    lines += [f"  return %x{layers} : tensor<{_X}xf32>", "}"]
    return "\n".join(lines) + "\n"


class _Layer:
    """Writes one layer; its values carry the layer's number behind their names."""

    def __init__(self, number: int):
        self.number = number
        self.written: list[str] = []

    def lines(self) -> list[str]:
        self._normalise("x", "a")
        for part in ("query", "key", "value"):
            self._dot(f"{part}_flat", "a", part, (_X, f"{_WIDTH}x{_WIDTH}"), _X)
            self._op(f"{part}_parted", f"reshape %{part}_flat#", (_X,), _PARTED)
        self._attend()
        self._op("flat", "reshape %heads_back#", (_PARTED,), _X)
        self._dot("mixed", "flat", "out", (_X, f"{_WIDTH}x{_WIDTH}"), _X)
        self._op("b", "add %x#, %mixed#", (), _X)
        self._normalise("b", "c")
        self._dot("wide", "c", "up", (_X, f"{_WIDTH}x{_HIDDEN}"), _H)
        self._op("gate", "logistic %wide#", (), _H)
        self._op("gated", "multiply %wide#, %gate#", (), _H)
        self._dot("narrow", "gated", "down", (_H, f"{_HIDDEN}x{_WIDTH}"), _X)
        self.written.append(
            f"  %x{self.number + 1} = stablehlo.add %b{self.number}, %narrow{self.number} : tensor<{_X}xf32>"
        )
        return self.written

    def _attend(self) -> None:
        """Softmax attention of all heads."""
        self._op(
            "scores",
            "dot_general %query_parted#, %key_parted#, batching_dims = [1] x [1], contracting_dims = [2] x [2]",
            (_PARTED, _PARTED),
            _SCORES,
        )
        self._reduce("most", "scores", "low", "maximum", _SCORES, "2", _ROWS)
        self._spread("most_spread", "most#", "0, 1", _ROWS, _SCORES)
        self._op("less", "subtract %scores#, %most_spread#", (), _SCORES)
        self._op("power", "exponential %less#", (), _SCORES)
        self._reduce("sum", "power", "zero", "add", _SCORES, "2", _ROWS)
        self._spread("sum_spread", "sum#", "0, 1", _ROWS, _SCORES)
        self._op("soft", "divide %power#, %sum_spread#", (), _SCORES)
        self._op(
            "heads",
            "dot_general %soft#, %value_parted#, batching_dims = [0] x [1], contracting_dims = [2] x [0]",
            (_SCORES, _PARTED),
            f"{_HEADS}x{_LENGTH}x{_DEPTH}",
        )
        self._op("heads_back", "transpose %heads#, dims = [1, 0, 2]", (f"{_HEADS}x{_LENGTH}x{_DEPTH}",), _PARTED)

    def _normalise(self, value: str, made: str) -> None:
        """Mean and variance of each row to 0 and 1, then a scale and a shift."""
        rows = f"{_LENGTH}"
        self._spread(f"{made}_size", "size", "", "", rows)
        self._reduce(f"{made}_sum", value, "zero", "add", _X, "1", rows)
        self._op(f"{made}_mean", f"divide %{made}_sum#, %{made}_size#", (), rows)
        self._spread(f"{made}_mean_spread", f"{made}_mean#", "0", rows, _X)
        self._op(f"{made}_centred", f"subtract %{value}#, %{made}_mean_spread#", (), _X)
        self._op(f"{made}_square", f"multiply %{made}_centred#, %{made}_centred#", (), _X)
        self._reduce(f"{made}_square_sum", f"{made}_square", "zero", "add", _X, "1", rows)
        self._op(f"{made}_variance", f"divide %{made}_square_sum#, %{made}_size#", (), rows)
        self._spread(f"{made}_eps", "eps", "", "", rows)
        self._op(f"{made}_safe", f"add %{made}_variance#, %{made}_eps#", (), rows)
        self._op(f"{made}_factor", f"rsqrt %{made}_safe#", (), rows)
        self._spread(f"{made}_factor_spread", f"{made}_factor#", "0", rows, _X)
        self._op(f"{made}_unit", f"multiply %{made}_centred#, %{made}_factor_spread#", (), _X)
        self._spread(f"{made}_scale", "scale#", "1", f"{_WIDTH}", _X)
        self._op(f"{made}_scaled", f"multiply %{made}_unit#, %{made}_scale#", (), _X)
        self._spread(f"{made}_shift", "shift#", "1", f"{_WIDTH}", _X)
        self._op(made, f"add %{made}_scaled#, %{made}_shift#", (), _X)

    def _op(self, name: str, text: str, operands: Sequence[str], result: str) -> None:
        """One op; # stands for the layer's number. operands: their shapes, none where they are those of the result."""
        kind = f"({', '.join(map(_tensor, operands))}) -> {_tensor(result)}" if operands else _tensor(result)
        self.written.append(f"  %{name}# = stablehlo.{text} : {kind}".replace("#", str(self.number)))

    def _dot(self, name: str, left: str, right: str, operands: tuple[str, str], result: str) -> None:
        self._op(name, f"dot_general %{left}#, %{right}#, contracting_dims = [1] x [0]", operands, result)

    def _spread(self, name: str, value: str, dims: str, before: str, after: str) -> None:
        self._op(name, f"broadcast_in_dim %{value}, dims = [{dims}]", (before,), after)

    def _reduce(self, name: str, value: str, init: str, body: str, before: str, dim: str, after: str) -> None:
        text = f"reduce(%{value}# init: %{init}) applies stablehlo.{body} across dimensions = [{dim}]"
        self._op(name, text, (before, ""), after)


def _tensor(shape: str) -> str:
    return f"tensor<{shape}xf32>" if shape else "tensor<f32>"


if __name__ == "__main__":
    main()
