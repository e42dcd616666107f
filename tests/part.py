"""Of tests with many cases a part: pytest -p tests.part --part=2/3.

With --part=K/N each test function runs, with its first case and of the others every N-th, from the K-th on. So two
environments that run different parts run every test function, and different cases of those with many.
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
        is_mine = seen[test] == 0 or seen[test] % int(parts) == int(part) - 1
        (kept if is_mine else left).append(item)
        seen[test] += 1
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = kept
