"""What imports what: the table in docs/contributing.md is true, and there are no circles."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from exla_opt.ops.traits import Trait

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([\w/.]+)`[^|]*\|[^|]*\|([^|]*)\|$", re.MULTILINE)
LAYOUT = {
    path: banned for path, banned in ROW.findall((ROOT / "docs/contributing.md").read_text()) if (ROOT / path).exists()
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("exla_opt", *parts) if parts[0] == "passes" else parts).removesuffix(".__init__")


MODULES = {
    module_name(path): path
    for top in ("exla_opt", "passes")
    for path in sorted((ROOT / top).rglob("*.py"))
    if not path.is_relative_to(ROOT / "exla_opt" / "passes")
}


def imports_of(path: Path, everywhere: bool) -> set[str]:
    """The modules that a file imports; everywhere: inside functions as well."""
    tree = ast.parse(path.read_text())
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join([*base, *filter(None, [node.module])])
            found |= {inner if (inner := f"{name}.{alias.name}") in MODULES else name for alias in node.names}
    return found


@pytest.mark.parametrize("folder", LAYOUT)
def test_a_folder_imports_only_what_its_row_allows(folder: str) -> None:
    place = ROOT / folder
    banned = re.findall(r"\b(cli|report|runtime|passes|resize|memory|ops)\b", LAYOUT[folder])
    for path in [place] if place.is_file() else place.rglob("*.py"):
        for name in imports_of(path, everywhere=True):
            assert not any(name == f"exla_opt.{one}" or name.startswith(f"exla_opt.{one}.") for one in banned), path


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: imports_of(path, everywhere=True) & MODULES.keys() for name, path in MODULES.items()}
    list(TopologicalSorter(graph).static_order())


def strings_of(path: Path) -> set[str]:
    """The strings of a file's code, and the fixed parts of those that are put together; no docstrings."""
    tree = ast.parse(path.read_text())
    notes = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in notes)
    return {node.value for node in constants if isinstance(node.value, str)}


def test_the_tensor_splitter_names_no_op() -> None:
    """What it does with an op follows from factors, traits and the model of memory."""
    dialects = ("stablehlo.", "chlo.")
    named = {
        f"{path.name}: {text}"
        for path in sorted((ROOT / "passes" / "tensor_splitter").rglob("*.py"))
        for text in strings_of(path)
        if text.startswith(dialects) and text not in dialects
    }
    assert not named


def test_every_trait_is_asked_for() -> None:
    """A trait that nobody reads is knowledge that stands somewhere else, or nowhere."""
    code = "".join(path.read_text() for name, path in MODULES.items() if name != "exla_opt.ops.traits")
    assert not [trait.name for trait in Trait if not re.search(rf"\bTrait\.{trait.name}\b", code)]
