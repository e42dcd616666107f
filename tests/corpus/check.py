"""Whether a module keeps its results: the whole pipeline and each pass alone, under a threshold that all is above."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jax.errors import JaxRuntimeError
from jax.extend import backend
from jaxlib import xla_client
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, PASSES, run_pipeline
from exla_opt.runtime.compare import compare
from exla_opt.runtime.compile import Program, check_device, run_program
from exla_opt.runtime.inputs import Array

OPTIONS = Options(size_threshold=64, split_size=32)
WHOLE = "all passes"
# Each pass alone sees the module as it came, calls and all, which in the pipeline none of them does.
VARIANTS: dict[str, tuple[str, ...]] = {
    WHOLE: DEFAULT_PASSES,
    "the splitter alone, after normalise": ("normalise", "tensor-splitter"),
    **{f"{name} alone": (name,) for name in PASSES},
}
_SYMBOL = re.compile(r'(?<!custom_call )@(?:"([^"]+)"|([\w.$-]+))')


@dataclass(frozen=True, slots=True)
class Export:
    """A module as text, and inputs to run it on: of several, those count whose results are finite."""

    name: str
    text: str
    fills: tuple[tuple[Array, ...], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """wrong: the results that differ, a sentence each. moving: whether a second run of all passes changes more.

    on_edge: the results that differ only with XLA's algebraic simplification, which multiplies by reciprocals and puts
    factors together where the shapes let it: another rounding, and at an edge, the end of a square root say, NaN.
    """

    wrong: tuple[str, ...]
    moving: bool
    on_edge: int = 0


def rewrite(text: str, passes: Sequence[str]) -> str:
    """The module after these passes."""
    with new_context() as context:
        module = parse_module("<module>", text.encode(), context).module
        run_pipeline(module, passes, OPTIONS)
        return serialise(module, "text").decode()


def variants(text: str) -> dict[str, str]:
    """The module as it came, and what the passes make of it: different texts, each by the first that makes it."""
    made: dict[str, str] = {}
    for variant, passes in {"as it came": (), **VARIANTS}.items():
        made.setdefault(rewrite(text, passes), variant)
    return {variant: output for output, variant in made.items()}


def check(export: Export) -> Verdict:
    """Run the module and what the passes make of it, and compare."""
    made = variants(export.text)
    moving = WHOLE in made and rewrite(made[WHOLE], DEFAULT_PASSES) != made[WHOLE]
    try:
        found = _differences(export, made, simplify=True)
    except JaxRuntimeError:
        if _is_compiled(export.text):
            raise
        return Verdict((), moving)  # XLA does not take the module as it came
    if not found:
        return Verdict((), moving)
    wrong = _differences(export, made, simplify=False)
    return Verdict(wrong, moving, 0 if wrong else len(found))


def _differences(export: Export, made: dict[str, str], *, simplify: bool) -> tuple[str, ...]:
    together = _compile(merge(list(made.values())), simplify=simplify)
    results = min((run_program(together, arrays) for arrays in export.fills), key=_count_strange)
    each = len(results) // len(made)
    wrong = []
    for position, variant in enumerate(made):
        for number in range(each):
            comparison = compare(results[number], results[position * each + number])
            if not comparison.passed:
                wrong.append(f"{export.name}, {variant}, result {number}: {comparison.problem}")
    return tuple(wrong)


def merge(texts: Sequence[str]) -> str:
    """One module of modules with the same arguments, which returns the results of all, one after the other.

    XLA compiles only once what they have in common, so this costs much less time than a compile of each.
    """
    with new_context() as context:
        kinds = [_type_of_main(ir.Module.parse(text, context)) for text in texts]
        names = [f"%arg{number}" for number in range(len(kinds[0].inputs))]
        arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds[0].inputs, strict=True))
        kind_of_all = ", ".join(str(item) for kind in kinds for item in kind.results)
        calls = [
            f"  %call{number}:{len(kind.results)} = call @main_{number}({', '.join(names)}) : {kind}"
            for number, kind in enumerate(kinds)
        ]
        results = [f"%call{number}#{i}" for number, kind in enumerate(kinds) for i in range(len(kind.results))]
    functions = [_with_other_names(text, number) for number, text in enumerate(texts)]
    head = f"func.func public @main({arguments}) -> ({kind_of_all}) {{"
    tail = f"  return {', '.join(results)} : {kind_of_all}"
    return "\n".join(["module {", *functions, head, *calls, tail, "}", "}"])


def _with_other_names(text: str, number: int) -> str:
    """The functions of a module, each with the number at the end of its name."""
    functions = text[text.index("\n") : text.rindex("}")]
    return _SYMBOL.sub(lambda found: f'@"{found[1] or found[2]}_{number}"', functions)


def _type_of_main(module: ir.Module) -> ir.FunctionType:
    for view in module.body.operations:
        attributes = view.operation.attributes
        if ir.StringAttr(attributes["sym_name"]).value == "main":
            return ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
    raise ValueError("there is no @main")


def _compile(text: str, *, simplify: bool) -> Program:
    """Compile without LLVM's optimisations: they take half of the time and see nothing of what the passes do."""
    check_device("cpu")
    client = backend.get_backend("cpu")
    device = client.local_devices()[0]
    options = xla_client.CompileOptions()
    options.env_option_overrides = [("xla_backend_optimization_level", 0)]
    if not simplify:
        options.env_option_overrides += [("xla_disable_hlo_passes", "algsimp")]
    return Program(client.compile_and_load(text, [device], options), [device])


def _is_compiled(text: str) -> bool:
    try:
        _compile(text, simplify=True)
    except JaxRuntimeError:
        return False
    return True


def _count_strange(results: list[Array]) -> int:
    """How many elements of the floats are NaN or infinite."""
    floats = [array for array in results if array.dtype.kind not in "iub"]
    return sum(int((~np.isfinite(array.astype(np.complex128))).sum()) for array in floats)
