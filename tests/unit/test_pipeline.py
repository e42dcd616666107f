"""The pipeline: the given order, nothing after a fault, and no invalid module past a pass."""

import pytest
from jaxlib.mlir import ir

from exla_opt import pipeline
from exla_opt.ir.context import new_context
from exla_opt.options import Options
from exla_opt.pipeline import PASSES, run_pipeline
from exla_opt.remarks import Kind, Remark

TEXT = """func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.sine %a : tensor<4xf32>
  %1 = stablehlo.sine %a : tensor<4xf32>
  %2 = stablehlo.add %0, %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}"""


@pytest.fixture
def module() -> ir.Module:
    return ir.Module.parse(TEXT, new_context())


def remark(message: str) -> Remark:
    return Remark(Kind.MISSED, "EX101", "x", "4xf32", 16, "a.py:1:2", message)


def set_name(module: ir.Module, name: str) -> None:
    with module.context:
        module.operation.attributes["sym_name"] = ir.StringAttr.get(name)


def test_passes_run_in_the_given_order_with_the_given_options(
    module: ir.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(size_threshold=77)
    seen: list[tuple[str, int]] = []

    def make(name: str) -> pipeline.PassFunction:
        def run(module: ir.Module, options: Options) -> list[Remark]:
            seen.append((name, options.size_threshold))
            set_name(module, name)
            return [remark(name)]

        return run

    monkeypatch.setattr(pipeline, "PASSES", {name: make(name) for name in "abc"})
    after: list[tuple[str, str]] = []
    outcome = run_pipeline(
        module, ["b", "a", "b"], options, after_pass=lambda name, m: after.append((name, str(m).split()[1]))
    )
    assert seen == [("b", 77), ("a", 77), ("b", 77)]
    assert after == [("b", "@b"), ("a", "@a"), ("b", "@b")]
    assert [r.message for r in outcome.remarks] == ["b", "a", "b"]
    assert [name for name, _ in outcome.seconds] == ["b", "a", "b"]
    assert all(0 <= seconds < 5 for _, seconds in outcome.seconds)


def test_an_unknown_pass_is_found_before_anything_runs(module: ir.Module) -> None:
    before = str(module)
    with pytest.raises(KeyError, match="nonsense"):
        run_pipeline(module, ["normalise", "nonsense"], Options())
    assert str(module) == before


def break_module(module: ir.Module, options: Options) -> list[Remark]:
    function = module.body.operations[0].operation
    result = function.regions[0].blocks[0].operations[0].operation.results[0]
    with module.context:
        result.set_type(ir.Type.parse("tensor<5xf32>"))
    return []


def test_an_invalid_module_is_caught_after_the_pass_that_made_it(
    module: ir.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PASSES, "breaker", break_module)
    with pytest.raises(RuntimeError, match="pass 'breaker' left an invalid module: .*stablehlo"):
        run_pipeline(module, ["breaker"], Options())


def test_verification_can_be_switched_off(module: ir.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSES, "breaker", break_module)
    run_pipeline(module, ["breaker"], Options(), verify_each=False)
    with pytest.raises(ir.MLIRError):
        module.operation.verify()


def test_no_pass_changes_nothing(module: ir.Module) -> None:
    before = str(module)
    outcome = run_pipeline(module, [], Options())
    assert (outcome.remarks, outcome.seconds) == ((), ())
    assert str(module) == before


def test_the_default_pipeline_leaves_a_small_module_alone_but_for_leftovers(module: ir.Module) -> None:
    outcome = run_pipeline(module, pipeline.DEFAULT_PASSES, Options())
    assert outcome.remarks == ()
    assert str(module).count("stablehlo.sine") == 1
