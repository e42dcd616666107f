"""The example of a training loop, at a small size."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "training.py"


def test_the_example_trains_alike_in_less_memory() -> None:
    command = [sys.executable, str(EXAMPLE), "--batch=2", "--length=128", "--steps=2", "--memory-limit=6MB"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = re.findall(r"temporaries +([0-9.]+) MB, losses ([0-9.]+) ([0-9.]+)", done.stdout)
    (before, *plain), (after, *sliced) = rows
    assert float(after) < float(before) / 2
    assert all(abs(float(one) - float(other)) < 2e-4 for one, other in zip(plain, sliced, strict=True))
