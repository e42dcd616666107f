"""A memory limit is met, or the tool says what the smallest one is and what holds it up."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from jaxlib.mlir import ir

from exla_opt.cli.opt import main
from exla_opt.fit import Fit, fit
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.memory.timeline import read_timeline
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES
from exla_opt.runtime.memory import measure_memory
from exla_opt.sizes import parse_size

SAMPLE = Path(__file__).parents[2] / "examples" / "attention.mlir"
SORTED = Path(__file__).parents[2] / "tests/lit/tensor-splitter/refuse-sort-dimension.mlir"


def fitted(path: Path, limit: int, measured: bool = False) -> tuple[Fit, int]:
    """What was found, and the peak that XLA plans for it."""
    context = new_context()

    def read() -> ir.Module:
        return parse_module(path.name, path.read_bytes(), context).module

    def measure(module: ir.Module) -> int:
        return measure_memory(serialise(module, "text")).peak

    found = fit(read, DEFAULT_PASSES, Options(), limit, measure if measured else None)
    return found, measure(found.module)


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("limit", ["1TB", "100MB", "30MB", "12MB"])
def test_a_limit_is_met(limit: str, measured: bool) -> None:
    found, true = fitted(SAMPLE, parse_size(limit), measured)
    assert found.fits and true <= parse_size(limit)
    assert found.peak <= parse_size(limit) and not found.held_by
    assert not measured or found.peak == true


def test_nothing_is_split_that_fits() -> None:
    found, _ = fitted(SAMPLE, parse_size("1TB"))
    assert found.options.split_size is None
    assert not [remark for remark in found.outcome.remarks if "split over" in remark.message]


def test_a_smaller_limit_takes_smaller_slices() -> None:
    slices = [fitted(SAMPLE, parse_size(limit))[0].options.slice_bytes for limit in ("100MB", "30MB", "12MB")]
    assert slices == sorted(slices, reverse=True)


def test_what_holds_up_a_limit_that_cannot_be_met() -> None:
    found, true = fitted(SORTED, parse_size("600KB"))
    assert not found.fits and true > parse_size("600KB")
    assert "65536xf32" in found.held_by and "sort" in found.held_by
    again, _ = fitted(SORTED, found.peak)
    assert again.fits, "the smallest limit that was named can be met"


LIT = SORTED.parent


@pytest.mark.parametrize("name", ["broadcast", "pad-shift", "top-k-along-row"])
@pytest.mark.parametrize("gpu", [False, True])
def test_the_smallest_limit_depends_on_no_limit_and_is_met(name: str, gpu: bool) -> None:
    data = (LIT / f"{name}.mlir").read_bytes()
    with new_context() as context:

        def found(limit: int) -> Fit:
            return fit(lambda: parse_module(name, data, context).module, DEFAULT_PASSES, Options(), limit, gpu=gpu)

        smallest = found(1).peak
        assert not found(1).fits and found(smallest).fits
        below = found(smallest - 1)
        assert not below.fits or below.peak < smallest
        assert below.peak <= smallest, "a limit that is missed by a byte tells no larger one"


def test_a_slice_in_a_loop_can_hold_up_a_limit() -> None:
    found, true = fitted(SAMPLE, parse_size("4.2MB"))
    assert not found.fits and true < parse_size("4.3MB")
    assert found.held_by.startswith("its arguments and results (4.19MB) and 1x4096xf32 (16.4KB) at ")


def test_without_the_splitter_nothing_is_tried_twice() -> None:
    attempts: list[int] = []
    with new_context() as context:

        def read() -> ir.Module:
            return parse_module("<sample>", SAMPLE.read_bytes(), context).module

        found = fit(read, ("rce",), Options(), 10**7, tried=lambda _, peak: attempts.append(peak))
    assert len(attempts) == 1 and not found.fits
    assert found.held_by.endswith("not split: tensor-splitter is not among the passes")


def test_arguments_and_results_hold_up_a_limit_below_them() -> None:
    found, _ = fitted(SORTED, parse_size("300KB"))
    assert not found.fits and found.held_by == "its arguments and results, which alone take 524KB"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*arguments, "-o", "/dev/null"])
    return result.exit_code, result.stderr


def test_the_command_line_says_how_it_fits() -> None:
    code, told = run(str(SAMPLE), "--memory-limit=30MB", "--strict")
    assert code == 0 and "remark: fits into 30MB, in slices of" in told
    assert run(str(SAMPLE), "--memory-limit=30MB", "--quiet") == (0, "")


def test_strict_fails_where_it_does_not_fit() -> None:
    for arguments, expected in ((["--strict"], 3), ([], 0), (["--strict", "--quiet"], 3)):
        code, told = run(str(SORTED), "--memory-limit=600KB", *arguments)
        assert code == expected
        assert "warning: does not fit into 600KB; the smallest limit that was reached is 839KB (predicted" in told


def test_the_limit_that_is_told_is_met_as_it_is_written() -> None:
    told = run(str(SAMPLE), "--memory-limit=1B")[1]
    limit = told.partition("that was reached is ")[2].split()[0]
    code, told = run(str(SAMPLE), f"--memory-limit={limit}", "--strict")
    assert code == 0 and f"remark: fits into {limit}, in slices of" in told and "(predicted, with a margin)" in told


@pytest.mark.parametrize(
    "arguments", [("--memory-limit=1GB", "--split-size=1MB"), ("--strict",), ("--memory-limit=0",)]
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run(str(SAMPLE), *arguments)[0] == 2


def test_the_timeline_names_what_is_alive_at_the_peak() -> None:
    with new_context() as context:
        module = parse_module("<sample>", SAMPLE.read_bytes(), context).module
        timeline = read_timeline(module)
    assert timeline.peak is not None
    assert timeline.alive_at(timeline.peak)[0].type == "4096x4096xf32"
