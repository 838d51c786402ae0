"""The tutorials: their code runs, and their text says what they printed."""

import ast
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?!\w)")


def cells(path: Path, kind: str) -> list[dict]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell: dict) -> str:
    return "".join(cell["source"])


def printed(path: Path) -> str:
    """Return everything that the notebook printed."""
    outputs = [output for cell in cells(path, "code") for output in cell["outputs"]]
    return "\n".join("".join(output.get("text", "")) for output in outputs)


def unsupported(text: str, evidence: str) -> list[str]:
    """Return the decimal numbers of a text, outside formulas and code, that are not in the evidence."""
    known = set(NUMBER.findall(evidence))
    prose = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    prose = re.sub(r"\$.*?\$|`.*?`|\(http.*?\)", "", prose)
    return [number for number in NUMBER.findall(prose) if number not in known]


def imported(code: str) -> list[tuple[str, str]]:
    """Return (module, name) of every import from this project."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("unle", "unle_bench"):
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def test_there_are_six():
    assert len(NOTEBOOKS) == 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_executed_without_errors_and_ends_in_a_picture(path):
    outputs = [output for cell in cells(path, "code") for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert re.search(r"^verdict: (good|doubtful|bad)( \(|$)", printed(path), flags=re.MULTILINE)
    assert path.stat().st_size < 600_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_imports_exists(path):
    for cell in cells(path, "code"):
        for module, name in imported(source(cell)):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_numbers_in_the_text_were_printed(path):
    text = "\n".join(source(cell) for cell in cells(path, "markdown"))
    code = "\n".join(source(cell) for cell in cells(path, "code"))
    assert unsupported(text, printed(path) + code) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_verdicts_in_the_text_were_printed(path):
    text = "\n".join(source(cell) for cell in cells(path, "markdown"))
    for word in re.findall(r"\*\*(good|doubtful|bad)\*\*", text):
        assert f"verdict: {word}" in printed(path)


def test_a_number_that_was_not_printed_is_caught():
    assert unsupported("R0 is 3.71, not 2.50.", "R0 3.71") == ["2.50"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path):
    pytest.importorskip("nbclient", reason="needs the extra docs")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        notebooks = importlib.import_module("notebooks")
    finally:
        sys.path.pop(0)
    outputs = [output for cell in notebooks.execute(path).cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
