"""The files that --report writes: what is in them, and that they are whole, safe and readable without a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exla_opt import __version__
from exla_opt.cli.opt import main
from exla_opt.pipeline import DEFAULT_PASSES

# One tensor of 4 MB that can be split, and two of 1.2 MB that cannot.
MIXED = """module @mixed {
  func.func public @main(%x: tensor<1000x4xf32>, %y: tensor<1000x4xf32>, %v: tensor<1000xf32>, %w: tensor<300000xf32>) -> (tensor<1000xf32>, tensor<f32>) {
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : (tensor<1000x4xf32>, tensor<1000x4xf32>) -> tensor<1000x1000xf32>
    %1 = stablehlo.exponential %0 : tensor<1000x1000xf32>
    %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<1000x1000xf32>, tensor<1000xf32>) -> tensor<1000xf32>
    %n = stablehlo.negate %w : tensor<300000xf32>
    %s = "stablehlo.sort"(%n) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }) {dimension = 0 : i64} : (tensor<300000xf32>) -> tensor<300000xf32>
    %p = stablehlo.slice %s [7:8] : (tensor<300000xf32>) -> tensor<1xf32>
    %q = stablehlo.reshape %p : (tensor<1xf32>) -> tensor<f32>
    return %2, %q : tensor<1000xf32>, tensor<f32>
  }
}
"""
EMPTY = "func.func @main() { return }"
NASTY = "</script><script>alert(1)</script><!--&"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def opt(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["--size-threshold=1MB", "--split-size=500KB", *arguments])


def report(folder: Path, suffix: str, text: str = MIXED, name: str = "m.mlir") -> str:
    """The report of one run, as text."""
    source, target = folder / name, folder / f"report{suffix}"
    source.write_text(text)
    done = opt(str(source), "-o", str(folder / "out.mlir"), "--quiet", f"--report={target}")
    assert (done.exit_code, done.output) == (0, "")
    return target.read_text()


def data_of(folder: Path, text: str = MIXED, name: str = "m.mlir") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report(folder, ".json", text, name))
    return found


def test_data(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    source = str(tmp_path / "m.mlir")
    assert (data["format"], data["version"], data["input"]) == (1, __version__, source)
    assert data["options"] == {
        "memory_limit": None,
        "target": None,
        "size_threshold": 10**6,
        "split_size": 500_000,
        "nested_tiles": False,
        "reassociate": True,
        "chain_cost": "both",
        "op_rules": [],
        "passes": [*DEFAULT_PASSES],
    }
    before, after = data["before"], data["after"]
    assert before["largest_tensor"] == {"type": "1000x1000xf32", "bytes": 4_000_000}
    assert after["largest_tensor"] == {"type": "300000xf32", "bytes": 1_200_000}
    assert (before["loops"], after["loops"]) == (0, 1)
    held = {"arguments": 2 * 16_000 + 4_000 + 1_200_000, "results": 4_000 + 4 + 2 * 8, "aliased": 0}
    for side, temp in ((before, 5_200_000), (after, pytest.approx(1_702_000, rel=0.01))):
        assert side["memory"] == {**held, "temp": temp, "peak": sum(held.values()) + side["memory"]["temp"]}
        assert side["points"][side["peak_point"]]["bytes"] == side["memory"]["temp"]
        for number, point in enumerate(side["points"]):
            alive = [tensor for tensor in side["tensors"] if tensor["first"] <= number <= tensor["last"]]
            assert sum(tensor["bytes"] for tensor in alive) <= point["bytes"]
    assert before["peak_point"] == 1
    assert before["points"][0] == {
        "op": "stablehlo.dot_general",
        "location": f"{source}:3:10",
        "depth": 0,
        "bytes": 4_000_000,
    }
    assert before["tensors"][0] == {
        "type": "1000x1000xf32",
        "bytes": 4_000_000,
        "op": "stablehlo.dot_general",
        "location": f"{source}:3:10",
        "first": 0,
        "last": 1,
        "copy_of": None,
    }
    assert {point["depth"] for point in after["points"]} == {0, 1}


def test_data_with_a_memory_limit(tmp_path: Path) -> None:
    source, target = tmp_path / "m.mlir", tmp_path / "r.json"
    source.write_text(MIXED)
    for limit, fits in (("5MB", True), ("1MB", False)):
        done = CliRunner().invoke(main, [str(source), "--quiet", f"--memory-limit={limit}", f"--report={target}"])
        assert done.exit_code == 0
        data = json.loads(target.read_text())
        assert data["options"]["memory_limit"] == int(limit[0]) * 10**6
        assert data["fit"]["fits"] == fits
        assert (data["fit"]["held_by"] is None) == fits
        assert (data["fit"]["peak"] <= data["options"]["memory_limit"]) == fits
        assert data["options"]["split_size"] <= data["options"]["size_threshold"]
        assert data["before"]["memory"]["peak"] > 6_000_000
        assert data["fit"]["unknown"] == data["before"]["unknown"] == []


def test_data_of_remarks_and_times(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    source = str(tmp_path / "m.mlir")
    (changed,) = data["changed"]
    assert changed == {
        "code": "EX001",
        "pass": "tensor-splitter",
        "tensor": "1000x1000xf32",
        "bytes": 4_000_000,
        "devices": 1,
        "count": 1,
        "location": f"{source}:3:10",
        "message": "split over dimension 0 (1000): 8 tiles of 125, with 1 more big tensor",
        "stopped_by": None,
        "stopped_at": None,
    }
    stopped, sort = [one for one in data["not_changed"] if one["pass"] == "tensor-splitter"]
    (counted,) = [one for one in data["not_changed"] if one["pass"] == "order-statistics"]
    assert (counted["code"], counted["location"]) == ("EX701", f"{source}:7:10")
    assert (stopped["stopped_by"], stopped["stopped_at"]) == ("stablehlo.sort", f"{source}:7:10")
    assert (sort["location"], sort["stopped_by"]) == (f"{source}:7:10", None)
    steps = data["seconds"]
    assert [one["step"] for one in steps] == ["Parser", *DEFAULT_PASSES, "Output", "Rest", "Total"]
    assert sum(one["seconds"] for one in steps[:-1]) == pytest.approx(steps[-1]["seconds"])


class _Page(HTMLParser):
    """Collects tags, what they load, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] not in ("script", "style"):
            self.text.append(data)


def test_the_page_tells_everything_and_loads_nothing(tmp_path: Path) -> None:
    text = report(tmp_path, ".html")
    page = _Page(text)
    assert page.loads == []
    assert {"link", "iframe", "img"}.isdisjoint(page.tags)
    assert "default-src 'none'" in text
    assert not re.search(r"@@\w+@@", text)
    words = " ".join(" ".join(page.text).split())
    for part in (
        "6.44MB → 2.94MB",
        "5.2MB → 1.7MB",
        "4MB → 1.2MB",
        "0 → 1",
        "including 1.24MB of arguments and results",
        "split over dimension 0 (1000): 8 tiles of 125",
        "not split: stablehlo.sort compares all elements",
        f"stopped by stablehlo.sort at {tmp_path}/m.mlir:7:10",
        "tensor-splitter, EX001",
        " s ",
    ):
        assert part in words
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    shown, data = json.loads(found), data_of(tmp_path)
    assert {key: data[key] for key in ("options", "fit", "before", "after")} == shown


def test_text_of_the_module_stays_text(tmp_path: Path) -> None:
    located = re.sub(
        r"(stablehlo\.sort.*?tensor<300000xf32>\) -> tensor<300000xf32>)$",
        rf'\1 loc("{NASTY}")',
        MIXED,
        flags=re.M | re.S,
    )
    located = re.sub(r"(-> tensor<300000xf32>)\n", rf'\1 loc("{NASTY}")\n', located)
    name = "<b>&amp;.mlir"
    text = report(tmp_path, ".html", located, name)
    assert NASTY not in text
    assert escape(NASTY) in text, "the remark on the sort names its place"
    assert name not in text
    assert escape(name) in text
    page = _Page(text)
    assert page.tags.count("script") == 3
    assert "b" not in page.tags
    assert NASTY in " ".join(page.text)
    assert any(tensor["location"] == NASTY for tensor in data_of(tmp_path, located, name)["before"]["tensors"])


@pytest.mark.parametrize("suffix", [".html", ".json"])
def test_a_function_without_ops(tmp_path: Path, suffix: str) -> None:
    text = report(tmp_path, suffix, EMPTY)
    if suffix == ".json":
        side = json.loads(text)["after"]
        assert (side["points"], side["tensors"], side["largest_tensor"]) == ([], [], None)
        assert (side["memory"]["peak"], side["peak_point"]) == (0, None)
        return
    assert "No pass had to leave a big tensor alone." in text


def test_calls_are_followed_where_they_are_inlined_first(tmp_path: Path) -> None:
    text = MIXED.replace("public @main", "private @inner").replace("module @mixed {", "").rstrip().removesuffix("}")
    types = "(tensor<1000x4xf32>, tensor<1000x4xf32>, tensor<1000xf32>, tensor<300000xf32>) -> (tensor<1000xf32>, tensor<f32>)"
    outer = (
        "func.func @main(%x: tensor<1000x4xf32>, %y: tensor<1000x4xf32>, %v: tensor<1000xf32>, %w: tensor<300000xf32>) "
        "-> (tensor<1000xf32>, tensor<f32>) {"
        f"\n%0:2 = call @inner(%x, %y, %v, %w) : {types}\nreturn %0#0, %0#1 : tensor<1000xf32>, tensor<f32>\n}}\n"
    )
    assert data_of(tmp_path, outer + text)["before"]["memory"]["temp"] == 5_200_000


def test_several_reports_of_one_run(tmp_path: Path) -> None:
    source = tmp_path / "m.mlir"
    source.write_text(MIXED)
    page, data = tmp_path / "r.html", tmp_path / "r.JSON"
    done = opt(str(source), "-o", str(source), f"--report={page}", "--report", str(data))
    assert done.exit_code == 0
    assert page.exists()
    assert data.exists()
    assert "remark: 300000xf32" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--report=r.txt"], "'r.txt' must end in .html or .json"),
        (["--report"], "requires an argument"),
        (["--report", "m.mlir"], "'m.mlir' must end in .html or .json; --summary prints the table"),
        (["--report", "-o", "out.mlir"], "'-o' must end in .html or .json"),
        (["--report=r.json", "-o", "r.json"], "--report and --output name the same file"),
        (["--report=r.json", "-o", "./r.json"], "--report and --output name the same file"),
        (["--report=r.json", "--remarks-output=r.json"], "--remarks-output and --report name the same file"),
    ],
)
def test_wrong_usage(arguments: list[str], sentence: str) -> None:
    done = opt(*arguments)
    assert done.exit_code == 2
    assert sentence in " ".join(done.stderr.split())


def test_a_page_without_plotly_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    done = opt("nothing.mlir", f"--report={tmp_path / 'r.html'}")
    assert done.exit_code == 2
    assert "a report as a page needs plotly: pip install 'exla-opt[report]'" in " ".join(done.stderr.split())
    assert report(tmp_path, ".json")


def test_plotly_is_loaded_for_pages_only(tmp_path: Path) -> None:
    source = tmp_path / "m.mlir"
    source.write_text(MIXED)
    code = f"""
import sys
from exla_opt.cli.opt import main
try:
    main([{str(source)!r}, "-o", "/dev/null", "--report={tmp_path}/r.json"])
except SystemExit as done:
    assert done.code == 0
print("plotly" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("suffix", [".html", ".json"])
def test_a_place_that_cannot_be_written(tmp_path: Path, suffix: str) -> None:
    source, folder = tmp_path / "m.mlir", tmp_path / f"folder{suffix}"
    source.write_text(MIXED)
    folder.mkdir()
    for target, reason in ((folder, "Is a directory"), (tmp_path / "none" / f"r{suffix}", "No such file or directory")):
        done = opt(str(source), "-o", str(tmp_path / "out.mlir"), "--quiet", f"--report={target}")
        assert done.exit_code == 1
        assert done.stderr == f"{target}: error: cannot write output file: {reason}\n"
    assert {path.name for path in tmp_path.iterdir()} == {"m.mlir", folder.name}, "it was refused before the work"
    assert list(folder.iterdir()) == []


def test_a_report_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = report(tmp_path, ".json")

    def fail(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    done = opt(str(tmp_path / "m.mlir"), "--quiet", f"--report={tmp_path / 'report.json'}")
    assert done.exit_code == 1
    assert done.stderr == f"{tmp_path / 'report.json'}: error: cannot write output file: No space left on device\n"
    assert (tmp_path / "report.json").read_text() == text
    assert {path.name for path in tmp_path.iterdir()} == {"m.mlir", "out.mlir", "report.json"}


# Moves the mouse to where the chart shows a loop, and leaves in the title what the page shows then.
PROBE = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
document.addEventListener("securitypolicyviolation", (event) => errors.push(event.violatedDirective));
addEventListener("load", () => setTimeout(() => {
  const plot = document.querySelector(".nsewdrag");
  const peaks = document.getElementById("alive").innerText;
  if (plot) {
    const box = plot.getBoundingClientRect();
    const place = { clientX: box.left + box.width * 0.72, clientY: box.top + 9, bubbles: true };
    plot.dispatchEvent(new MouseEvent("mousemove", place));
  }
  document.getElementById("logarithmic")?.click();
  setTimeout(() => {
    document.title = "PROBE" + JSON.stringify({
      errors, peaks,
      hovered: document.getElementById("alive").innerText,
      page: document.documentElement.scrollWidth,
      window: document.documentElement.clientWidth,
      labels: [...document.querySelectorAll(".hovertext, .ytick, .legendtext")].map((label) => label.textContent),
    }) + "END";
  }, 500);
}, 500));
</script>"""


def look(page: Path, width: int) -> dict[str, Any]:
    """What the page shows in a window of this width, in which the mouse moves over the chart."""
    if BROWSER is None:
        pytest.skip("no Chromium on this system")
    page.write_text(page.read_text().replace("</head>", PROBE + "</head>", 1))
    profile = page.parent / "profile"
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    command += [f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<title>PROBE(.*?)END</title>", done.stdout, re.S)
    assert found is not None, done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return seen


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_in_a_browser(tmp_path: Path, width: int) -> None:
    report(tmp_path, ".html", MIXED)
    seen = look(tmp_path / "report.html", width)
    assert seen["errors"] == []
    assert seen["page"] <= seen["window"]
    assert "Before, at the peak: 6.44MB" in seen["peaks"]
    assert f"{tmp_path}/m.mlir:3:10" in seen["peaks"]
    assert "Before: 6.44MB" in seen["hovered"]
    assert "125x1000xf32" in seen["hovered"]
    assert {"Before", "After", "Threshold for one tensor, 1MB", "10MB"} <= set(seen["labels"])


def test_an_empty_function_in_a_browser(tmp_path: Path) -> None:
    report(tmp_path, ".html", EMPTY)
    seen = look(tmp_path / "report.html", 390)
    assert (seen["errors"], seen["hovered"]) == ([], "")
    assert seen["page"] <= seen["window"]
