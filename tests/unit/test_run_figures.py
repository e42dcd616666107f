"""The figures of exla-run as data."""

from __future__ import annotations

from exla_opt.report.runs import Measured, as_json, fits_as_json
from exla_opt.runtime.memory import Memory
from exla_opt.runtime.traffic import Traffic


def test_a_module_for_several_devices_says_what_each_sends() -> None:
    alone = Measured("a.mlir", Memory(1, 2, 0, 4), 0.5)
    spread = Measured("b.mlir", Memory(1, 2, 0, 4), 0.5, devices=8, traffic=Traffic(100.4, 50.0, 3))
    sent = {"devices": 8, "sent_bytes": 100, "sent_in_loops_bytes": 50}
    for data in (as_json([alone, spread], None, None), fits_as_json([alone, spread], "cpu", 8)):
        one, other = data["modules"]
        assert one.items() & sent.items() == set() and one["peak_bytes"] == 7
        assert sent.items() <= other.items()
