"""How far two orders agree, for the benchmarks of predicted seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's coefficient of pairs of seconds, predicted and measured."""
    predicted, measured = (np.argsort(np.argsort(column)) for column in zip(*pairs, strict=True))
    return float(np.corrcoef(predicted, measured)[0, 1])
