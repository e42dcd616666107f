"""Every golden under tests/lit is executed too: its input before and after, with the options of its own RUN line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from jaxlib.mlir import ir

from exla_opt.cli.opt import main
from exla_opt.cli.pass_list import read_passes
from exla_opt.cli.request import options_of
from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import read_module
from exla_opt.ir.write import serialise
from exla_opt.ops.rules import read_rules
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.graph import OUTSIDE, read_graphs
from exla_opt.pipeline import run_pipeline
from exla_opt.remarks import Kind, Remark
from exla_opt.runtime.pjrt import client
from tests.execute import assert_equal_results, random_arguments, run_module

LIT = Path(__file__).parents[1] / "lit"
GOLDENS = sorted(str(path.relative_to(LIT)) for path in LIT.rglob("*.mlir") if path.parent.name != "exla-reduce")
# What a slice of a slice leaves is never in memory: XLA makes one of both.
SLICED_TWICE = "tensor-splitter/captured-slice.mlir"
SPLIT = [
    name for name in GOLDENS if name.startswith("tensor-splitter/") and "/refuse-" not in name and name != SLICED_TWICE
]

# Where tiles of one column are over the threshold, of 512 bytes, and are cut again along the rows.
NEW_TILES = {"tensor-splitter/narrow-scatter-index.mlir": {"307x1xf32"}}

CRASHES = "XLA does not survive recursion"
# What cannot be executed, and why. A file that can be must not stand here.
NOT_RUN = {
    "euclidean-distance/tokens-and-tuples.mlir": "a token is no array",
    "exla-opt/error-types-do-not-match.mlir": "the input is wrong on purpose",
    "exla-opt/error-undeclared-value.mlir": "the input is wrong on purpose",
    "exla-opt/many-devices.mlir": "it is for four devices; tests/sharded runs such modules",
    "exla-opt/many-devices-kept.mlir": "it is for eight devices, and goes out as it came",
    "exla-opt/many-devices-left.mlir": "it is for eight devices, and goes out as it came",
    "exla-opt/many-devices-limit.mlir": "it is for eight devices; its RUN line runs it",
    "exla-opt/many-devices-shift.mlir": "it is for eight devices; its RUN line runs it",
    "exla-opt/many-devices-solve.mlir": "it is for eight devices; its RUN line runs it",
    "exla-opt/many-devices-uneven.mlir": "it is for eight devices; its RUN line runs it",
    "loop-residuals/refuse-collective.mlir": "it is the program of one of two devices, for the other to talk to",
    "normalise/attributes.mlir": "its result is smaller than the argument whose buffer it takes",
    "normalise/refuses-recursion.mlir": CRASHES,
    "tensor-splitter/op-rule.mlir": "no kernel is registered for its custom call",
    "tensor-splitter/refuse-partitioned.mlir": "it is for two devices; tests/sharded runs such modules",
    "tensor-splitter/refuse-unknown-custom-call.mlir": "no kernel is registered for its custom call",
}
# Passes that do not report what they leave alone: nothing is wrong with it.
SILENT = ("matrix-chain-order", "rce", "reshape-sinker", "symmetric-products", "symmetric-sums")
RUN = [name for name in GOLDENS if name not in NOT_RUN]


def settings(name: str) -> tuple[Options, tuple[str, ...]]:
    """The options and passes of the golden's first RUN line that gives exla-opt the file itself."""
    line = re.search(r"^// RUN: .*?%exla-opt (%s .*)$", (LIT / name).read_text(), re.MULTILINE)
    assert line, f"{name} has no RUN line for exla-opt"
    words = shlex.split(line[1])
    end = next((index for index, word in enumerate(words) if word == "|" or ">" in word and "->" not in word), None)
    given = main.make_context("exla-opt", words[:end]).params
    return options_of(given), read_passes(given["passes"], given["pass_pipeline"])[0]


def rewrite(name: str, context: ir.Context) -> tuple[str, ir.Module, tuple[Remark, ...]]:
    """The golden's input as text, what becomes of it, and the remarks."""
    options, passes = settings(name)
    module = read_module(str(LIT / name), context).module
    before = serialise(module, "text").decode()
    return before, module, run_pipeline(module, passes, options).remarks


def big_tensors(module: ir.Module, threshold: int) -> set[str]:
    """The types above the threshold that any op of any block makes."""
    return {
        str(tensor.type)
        for graph in read_graphs(module, read_rules(module))
        for tensor in graph.tensors
        if tensor.producer != OUTSIDE and tensor.type.bytes > threshold
    }


@pytest.mark.parametrize("name", RUN)
def test_the_results_are_the_same(name: str) -> None:
    with new_context() as context:
        _, module, _ = rewrite(name, context)
        assert_equal_results(read_module(str(LIT / name), context).module, module)


@pytest.mark.parametrize("name", SPLIT)
def test_nothing_big_is_left_without_a_reason(name: str) -> None:
    with new_context() as context:
        before, module, remarks = rewrite(name, context)
        threshold = settings(name)[0].size_threshold
        assert any(remark.kind is Kind.PASSED for remark in remarks)
        left = big_tensors(module, threshold)
        big = big_tensors(ir.Module.parse(before), threshold)
        assert big - left and left - big == NEW_TILES.get(name, set())
        assert left <= {remark.tensor for remark in remarks if remark.kind is Kind.MISSED}


@pytest.mark.parametrize("name", [name for name in GOLDENS if name.startswith("tensor-splitter/")])
def test_a_second_run_changes_nothing(name: str) -> None:
    options, passes = settings(name)
    with new_context() as context:
        _, module, _ = rewrite(name, context)
        once = serialise(module, "text")
        again = ir.Module.parse(once)
        run_pipeline(again, passes, options)
        assert serialise(again, "text") == once


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_is_not_run_cannot_be(name: str) -> None:
    assert name in GOLDENS, f"there is no {name}: take it off the list"
    if NOT_RUN[name] == CRASHES:
        return
    client("cpu")  # of one device from here on, in whatever order the tests run
    with new_context() as context, pytest.raises(InputError):
        text = serialise(read_module(str(LIT / name), context).module, "text").decode()
        run_module(text, random_arguments(text))


@pytest.mark.parametrize("name", [name for name in GOLDENS if "/refuse-" in name and name.split("/")[0] not in SILENT])
def test_a_refusal_checks_its_remark(name: str) -> None:
    text = (LIT / name).read_text()
    assert re.search(
        r"^// CHECK.*: remark: .* not (split|multiplied out|recomputed|found by counting|summed over .*): ",
        text,
        re.MULTILINE,
    )
