"""What is published: the wheel and the source archive hold what they should, and install into an empty environment."""

import os
import re
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import unle

ROOT = Path(__file__).parents[1]
DATA = {
    "unle/py.typed",
    "unle/report/page.html",
    "unle/report/script.js",
    "unle/report/style.css",
    "unle_bench/py.typed",
    "unle_bench/paper/gallery.html",
    "unle_bench/paper/pyloric_published.json",
    "unle_bench/results/published.csv",
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Return the wheel and the source archive, built from this checkout."""
    hatchling = pytest.importorskip("hatchling.build", reason="needs the extra dev")
    folder, before = tmp_path_factory.mktemp("dist"), Path.cwd()
    os.chdir(ROOT)
    try:
        return folder / hatchling.build_wheel(str(folder)), folder / hatchling.build_sdist(str(folder))
    finally:
        os.chdir(before)


def test_the_wheel_holds_both_packages_with_their_data_and_nothing_else(archives):
    names = {name for name in zipfile.ZipFile(archives[0]).namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert names == modules | DATA


def test_every_data_file_of_the_source_is_in_the_list():
    ignored = {".py", ".pyc", ".nbc", ".nbi"}  # sources, and what Python and numba cache beside them
    files = {path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix not in ignored}
    assert {path.relative_to(ROOT / "src").as_posix() for path in files} == DATA


def test_the_source_archive_holds_what_a_contributor_needs(archives):
    names = {name.partition("/")[2] for name in tarfile.open(archives[1]).getnames()}
    needed = {"pyproject.toml", "Makefile", "constraints.txt", "mkdocs.yml", "README.md", "LICENSE", "CITATION.cff"}
    needed |= {"CHANGELOG.md", "CONTRIBUTING.md", "tests/test_distribution.py", "docs/index.md", "scripts/notebooks.py"}
    assert needed | {f"src/{name}" for name in DATA} <= names
    assert not [name for name in names if name.startswith((".venv", "site/", "runs/")) or "__pycache__" in name]


def test_one_version_everywhere(archives):
    version = unle.__version__
    assert all(re.match(rf"unle-{re.escape(version)}[-.]", path.name) for path in archives)
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d{{2}}-\d{{2}}", headings[0])


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def installed(python, folder):
    """Return the files of the installed package, without those that say how it was installed."""
    code = "from importlib.metadata import files; print(*files('unle'), sep='\\n')"
    files = run(python, "-I", "-c", code, cwd=folder).splitlines()
    return {name for name in files if name.startswith(("unle/", "unle_bench/")) and "__pycache__" not in name}


@pytest.mark.slow
def test_both_archives_install_into_an_empty_environment_and_work(archives, tmp_path):
    """Takes minutes, and needs a package index: all dependencies are installed."""
    wheel, sdist = archives
    venv.create(tmp_path / "venv", with_pip=True)
    python, unle_command = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "unle"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    assert installed(python, tmp_path) == {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert unle.__version__ in run(unle_command, "--version", cwd=tmp_path)
    small = ["--observation", "1", "--budget", "64", "--members", "1", "--iterations", "50", "--draws", "400"]
    assert "verdict: " in run(unle_command, "run", "two_moons", *small, "--out", "mine", cwd=tmp_path)
    assert "<svg" in (tmp_path / "mine" / "report.html").read_text(encoding="utf-8")
    assert "two_moons" in run(unle_command, "tasks", cwd=tmp_path)

    from_wheel = installed(python, tmp_path)
    run(*pip, "--no-deps", "--force-reinstall", sdist, cwd=tmp_path)
    assert installed(python, tmp_path) == from_wheel
    assert unle.__version__ in run(unle_command, "--version", cwd=tmp_path)
