"""The scripts: each starts, and says what it does when it is asked; those that the pages name exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*(ROOT / "scripts").glob("*.py"), *(ROOT / "examples").glob("*.py")])
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")])
# Others import these; and the example of a method has no options, and runs as a whole in its own test.
PARTS = ("paper_variants", "versus", "linear_gaussian")


def missing(text: str) -> list[str]:
    """Return the scripts that a page names and that are not there."""
    return [name for name in re.findall(r"\b(?:scripts|examples)/\w+\.py", text) if not (ROOT / name).is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_scripts_that_pages_name_exist(page):
    assert missing(page.read_text(encoding="utf-8")) == []


def test_a_script_that_is_gone_is_caught():
    assert missing("python scripts/nothing.py --seed 1") == ["scripts/nothing.py"]


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_starts_and_says_what_it_does(path, tmp_path):
    words = ["-c", f"import {path.stem}"] if path.stem in PARTS else [str(path), "--help"]
    environment = os.environ | {"PYTHONPATH": str(path.parent)}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert path.stem in PARTS or done.stdout.startswith("usage: ")
    assert list(tmp_path.iterdir()) == []
