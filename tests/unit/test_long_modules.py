"""Long chains, deep nests and many loops: no recursion to their depth, and work in proportion to their length."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from jaxlib.mlir import ir

from benchmarks.scaling import module_text
from exla_opt.ir.clean_up import clean_up
from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.passes.tensor_splitter.graph import Node
from exla_opt.passes.tensor_splitter.regions import growth
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline

T, ROW = "tensor<64x64xf32>", "tensor<64xf32>"
DOT = "stablehlo.dot_general {}, {}, contracting_dims = [1] x [0]" + f" : ({T}, {T}) -> {T}"


def sum_of(operand: str) -> str:
    return f"stablehlo.reduce({operand} init: %zero) applies stablehlo.add across dimensions = [1] : ({T}, tensor<f32>) -> {ROW}"


# Each step makes %vN+1 of %vN, with other values whose names end in the number too.
STEPS: dict[str, Callable[[int], list[str]]] = {
    "elementwise": lambda n: [f"%v{n + 1} = stablehlo.sine %v{n} : {T}"],
    "diamond": lambda n: [
        f"%a{n} = stablehlo.sine %v{n} : {T}",
        f"%b{n} = stablehlo.cosine %v{n} : {T}",
        f"%v{n + 1} = stablehlo.add %a{n}, %b{n} : {T}",
    ],
    "doubled": lambda n: [f"%v{n + 1} = stablehlo.add %v{n}, %v{n} : {T}"],
    "added": lambda n: [f"%v{n + 1} = stablehlo.add %v{n}, %y : {T}"],
    "dots": lambda n: [f"%v{n + 1} = " + DOT.format(f"%v{n}", "%y")],
    "squared": lambda n: [f"%v{n + 1} = " + DOT.format(f"%v{n}", f"%v{n}")],
    "reshaped": lambda n: [
        f"%a{n} = stablehlo.reshape %v{n} : ({T}) -> tensor<4096xf32>",
        f"%b{n} = stablehlo.sine %a{n} : tensor<4096xf32>",
        f"%v{n + 1} = stablehlo.reshape %b{n} : (tensor<4096xf32>) -> {T}",
    ],
    "repeated": lambda n: [
        f"%a{n} = {sum_of(f'%v{n}')}",
        f"%b{n} = stablehlo.broadcast_in_dim %a{n}, dims = [0] : ({ROW}) -> {T}",
        f"%v{n + 1} = stablehlo.multiply %v{n}, %b{n} : {T}",
    ],
}


# Steps of which results leave the chain: by kind, the names and the type of what each returns.
LEAVING = {
    "returned": ("v{}", T),
    "summed": ("r{}", ROW),
    "opaque": ("o{}", ROW),
    "crossed": ("w{}", T),
}


def returned_chain(kind: str, length: int) -> str:
    """A chain of sines in which every step has a result of its own."""
    name, made = LEAVING[kind]
    lines = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>"]
    for n in range(length):
        lines.append(f"%v{n + 1} = stablehlo.sine %v{n} : {T}")
        lines.append(f"%r{n + 1} = {sum_of(f'%v{n + 1}')}")
        lines.append(f"%o{n + 1} = stablehlo.custom_call @opaque(%v{n + 1}) : ({T}) -> {ROW}")
        lines.append(f"%w{n + 1} = " + DOT.format(f"%v{n + 1}", f"%v{n + 1}"))
    used = [line for line in lines if line[1] in ("z", "v", name[0])]
    results = ", ".join("%" + name.format(n + 1) for n in range(length))
    types = ", ".join([made] * length)
    body = "\n".join(used)
    return f"func.func public @main(%v0: {T}) -> ({types}) {{\n{body}\nreturn {results} : {types}\n}}\n"


def chain(kind: str, length: int) -> str:
    lines = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>"]
    for number in range(length):
        lines += STEPS[kind](number)
    body = "\n".join(lines)
    return f"func.func public @main(%v0: {T}, %y: {T}) -> {T} {{\n{body}\nreturn %v{length} : {T}\n}}\n"


def rewritten(text: str, threshold: int) -> str:
    """The module after the whole pipeline, which can be read again."""
    with new_context() as context:
        module = parse_module("in.mlir", text.encode(), context).module
        run_pipeline(module, DEFAULT_PASSES, Options(threshold))
        made = serialise(module, "text")
    parse_module("out.mlir", made, new_context())
    return made.decode()


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize(("threshold", "length"), [(10**9, 1500), (2000, 300)])
def test_chains_of_any_length(kind: str, threshold: int, length: int) -> None:
    assert rewritten(chain(kind, length), threshold).startswith("module")


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a search for a region looked at an op, as "all"."""
    counts: Counter[str] = Counter()
    visit = growth._Growth.visit

    def counted(growth: growth._Growth, node: Node) -> bool:
        counts["all"] += 1
        return visit(growth, node)

    monkeypatch.setattr(growth._Growth, "visit", counted)
    return counts


@pytest.mark.parametrize("kind", LEAVING)
def test_a_refusal_is_found_once_for_all_steps_of_a_chain(kind: str, visits: Counter[str]) -> None:
    """Each step stays for a reason of its own, and the search from it leads to the same region as from the first."""
    length = 200
    assert rewritten(returned_chain(kind, length), 2000).startswith("module")
    assert visits["all"] < 60 * length


def test_what_is_returned_is_not_searched(visits: Counter[str]) -> None:
    rewritten(returned_chain("returned", 50), 2000)
    assert not visits


def test_long_regions_are_searched_once(visits: Counter[str]) -> None:
    """A chain that takes too many loops takes them from wherever in it the search begins."""
    length = 200
    for kind in ("squared", "repeated"):
        visits.clear()
        rewritten(chain(kind, length), 2000)
        assert visits["all"] < 60 * length


def test_deep_nests() -> None:
    depth = 150
    opened = [
        f"%w{n} = stablehlo.while(%q{n} = %{'q' if n else 'v'}{n - 1 if n else 0}) : {T} cond {{ stablehlo.return %p : tensor<i1> }} do {{"
        for n in range(depth)
    ]
    closed = [f"stablehlo.return %{f'w{n + 1}' if n + 1 < depth else 's'} : {T}\n}}" for n in reversed(range(depth))]
    body = "\n".join([*opened, f"%s = stablehlo.sine %q{depth - 1} : {T}", *closed])
    text = f"func.func public @main(%v0: {T}, %p: tensor<i1>) -> {T} {{\n{body}\nreturn %w0 : {T}\n}}\n"
    assert rewritten(text, 10**9).count("stablehlo.while") == depth


def functions(length: int, last: str) -> str:
    call = "func.func {} @f{}(%x: {T}) -> {T} {{\n%0 = func.call @{}(%x) : ({T}) -> {T}\nreturn %0 : {T}\n}}\n"
    made = [call.format("private" if n else "public", n, f"f{n + 1}", T=T) for n in range(length)]
    return "".join(made) + last


def test_long_chains_of_calls() -> None:
    last = f"func.func private @f1500(%x: {T}) -> {T} {{\n%0 = stablehlo.sine %x : {T}\nreturn %0 : {T}\n}}\n"
    assert rewritten(functions(1500, last), 10**9).count("func.func") == 1


def test_long_circles_of_calls_are_refused() -> None:
    last = (
        f"func.func private @f1500(%x: {T}) -> {T} {{\n%0 = func.call @f700(%x) : ({T}) -> {T}\nreturn %0 : {T}\n}}\n"
    )
    with pytest.raises(InputError, match="function @f700 calls itself: recursion cannot be compiled"):
        rewritten(functions(1500, last), 10**9)


def loops(kinds: list[str]) -> str:
    """A loop for each kind, all from the same numbers; the kind is what each captures."""
    lines = [f"%c{k} = stablehlo.{k} %x : tensor<f32>" for k in dict.fromkeys(kinds)]
    lines.append("%start = stablehlo.constant dense<0.0> : tensor<f32>")
    for number, kind in enumerate(kinds):
        lines.append(f"%w{number} = stablehlo.while(%q{number} = %start) : tensor<f32> cond {{")
        lines.append(
            f"%l{number} = stablehlo.compare LT, %q{number}, %c{kind} : (tensor<f32>, tensor<f32>) -> tensor<i1>"
        )
        lines.append(f"stablehlo.return %l{number} : tensor<i1>\n}} do {{")
        lines.append(f"%a{number} = stablehlo.add %q{number}, %c{kind} : tensor<f32>")
        lines.append(f"stablehlo.return %a{number} : tensor<f32>\n}}")
    results = ", ".join(f"%w{number}" for number in range(len(kinds)))
    types = ", ".join(["tensor<f32>"] * len(kinds))
    body = "\n".join(lines)
    return f"func.func public @main(%x: tensor<f32>) -> ({types}) {{\n{body}\nreturn {results} : {types}\n}}\n"


@pytest.mark.parametrize("count", [40, 400])
def test_equal_loops_become_one_however_many_there_are(count: int) -> None:
    kinds = [("sine", "cosine", "tanh")[number % 3] for number in range(count)]
    module = ir.Module.parse(loops(kinds), new_context())
    clean_up(module)
    assert str(module).count("stablehlo.while") == 3
    assert "exla." not in str(module)


def test_the_output_depends_on_the_input_alone() -> None:
    text = module_text(2)
    command = [sys.executable, "-m", "exla_opt", "-", "--size-threshold=100MB", "--split-size=20MB"]
    made = {
        subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("0", "1", "2026")
    }
    assert len(made) == 1
    assert made.pop().count("stablehlo.while") == 4, "each layer's attention by heads, and each head's by rows"
