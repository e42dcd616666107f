"""One name everywhere: a pass on the command line, its module, its golden tests and its docs page."""

import tomllib
from pathlib import Path

import pytest

from exla_opt.pipeline import DEFAULT_PASSES, PASSES, description

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_has_one_name(name: str) -> None:
    module = name.replace("-", "_")
    assert (ROOT / "passes" / f"{module}.py").exists() or (ROOT / "passes" / module / "__init__.py").exists()
    assert PASSES[name].__module__ == f"exla_opt.passes.{module}"
    assert any((ROOT / "tests" / "lit" / name).glob("*.mlir"))
    page = (ROOT / "docs" / "passes" / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n")


def test_nothing_lies_about_without_a_pass() -> None:
    names = set(PASSES)
    modules = {path.stem for path in (ROOT / "passes").iterdir() if not path.name.startswith("_")}
    assert modules == {name.replace("-", "_") for name in names} | {"algebra"}  # what two passes share
    assert {path.stem for path in (ROOT / "docs" / "passes").glob("*.md")} == names
    folders = {path.parent for path in (ROOT / "tests" / "lit").glob("*/*.mlir")}
    assert {path.name for path in folders} - {"exla-opt", "exla-reduce", "exla-run"} == names


def test_the_default_passes_exist_and_begin_and_end_clean() -> None:
    assert set(DEFAULT_PASSES) <= set(PASSES)
    assert DEFAULT_PASSES[0] == DEFAULT_PASSES[-1] == "normalise"


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_says_what_it_does_in_its_first_line(name: str) -> None:
    assert len(description(name)) > 20


def test_every_package_is_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["setuptools"]["packages"]
    folders = {path.parent for top in ("exla_opt", "passes") for path in (ROOT / top).rglob("__init__.py")}
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    renamed = {f"exla_opt.{name}" if name.split(".")[0] == "passes" else name for name in found}
    assert sorted(renamed) == shipped
