"""Of the tests a part: pytest -p tests.part --part=2/3.

With --part=K/N every N-th case of each test function runs, and every N-th of those that have one case only; the first
part has the first case of every function as well. So a run of the first part runs every test function, parts of the
same N that run in different environments run different cases, and all parts together run everything. Of a test marked
with `parts_at_most(2)` no fewer than every second case runs: the first two parts together are all of it.
"""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", metavar="K/N", help="the K-th of N parts; the first has all functions")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, _, parts = config.getoption("--part").partition("/")
    if not 1 <= int(part) <= int(parts):
        raise pytest.UsageError("--part=K/N: K is 1 to N")
    seen: Counter[str] = Counter()
    started: dict[str, int] = {}
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        marker = item.get_closest_marker("parts_at_most")
        count = int(parts) if marker is None else min(int(parts), marker.args[0])
        # Functions begin with different parts, as many have one case only.
        place = started.setdefault(test, len(started)) + seen[test]
        is_mine = place % count == (int(part) - 1) % count or (int(part) == 1 and seen[test] == 0)
        (kept if is_mine else left).append(item)
        seen[test] += 1
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = kept
