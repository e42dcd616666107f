"""exla-reduce: the smallest module for which a question is still answered with yes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from jaxlib.mlir import ir

from exla_opt.cli.reduce import main
from exla_opt.ir.context import new_context
from exla_opt.ir.read import parse_module
from exla_opt.ir.write import serialise
from exla_opt.options import Options
from exla_opt.pipeline import DEFAULT_PASSES, run_pipeline
from exla_opt.reduce import NotInteresting, Search, reduce_module

ROOT = Path(__file__).parents[2]


def reduced(text: str, interesting: Callable[[str], bool]) -> Search:
    """Reduce a module; every candidate must be valid text."""
    context = new_context()

    def ask(candidate: bytes) -> bool:
        parse_module("candidate", candidate, context)
        return interesting(candidate.decode())

    return reduce_module(serialise(ir.Module.parse(text, context), "text"), context, ask)


def has(*parts: str) -> Callable[[str], bool]:
    return lambda text: all(part in text for part in parts)


def chain(length: int, needle: int) -> str:
    """A long function: one op in it is a tan."""
    lines = ["%0 = stablehlo.add %x, %y : tensor<8xf32>"]
    for number in range(1, length):
        op = f"tan %{number - 1}" if number == needle else f"multiply %{number - 1}, %{number // 2}"
        lines.append(f"%{number} = stablehlo.{op} : tensor<8xf32>")
    body = "\n".join(lines)
    return f"func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {{\n{body}\nreturn %{length - 1} : tensor<8xf32>\n}}"


@pytest.mark.parametrize("needle", [1, 500, 999])
def test_one_op_among_a_thousand_takes_few_checks(needle: int) -> None:
    found = reduced(chain(1000, needle), has("stablehlo.tan"))
    assert len(re.findall(r"stablehlo\.(?!constant)", found.text.decode())) == 1
    assert b"tensor<8x" not in found.text
    assert found.checks < 60


def test_two_ops_far_apart_that_need_each_other() -> None:
    def interesting(text: str) -> bool:
        return re.search(r"(%\d+) = stablehlo\.tan .*(?s:.*)stablehlo\.sine", text) is not None

    text = chain(300, 50).replace("%280 = stablehlo.multiply %279, %140", "%280 = stablehlo.sine %279")
    out = reduced(text, interesting).text.decode()
    assert re.findall(r"stablehlo\.(\w+)", out) in (["constant", "tan", "sine"], ["tan", "sine"])


def test_the_same_every_time() -> None:
    texts = {reduced(chain(60, 31), has("stablehlo.tan")).text for _ in range(2)}
    assert len(texts) == 1


def test_a_module_that_is_not_interesting() -> None:
    with pytest.raises(NotInteresting):
        reduced(chain(5, 1), has("stablehlo.sine"))


WHILE = """func.func @main(%x: tensor<8xf32> {tf.aliasing_output = 1 : i32, jax.buffer_donor = true}, %n: tensor<i32>) -> (tensor<i32> {jax.result_info = "a"}, tensor<8xf32> {jax.result_info = "b"}) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %loop:3 = stablehlo.while(%i = %zero, %a = %x, %b = %x) : tensor<i32>, tensor<8xf32>, tensor<8xf32>
    cond {
      %less = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %c = stablehlo.tanh %a : tensor<8xf32>
      %d = stablehlo.cosine %b : tensor<8xf32>
      stablehlo.return %next, %c, %d : tensor<i32>, tensor<8xf32>, tensor<8xf32>
    }
  %j = stablehlo.add %loop#0, %n : tensor<i32>
  %p = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %k = "stablehlo.if"(%p) ({
    %s = stablehlo.sine %loop#1 : tensor<8xf32>
    stablehlo.return %s : tensor<8xf32>
  }, {
    %t = stablehlo.log %loop#2 : tensor<8xf32>
    stablehlo.return %t : tensor<8xf32>
  }) {mhlo.frontend_attributes = {a = "b"}} : (tensor<i1>) -> tensor<8xf32>
  return %j, %k : tensor<i32>, tensor<8xf32>
}"""


@pytest.mark.parametrize(
    ("parts", "gone"),
    [
        (("stablehlo.while", "stablehlo.tanh"), ("cosine", "stablehlo.if", "aliasing", "8xf32", "result_info", "%arg1")),
        (("stablehlo.cosine",), ("while", "tanh", "stablehlo.if")),
        (("stablehlo.log",), ("while", "stablehlo.if", "sine")),
        (("stablehlo.if", "stablehlo.sine"), ("while", "log", "frontend_attributes", "8xf32")),
        (("jax.buffer_donor",), ("stablehlo.", "aliasing_output", "tensor<i32>")),
        (("mhlo.frontend_attributes",), ("while", "sine", "log")),
        (("stablehlo.compare", "dense<1>"), ("stablehlo.if", "f32")),
    ],
)  # fmt: skip
def test_only_what_is_asked_for_is_left(parts: tuple[str, ...], gone: tuple[str, ...]) -> None:
    out = reduced(WHILE, has(*parts)).text.decode()
    for part in gone:
        assert part not in out, out


def test_ops_that_nothing_needs_stay_if_somebody_asks_for_them() -> None:
    text = "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n%0 = stablehlo.tanh %x : tensor<8xf32>\nreturn %x : tensor<8xf32>\n}"
    out = reduced(text, lambda text: text.count("%0") == 1).text.decode()
    assert "stablehlo.tanh" in out


def test_a_sample_that_is_split_is_reduced_to_what_is_split() -> None:
    options = Options(size_threshold=20 * 10**6)

    def interesting(text: str) -> bool:
        module = parse_module("candidate", text.encode(), new_context()).module
        run_pipeline(module, DEFAULT_PASSES, options)
        return "stablehlo.while" in str(module)

    found = reduced((ROOT / "examples" / "attention.mlir").read_text(), interesting)
    assert interesting(found.text.decode())
    assert len(re.findall(r"stablehlo\.(?!constant)", found.text.decode())) <= 3
    assert found.checks < 150


def run(*arguments: str) -> tuple[int, str, str]:
    """The exit status of exla-reduce, and what it printed."""
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.stdout, done.stderr


def test_the_command_line(tmp_path: Path) -> None:
    source, target = tmp_path / "with space.mlir", tmp_path / "small.mlir"
    source.write_text(chain(20, 7))
    status, out, said = run(str(source), "--check", "cat {} | grep -q stablehlo.tan", "-o", str(target))
    assert (status, out) == (0, "")
    assert "stablehlo.tan" in target.read_text()
    assert re.fullmatch(
        rf"{re.escape(str(source))}: 20 ops, 1\.\d+KB, became 2 ops, \d+B \(\d+ checks, [\d.]+ s\)\n", said
    )
    assert source.read_text() == chain(20, 7)
    assert run(str(source), "--check", "grep -q stablehlo.tan", "--quiet") == (0, target.read_text(), "")


@pytest.mark.parametrize(
    ("check", "words"),
    [("exit 3 #", "exits with 3"), ("sleep 9 #", "does not end within 0.2 seconds"), ("no-such-command", "exits with 127")],
)  # fmt: skip
def test_what_is_not_interesting_is_told_in_one_sentence(tmp_path: Path, check: str, words: str) -> None:
    source, target = tmp_path / "in.mlir", tmp_path / "out.mlir"
    source.write_text(chain(5, 1))
    status, out, said = run(str(source), "--check", check, "--timeout", "0.2", "-o", str(target))
    assert (status, out) == (1, "")
    assert said.startswith(f"{source}: error: the module is not interesting itself: the command {words}")
    assert not target.exists()


@pytest.mark.parametrize("arguments", [(), ("--check", " "), ("--check", "true", "--timeout", "0")])
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(chain(5, 1))
    assert run(str(source), *arguments)[0] == 2


def test_the_input_is_never_overwritten(tmp_path: Path) -> None:
    source, link = tmp_path / "in.mlir", tmp_path / "link.mlir"
    source.write_text(chain(5, 1))
    link.symlink_to(source)
    assert run(str(source), "--check", "true", "-o", str(link))[0] == 2
    assert source.read_text() == chain(5, 1)


def test_an_interrupt_writes_the_smallest_so_far(tmp_path: Path) -> None:
    source, target = tmp_path / "in.mlir", tmp_path / "out.mlir"
    source.write_text(chain(100, 50))
    small = tmp_path / "small"
    check = (
        "grep -q stablehlo.tan {} || exit 1; "
        f"[ -e {small} ] && sleep 60; [ $(wc -c < {{}}) -lt 3000 ] && touch {small}; exit 0"
    )
    code = "from exla_opt.cli.reduce import main; main()"
    # What runs in the background of a script ignores an interrupt, and so would its children.
    command = ["env", "--default-signal=INT", sys.executable, "-c", code, str(source)]
    command += ["--check", check, "-o", str(target)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    end = time.monotonic() + 30
    while time.monotonic() < end and not small.exists():
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in said
    assert 0 < len(target.read_text()) < 3000
