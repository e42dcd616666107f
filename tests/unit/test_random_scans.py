"""Gradients of random loops: the generator, and a short run with a fixed seed (`python -m tests.scans` is the long one)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.scans.generate import generate
from tests.scans.run import run

SEED = 20
COUNT = 12


@pytest.mark.parametrize("number", range(COUNT))
def test_random_gradients_keep_their_results(number: int) -> None:
    outcome = run(SEED, number)
    assert not outcome.problem, generate(SEED, number).recipe


def test_a_program_is_the_same_each_time() -> None:
    one, other = generate(SEED, 3), generate(SEED, 3)
    assert (one.text, one.recipe, one.threshold) == (other.text, other.recipe, other.threshold)
    assert all(np.array_equal(first, second) for first, second in zip(one.arrays, other.arrays, strict=True))
    assert generate(SEED, 4).recipe != one.recipe
