"""Rewrites and runs generated programs, several to a module, and judges them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from exla_opt.ir.diagnostics import InputError
from exla_opt.runtime.inputs import Array, ArrayType
from tests.fuzz.cases import Case, Failure, prepare
from tests.fuzz.execute import bytes_sent, execute
from tests.fuzz.generate import text_with
from tests.fuzz.inputs import make_inputs, nudged, rounding, with_floats
from tests.fuzz.judge import judge_exact, judge_rounded, nan_in_both
from tests.fuzz.partitioned import NotPartitioned
from tests.fuzz.roundings import rounded_text
from tests.fuzz.whole import on_every_device

# XLA:CPU as it rounds every op on its own, wherever it is fused: then maps are equal to the last bit. The rest is for
# quick compilation.
STRICT_FLAGS = (
    "--xla_allow_excess_precision=false --xla_cpu_max_isa=AVX --xla_cpu_experimental_ynn_fusion_type= "
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 "
    "--xla_disable_hlo_passes=tree_reduction_rewriter,algsimp"
)
# jaxlib 0.11 has one kind of emitter, and aborts where the choice is made.
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    STRICT_FLAGS += " --xla_cpu_use_fusion_emitters=false"
# These multiply out, or multiply in another order: an infinity and NaN may take each other's place.
_MULTIPLIES = frozenset(
    {"euclidean-distance", "matrix-chain-order", "reused-products", "symmetric-sums", "symmetric-products"}
)
# These make a number of an infinity and not of NaN, or the reverse.
_HIDES = re.compile(r"clamp|select|compare|imum|tanh|logistic|atan|erf|exponential|divide|power|sign|is_finite|convert")
# With --no-reassociate these keep the order of every sum; the others leave floats alone.
_KEEPS_ORDER = frozenset({"normalise", "rce", "reshape-sinker", "tensor-splitter"})
_SINGLE = -1
_ROUNDING_OF_DOUBLE = 2.0**-53
_DOUBLE_TO_SINGLE = 2.0**-29

# What XLA:CPU says where one of the passes that STRICT_FLAGS leave out was needed.
_NEEDED_PASS = "should have been eliminated at the HLO level"

Stage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one program.

    status: ok, refused (XLA does not take the program) or failed; of programs for several devices also "as it came"
    (there is no program of one device) and corrected (right, where XLA's partitioner makes the original wrong).
    changed: the passes that changed it. kinds: the patterns in it. measured: how many results needed a float64 run.
    sent: of a program for several devices, the bytes that each sends to the others, before and after.
    """

    index: int
    status: str
    problem: str = ""
    changed: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    results: int = 0
    exact: int = 0
    measured: int = 0
    sent: tuple[float, ...] = ()


def run_batch(seed: int, indices: Sequence[int], stage: Stage, devices: int = 1) -> list[Outcome]:
    """Generate, rewrite, run and judge these programs. `stage` is called with what is being done before it is done."""
    outcomes: list[Outcome] = []
    cases: list[Case] = []
    for index in indices:
        stage("rewriting")
        try:
            cases.append(prepare(seed, index, devices))
        except NotPartitioned as why:
            outcomes.append(Outcome(index, "as it came", str(why)))
        except Failure as failure:
            outcomes.append(Outcome(index, "failed", str(failure)))
    stage("original")
    before = _execute_all(cases, [case.program.text for case in cases])
    refused = [case for case, results in zip(cases, before, strict=True) if isinstance(results, str)]
    outcomes += [_outcome(case, "refused", _told(before[cases.index(case)])) for case in refused]
    runnable = [(case, results) for case, results in zip(cases, before, strict=True) if not isinstance(results, str)]
    stage("rewritten")
    after = _execute_all([case for case, _ in runnable], [case.rewritten for case, _ in runnable])
    stage("judging")
    for (case, expected), actual in zip(runnable, after, strict=True):
        if isinstance(actual, str):
            status = "refused" if _NEEDED_PASS in actual else "failed"
            outcomes.append(_outcome(case, status, f"rewritten: {actual}"))
        else:
            outcomes.append(_judge_spread(case, expected, actual))
    return outcomes


def _judge_spread(case: Case, expected: Sequence[Array], actual: Sequence[Array]) -> Outcome:
    """As `_judge`; where a program for several devices differs, XLA may have partitioned the original wrongly."""
    outcome = _judge(case, expected, actual)
    if case.program.devices == 1:
        return outcome
    if outcome.status == "failed":
        whole = _execute_all([case], [on_every_device(case.program.text)])[0]
        if not isinstance(whole, str) and _judge(case, whole, actual).status == "ok":
            outcome = replace(outcome, status="corrected")
    return replace(outcome, sent=(bytes_sent(case.program.text), bytes_sent(case.rewritten)))


def _told(result: list[Array] | str) -> str:
    return result if isinstance(result, str) else ""


def _outcome(case: Case, status: str, problem: str = "", measured: int = 0) -> Outcome:
    program = case.program
    return Outcome(
        program.index,
        status,
        problem,
        case.changed,
        tuple(sorted(program.kinds)),
        len(program.exact),
        sum(program.exact),
        measured,
    )


def _execute_all(cases: Sequence[Case], texts: Sequence[str]) -> list[list[Array] | str]:
    """The results of each, or what XLA says against it; together, and one by one if that fails."""
    if not cases:
        return []
    try:
        return list(execute(texts, [case.signature for case in cases], [case.inputs for case in cases]))
    except InputError as error:
        if len(cases) == 1:
            return [str(error)]
    return [_execute_all([case], [text])[0] for case, text in zip(cases, texts, strict=True)]


def _judge(case: Case, expected: Sequence[Array], actual: Sequence[Array]) -> Outcome:
    program = case.program
    # A maximum of nothing is an infinity, and XLA may take `constant - constant` for zero before it knows the constant.
    of_nothing = "<0x" in program.text or "x0x" in program.text
    # So may a product of complex numbers: other kernels multiply an infinity by the zeros of the other part, or do not.
    multiplied = "complex" in program.text or bool(_MULTIPLIES & set(case.changed))
    swaps = of_nothing or (program.special and multiplied)
    hides = swaps and _HIDES.search(program.text) is not None
    in_order = program.in_order and _KEEPS_ORDER.issuperset(case.changed)
    wide = _Wide(case)
    measured = 0
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        exact = program.exact[number] or in_order
        if hides:
            one, other = nan_in_both(one, other)
        if exact:
            problem = judge_exact(one, other, swaps=swaps)
            if problem and hides:
                problem = _problem_of_ordinary(case, number)
        elif one.dtype.kind in "iub":
            problem = ""  # cannot be: the generator makes integers of exact numbers only
        else:
            verdict = judge_rounded(one, other, wide.getter(number), wide.nudged(number, one.dtype), swaps=swaps)
            problem = verdict.problem
            measured += verdict.measured
        if problem:
            kind = "exact" if exact else "rounded"
            return _outcome(case, "failed", f"result {number} ({kind}): {problem}", measured)
    return _outcome(case, "ok", measured=measured)


def _problem_of_ordinary(case: Case, number: int) -> str:
    """What is wrong with an exact result on inputs without NaN and infinities, "" if nothing is.

    Where an infinity and NaN take each other's place, the largest number has another index and a sort another order.
    """
    program, signature = case.program, case.signature
    inputs = make_inputs(program.arguments, signature.arguments, f"{program.index} ordinary", special=False)
    one, other = (execute([text], [signature], [inputs])[0][number] for text in (program.text, case.rewritten))
    return judge_exact(one, other, swaps=False)


class _Wide:
    """Runs of one program with floats of another type, made when somebody asks."""

    def __init__(self, case: Case):
        self.case = case
        self.runs: dict[int, list[Array] | None] = {}

    def results(self, run: int) -> list[Array] | None:
        """In float64; of all runs but 0, those of inputs that are off by a rounding. Of run -1, in float32."""
        if run not in self.runs:
            self.runs[run] = self.execute(run)
        return self.runs[run]

    def execute(self, run: int) -> list[Array] | None:
        case = self.case
        floats = "f32" if run == _SINGLE else "f64"
        text = text_with(case.program, floats)
        inputs = [with_floats(array, floats) for array in case.inputs]
        if run > 0:
            generator = np.random.default_rng(run)
            inputs = [nudged(array, narrow.dtype, generator) for array, narrow in zip(inputs, case.inputs, strict=True)]
        return self.run(text, inputs)

    def rounded(self, narrow: np.dtype[Any], seed: int) -> list[Array] | None:
        """In float64, with ops that round as those of a narrow type, by chance."""
        text = text_with(self.case.program, "f64")
        inputs = [with_floats(array, "f64") for array in self.case.inputs]
        return self.run(rounded_text(text, narrow, seed) if text else "", inputs)

    def run(self, text: str, inputs: list[Array]) -> list[Array] | None:
        case = self.case
        types = tuple(ArrayType(array.shape, array.dtype) for array in inputs)
        try:
            return execute([text], [replace(case.signature, arguments=types)], [inputs])[0] if text else None
        except InputError:
            return None

    def getter(self, number: int) -> Callable[[], Array | None]:
        def exact() -> Array | None:
            results = self.results(0)
            return None if results is None else results[number]

        return exact

    def nudged(self, number: int, kind: np.dtype[Any]) -> Callable[[], Iterator[Array]]:
        def several() -> Iterator[Array]:
            yield from (results[number] for results in map(self.results, (1, 2, 3)) if results is not None)
            if rounding(kind) > _ROUNDING_OF_DOUBLE:
                rounded = (self.rounded(kind, seed) for seed in (1, 2, 3))
                yield from (results[number] for results in rounded if results is not None)
                return
            exact, single = self.results(0), self.results(_SINGLE)
            if exact is not None and single is not None:
                # Nothing is wider than float64: its errors are those of float32, as much smaller as its roundings.
                yield exact[number] + (single[number] - exact[number]) * _DOUBLE_TO_SINGLE

        return several
