"""Of tests with many cases every n-th: pytest -p tests.every --every=3.

Each test function runs, with its first case and every n-th after it. For a second run of the same tests in another
environment, which is to find what that environment does otherwise and not what one case does.
"""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, help="the first case of each test and every N-th after it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every = config.getoption("--every")
    seen: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        (left if seen[test] % every else kept).append(item)
        seen[test] += 1
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = kept
