"""Debug output on the choices of passes, for those who develop or question them: `exla-opt --debug-only=TOPIC`.

A topic is a Python logger: passes write to it and know nothing of the command line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

MEMORY_LIMIT, TENSOR_SPLITTER = "memory-limit", "tensor-splitter"
# The topics, and what each prints.
TOPICS = {
    MEMORY_LIMIT: "each pair of sizes that was tried, what it needs and how long it takes",
    TENSOR_SPLITTER: "for each big tensor the ways to split it, their prices, and which is chosen",
}


def log_of(topic: str) -> logging.Logger:
    """The logger of a topic; enabled for DEBUG if the topic is requested."""
    return logging.getLogger(f"exla_opt.{topic}")


@contextmanager
def printing(topics: Iterable[str], stream: TextIO) -> Iterator[None]:
    """Print the messages of some topics while the context is open, each line after the topic's name."""
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
