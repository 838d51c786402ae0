"""`unle run --paper`: the algorithms of the paper on the command line."""

import json

import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.diagnose import run_checks

RUN = ["run", "bimodal", "--paper", "--observation", "1"]


@pytest.mark.parametrize(
    "checks", [["outlier", "training", "sampler"], pytest.param(None, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_a_run_of_the_paper_is_kept_and_said_to_be_one(tmp_path, monkeypatch, checks):
    if checks:
        monkeypatch.setattr("unle.diagnose.default_checks", lambda run, keep_in: run_checks(run, checks))
    options = ["--budget", "100", "--iterations", "2", "--draws", "200", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*RUN, *options])
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["paper"] is True
    assert "verdict: " in result.output
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "energy of theta and x" in page  # the figure of the training
    watched = CliRunner().invoke(app, ["watch", str(tmp_path / "run"), "--once"])
    assert watched.exit_code == 0, watched.output


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--members", "3"], "--members"),
        (["--method", "nle"], "aunle or sunle"),
        (["--method", "sunle", "--normaliser", "tilted"], "exchange"),
        (["--memory", "1GB"], "--memory"),
    ],
)
def test_options_that_the_paper_does_not_have_are_refused(tmp_path, options, word):
    result = CliRunner().invoke(app, [*RUN, *options, "--out", str(tmp_path / "run")])
    assert result.exit_code != 0
    assert word in result.output
