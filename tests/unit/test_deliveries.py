"""The rounds in which devices send rows: every row that is needed arrives, and nobody sends or receives twice at once."""

from __future__ import annotations

from itertools import product

from exla_opt.ops.shifts import Part
from exla_opt.sharding.deliveries import rounds_of, rows_sent


def test_every_row_arrives_and_nobody_sends_twice_in_a_round() -> None:
    for length, made, by, count in product((5, 16, 33), (3, 16, 40), (-17, -1, 0, 2, 9), (2, 4, 8)):
        part = Part(0, max(0, -by), min(made, length - by), by)
        has, wants = -(-length // count), -(-made // count)
        arrived: set[int] = set()
        for each in rounds_of(part, has, wants, count):
            sources, targets = ([getattr(one, side) for one in each.deliveries] for side in ("source", "target"))
            assert len(set(sources)) == len(sources) and len(set(targets)) == len(targets)
            for one in each.deliveries:
                assert each.low <= one.low < one.high <= each.high <= has
                rows = [one.source * has + row - by for row in range(one.low, one.high)]
                assert arrived.isdisjoint(rows) and all(row // wants == one.target for row in rows)
                arrived.update(rows)
        assert arrived == set(range(part.start, part.stop))


def test_a_shift_by_one_sends_one_row_and_half_of_a_concatenation_two_shards() -> None:
    assert rows_sent(rounds_of(Part(0, 0, 63, 1), 8, 8, 8)) == 1
    assert rows_sent(rounds_of(Part(0, 0, 64, 0), 8, 16, 8)) == 16, "each of four devices gets two shards"
    assert rows_sent(rounds_of(Part(0, 0, 64, 0), 8, 8, 8)) == 0
