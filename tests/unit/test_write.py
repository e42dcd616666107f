"""Writing: whole or not at all, and nothing lost on the way."""

import array
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from jaxlib.mlir import ir

from exla_opt.ir.context import new_context
from exla_opt.ir.diagnostics import InputError
from exla_opt.ir.read import read_module
from exla_opt.ir.write import Emit, check_writable, has_own_locations, serialise, write_data

MODULE = """module @m attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<4x8xf32> {jax.buffer_donor = true}) -> (tensor<4x2xf32> {jax.result_info = "x"}) {
    %values, %indices = chlo.top_k(%arg0, k = 2) : tensor<4x8xf32> -> (tensor<4x2xf32>, tensor<4x2xi32>)
    return %values : tensor<4x2xf32>
  }
}
"""
LOCATED = MODULE.replace("xi32>)\n", 'xi32>) loc("model.py":3:4)\n')


def parse(text: str) -> ir.Module:
    return ir.Module.parse(text, new_context())


@pytest.mark.parametrize("emit", ["text", "bytecode", "portable"])
@pytest.mark.parametrize("text", [MODULE, LOCATED])
def test_round_trip(tmp_path: Path, emit: Emit, text: str) -> None:
    module = parse(text)
    path = tmp_path / "out"
    write_data(serialise(module, emit), str(path))
    back = read_module(str(path), new_context()).module
    assert serialise(back, "text") == serialise(module, "text")
    assert serialise(back, emit) == path.read_bytes()


def test_text_has_locations_exactly_if_the_input_had() -> None:
    assert not has_own_locations(parse(MODULE))
    assert serialise(parse(MODULE), "text").decode() == MODULE
    written = serialise(parse(LOCATED), "text").decode()
    assert 'loc("model.py":3:4)' in written
    assert serialise(parse(written), "text").decode() == written


@pytest.mark.parametrize(
    ("location", "own"),
    [('"model.py":1:2', True), ('"name"', True), ('fused["a.py":1:2, "-":1:1]', True), ("unknown", False),
     ('"-":7:8', False), ('callsite("-":7:8 at "b.py":1:1)', True)],
)  # fmt: skip
def test_which_locations_are_the_inputs_own(location: str, own: bool) -> None:
    assert has_own_locations(parse(LOCATED.replace('"model.py":3:4', location))) is own


def test_locations_of_arguments_count() -> None:
    assert has_own_locations(parse(MODULE.replace("donor = true}", 'donor = true} loc("x")')))


def test_serialising_leaves_the_module_alone() -> None:
    module = parse(LOCATED)
    before = serialise(module, "text")
    serialise(module, "portable")
    assert serialise(module, "text") == before


def test_big_constants_are_never_elided() -> None:
    with (context := new_context()), ir.Location.unknown():
        module = ir.Module.parse(MODULE, context)
        values = ir.DenseElementsAttr.get(array.array("f", range(100_000)))
        module.operation.attributes["mhlo.big"] = values
        assert np.array_equal(
            np.asarray(
                ir.DenseElementsAttr(parse(serialise(module, "text").decode()).operation.attributes["mhlo.big"])
            ),
            np.arange(100_000, dtype=np.float32),
        )


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    new = tmp_path / "new"
    write_data(serialise(parse(MODULE), "text"), str(new))
    assert new.stat().st_mode == plain.stat().st_mode
    os.chmod(new, 0o640)
    write_data(serialise(parse(MODULE), "text"), str(new))
    assert stat.S_IMODE(new.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_data(serialise(parse(MODULE), "text"), str(link))
    assert link.is_symlink()
    assert target.read_text() == MODULE


def test_devices_are_written_into(tmp_path: Path) -> None:
    write_data(serialise(parse(MODULE), "bytecode"), os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match="cannot write output file: No space left on device"):
        write_data(serialise(parse(MODULE), "text"), str(path))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "none" / "out.mlir"
    with pytest.raises(InputError, match="No such file or directory") as caught:
        write_data(serialise(parse(MODULE), "text"), str(path))
    assert caught.value.file == str(path)


def test_what_can_be_written_is_told_beforehand(tmp_path: Path) -> None:
    """A pipe lies in no folder that takes new files: it is opened itself."""
    reading, writing = os.pipe()
    (tmp_path / "file").write_text("")
    for name in (f"/dev/fd/{writing}", "/dev/null", str(tmp_path / "new"), str(tmp_path / "file"), "-"):
        check_writable(name)
    for name, reason in (("", "Is a directory"), ("file/x", "Not a directory"), ("none/x", "No such file")):
        with pytest.raises(InputError, match=f"cannot write output file: {reason}"):
            check_writable(str(tmp_path / name))
    os.close(reading)
    os.close(writing)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
