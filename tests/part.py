"""Of tests with many cases a part: pytest -p tests.part --part=2/3.

With --part=K/N each test function runs, with its first case and of the others every N-th, from the K-th on. So two
environments that run different parts run every test function, and different cases of those with many. Of a test marked
with `parts_at_most(2)` no fewer than every second case runs: the first two parts together are all of it.
"""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", metavar="K/N", help="first cases, and the K-th of N parts of the others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, _, parts = config.getoption("--part").partition("/")
    if not 1 <= int(part) <= int(parts):
        raise pytest.UsageError("--part=K/N: K is 1 to N")
    seen: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        marker = item.get_closest_marker("parts_at_most")
        count = int(parts) if marker is None else min(int(parts), marker.args[0])
        is_mine = seen[test] == 0 or seen[test] % count == (int(part) - 1) % count
        (kept if is_mine else left).append(item)
        seen[test] += 1
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = kept
