"""Random gradients of scans, rewritten and run: python -m tests.scans --count=100 --seed=0."""

from __future__ import annotations

import sys
from math import exp, log

import click

from tests.scans.generate import generate
from tests.scans.run import run


@click.command()
@click.option("--count", default=100, help="How many programs.")
@click.option("--seed", default=0, help="Of the programs; each is made of the seed and its number alone.")
@click.option("--first", default=0, help="The number of the first one.")
@click.option("--text", is_flag=True, help="Print the module of the first one, and run none.")
def main(count: int, seed: int, first: int, text: bool) -> None:
    """Generate gradients of random scans, rewrite them under small thresholds, run both, compare.

    The exit status is 1 when a result is wrong. What takes more memory than before is printed too.
    """
    if text:
        print(generate(seed, first).text)
        return
    outcomes = []
    for number in range(first, first + count):
        outcome = run(seed, number)
        outcomes.append(outcome)
        if outcome.problem:
            print(f"FAILED {number}: {outcome.problem} ({generate(seed, number).recipe})", flush=True)
        elif outcome.after > 1.1 * outcome.before + 20_000:
            print(f"larger {number}: {outcome.before} -> {outcome.after}", flush=True)
    changed = [each for each in outcomes if each.recomputed or each.split]
    shares = [log(max(each.after, 1) / max(each.before, 1)) for each in changed]
    print(f"{count} programs, {sum(bool(each.problem) for each in outcomes)} failed")
    print(f"residuals recomputed in {sum(each.recomputed for each in outcomes)}, ", end="")
    print(f"split {sum(each.split for each in outcomes)}; of the memory of those ", end="")
    print(f"{exp(sum(shares) / max(len(shares), 1)):.2f} is left (geometric mean)")
    sys.exit(any(each.problem for each in outcomes))


if __name__ == "__main__":
    main()
