"""How much hangs on the constants of loop-residuals: each halved and doubled (shares to 1), on two halves of scans.

The halves are chosen by the parity of a hash of the name: what is chosen on one is reported on the other. All figures
are predicted.
"""

from __future__ import annotations

import zlib
from math import exp, log
from types import ModuleType

from jaxlib.mlir import ir

from benchmarks.scans import SCANS, export
from examples.scans import text_of
from exla_opt.ir.context import new_context
from exla_opt.ir.types import Types
from exla_opt.memory.peak import predict
from exla_opt.memory.reading import read_block
from exla_opt.memory.seconds import seconds_of
from exla_opt.options import Options
from exla_opt.passes.loop_residuals import choose, driver, segments
from exla_opt.pipeline import run_pipeline

CONSTANTS: tuple[tuple[ModuleType, str, tuple[float, float]], ...] = (
    (choose, "_WORTHWHILE", (0.4, 1.0)),
    (choose, "_DEAR", (0.625, 2.5)),
    (driver, "_LIGHT", (8, 32)),
    (segments, "_WORTHWHILE", (0.35, 1.0)),
)
PASSES = ("normalise", "rce", "reshape-sinker", "loop-residuals", "normalise")
PARTS = (4, 64)  # thresholds, as parts of the temporaries
NAMES = ("gpt_scan", "gpt_scan_dropout", "lstm", "gru", "sums", "sinkhorn", "neural_ode", "ctc")


def programs() -> dict[str, str]:
    """Modules by name."""
    made = {name: text_of(name, "middle") for name in NAMES}
    return made | {scan.name: export(scan, scan.small) for scan in SCANS}


def measure(text: str, part: int) -> tuple[float, float]:
    """The predicted temporaries after the pass, and the time, each over that before."""
    with new_context() as context:
        found, module, options = [], ir.Module.parse(text, context), Options()
        for passes in (PASSES[:3], PASSES[3:]):
            run_pipeline(module, passes, options)
            temp = predict(module, options.machine).temp
            block = list(module.body.operations)[0].operation.regions[0].blocks[0]
            seconds = seconds_of(read_block(block, Types(), options.machine), options.machine)
            found.append((temp, seconds))
            options = Options(size_threshold=max(temp // part, 1), split_size=max(temp // part, 1))
        return found[1][0] / found[0][0], found[1][1] / found[0][1]


def row(name: str, value: str, texts: dict[str, str]) -> str:
    """Geometric means over each half of the programs."""
    logs: tuple[list[tuple[float, float]], ...] = ([], [])
    for key, text in texts.items():
        logs[zlib.crc32(key.encode()) % 2].extend(measure(text, part) for part in PARTS)
    means = [exp(sum(log(max(each[side], 1e-3)) for each in half) / len(half)) for half in logs for side in (0, 1)]
    return f"| {name} | {value} | {len(texts)} | {' | '.join(f'{mean:.3f}' for mean in means)} |"


def main() -> None:
    """Print a row for each constant and value."""
    texts = programs()
    print("| constant | value | programs | temp, half 0 | time, half 0 | temp, half 1 | time, half 1 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(row("as they are", "", texts), flush=True)
    for module, name, values in CONSTANTS:
        kept = getattr(module, name)
        for value in values:
            setattr(module, name, value)
            print(row(f"{module.__name__.rpartition('.')[2]}.{name}", str(value), texts), flush=True)
        setattr(module, name, kept)


if __name__ == "__main__":
    main()
