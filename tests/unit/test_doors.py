"""Modules as others write them: XLA's dumps, and files of jax.export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

from exla_opt.cli.opt import main as exla_opt
from exla_opt.cli.run import main as exla_run
from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import parse_module, read_module
from exla_opt.ir.write import serialise


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.sum(jax.nn.softmax(q @ k.T) @ v)


SPECS = [jax.ShapeDtypeStruct((301, 8), jnp.float32)] * 3
SIZES = ("--size-threshold=64KB", "--split-size=32KB")


def length(number: int) -> bytes:
    """A varint."""
    return bytes([number & 127 | 128, number >> 7]) if number > 127 else bytes([number])


@pytest.fixture(scope="module")
def forms() -> dict[str, bytes]:
    lowered: Any = jax.jit(attention).lower(*SPECS).compiler_ir("hlo")
    proto = lowered.as_serialized_hlo_module_proto()
    dump = b"\n" + length(len(proto)) + proto + b"\x1a\x00"
    optimised = jax.jit(attention).lower(*SPECS).compile().as_text()
    assert optimised is not None
    return {"text": lowered.as_hlo_text().encode(), "proto": proto, "dump": dump, "optimised": optimised.encode()}


@pytest.mark.parametrize("form", ["text", "proto", "dump"])
def test_hlo_is_read_split_and_run(forms: dict[str, bytes], form: str, tmp_path: Path) -> None:
    source, smaller = tmp_path / "dump", tmp_path / "smaller.pb"
    source.write_bytes(forms[form])
    done = CliRunner().invoke(exla_opt, [str(source), *SIZES, "--emit=hlo", "-o", str(smaller)])
    assert done.exit_code == 0, done.output
    assert "stablehlo.while" in str(parse_module("smaller", smaller.read_bytes(), new_context()).module)
    done = CliRunner().invoke(exla_run, [str(smaller), "--compare", str(source)])
    assert done.exit_code == 0 and done.output.endswith("PASSED\n"), done.output


def test_a_dump_keeps_the_lines_of_the_program(forms: dict[str, bytes]) -> None:
    module = parse_module("dump", forms["proto"], new_context()).module
    assert "test_doors.py" in serialise(module, "text").decode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"HloModule x\n\nENTRY a {\n ROOT b = f32[2]{0} foo(c)\n}\n", "this HLO is damaged: Unknown opcode: foo"),
        (b"HloModule \xff", "this HLO is not text"),
        (b"\n\x01x\x12\x01y", "XLA cannot read this HLO"),
    ],
)
def test_damaged_hlo_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_module("dump", data, new_context())


def test_what_xla_has_optimised_is_refused(forms: dict[str, bytes]) -> None:
    with pytest.raises(InputError, match="has been optimised") as raised:
        parse_module("dump", forms["optimised"], new_context())
    assert "before_optimizations" in raised.value.help


def test_other_files_of_a_dump_name_the_right_one(tmp_path: Path) -> None:
    name = "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt"
    with pytest.raises(InputError, match="what XLA made of a program") as raised:
        parse_module(name, b"BufferAssignment:\nallocation 0: size 48", new_context())
    assert "before_optimizations" in raised.value.help
    with pytest.raises(InputError, match="Is a directory") as folder:
        read_module(str(tmp_path), new_context())
    assert "before_optimizations" in folder.value.help


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_file_of_jax_export_comes_out_as_one(order: int, tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    source, smaller = tmp_path / "f.jax", tmp_path / "smaller.jax"
    exported = jax.export.export(jax.jit(attention))(*SPECS)
    source.write_bytes(exported.serialize(vjp_order=order))
    done = CliRunner().invoke(exla_opt, [str(source), *SIZES, "-o", str(smaller)])
    assert done.exit_code == 0, done.output
    again = jax.export.deserialize(bytearray(smaller.read_bytes()))
    given = [jax.random.normal(jax.random.key(seed), (301, 8)) for seed in range(3)]
    np.testing.assert_allclose(again.call(*given), attention(*given), rtol=1e-4)
    for _ in range(order + 1):
        assert "stablehlo.while" in again.mlir_module()
        again = again.vjp() if again.has_vjp() else again
    if order:
        found = jax.grad(jax.export.deserialize(bytearray(smaller.read_bytes())).call)(*given)
        np.testing.assert_allclose(found, jax.grad(attention)(*given), rtol=1e-4, atol=1e-5)
    done = CliRunner().invoke(exla_run, [str(smaller), "--compare", str(source)])
    assert done.exit_code == 0 and done.output.endswith("PASSED\n"), done.output


def test_only_a_file_of_jax_export_can_be_written_as_one(tmp_path: Path) -> None:
    source = tmp_path / "f.mlir"
    source.write_text(jax.jit(attention).lower(*SPECS).as_text())
    done = CliRunner().invoke(exla_opt, [str(source), "--emit=jax", "-o", str(tmp_path / "f.jax")])
    assert done.exit_code == 1 and "needs such a file as its input" in done.output
    assert not (tmp_path / "f.jax").exists()


def test_a_damaged_file_of_jax_export_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    source = tmp_path / "f.jax"
    data = jax.export.export(jax.jit(attention))(*SPECS).serialize()
    source.write_bytes(bytes(data[:4]) + bytes(60) + bytes(data[64:]))
    done = CliRunner().invoke(exla_opt, [str(source)])
    assert done.exit_code == 1 and "f.jax: error: " in done.output and "Traceback" not in done.output
