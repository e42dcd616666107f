"""What choices are made of, for those who work on a pass or wonder at a choice: `exla-opt --debug-only=TOPIC`.

A topic is a logger of Python's: what chooses writes to it, and knows of no command line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

MEMORY_LIMIT, TENSOR_SPLITTER = "memory-limit", "tensor-splitter"
# What can be asked about, and what is printed of it.
TOPICS = {
    MEMORY_LIMIT: "each pair of sizes that was tried, what it needs and how long it takes",
    TENSOR_SPLITTER: "for each big tensor the ways to cut it, their prices, and which is chosen",
}


def log_of(topic: str) -> logging.Logger:
    """The logger of a topic; it is enabled for DEBUG where somebody asks about it."""
    return logging.getLogger(f"exla_opt.{topic}")


@contextmanager
def printing(topics: Iterable[str], stream: TextIO) -> Iterator[None]:
    """Print what is said of some topics meanwhile, each line behind the topic's name."""
    handlers = {topic: logging.StreamHandler(stream) for topic in topics}
    for topic, handler in handlers.items():
        handler.setFormatter(logging.Formatter(f"{topic}: %(message)s"))
        log_of(topic).addHandler(handler)
        log_of(topic).setLevel(logging.DEBUG)
        log_of(topic).propagate = False
    try:
        yield
    finally:
        for topic, handler in handlers.items():
            log_of(topic).removeHandler(handler)
            log_of(topic).setLevel(logging.NOTSET)
            log_of(topic).propagate = True
