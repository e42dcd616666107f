"""exla-opt: makes XLA programs fit in memory by rewriting their StableHLO."""

__version__ = "0.1.0"
