"""`unle run --method nle | snle | smnle`."""

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.diagnose import c2st_fast
from unle.posterior import Draws
from unle_bench import task

ENDING = ["--draws", "400", "--observation", "1", "--no-report", "--iterations", "50"]


def unle(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--method", "nle", "--rounds", 3], "--method sunle or snle only; nle has one round"),
        (["--method", "nle", "--normaliser", "divi"], "nle has a normaliser"),
        (["--method", "aunle", "--flow", "maf"], "aunle has no flow"),
        (["--method", "nle", "--flow", "glow"], "expected --flow to be maf or spline; got 'glow'"),
        (["--method", "nle", "--sliced"], "nle matches no scores"),
        (["--method", "smnle", "--normaliser", "online"], "expected --normaliser to be divi or exchange"),
        (["--method", "smnle", "--members", 3], "expected no --members"),
        (["--method", "guess"], "aunle, sunle, nle, snle, smnle"),
    ],
)
def test_options_that_a_method_would_ignore_are_refused(options, complaint, tmp_path):
    result = unle("run", "bimodal", *options, "--observation", 1, "--out", tmp_path / "run")
    assert result.exit_code != 0
    assert complaint in " ".join(result.output.split())
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--method", "nle", "--flow", "spline", "--budget", 100],
        ["--method", "snle", "--budget", 120, "--rounds", 2],
        ["--method", "smnle", "--sliced", "--normaliser", "divi", "--budget", 100],
    ],
    ids=["nle", "snle", "smnle"],
)
def test_a_run_ends_with_draws_and_resumes_to_the_same(options, tmp_path):
    out = tmp_path / "run"
    result = unle("run", "bimodal", *options, *ENDING, "--out", out)
    assert result.exit_code == 0, result.output
    first = np.asarray(Draws.load(out / "draws.nc"))
    assert len(first) >= 400
    for file in [out / "draws.nc", *out.glob("rounds/*/likelihood.*")]:  # as after a kill in the last fit
        file.unlink()
    result = unle("run", "bimodal", *options, *ENDING, "--out", out)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.asarray(Draws.load(out / "draws.nc")), first)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--sliced"]], ids=["exact", "sliced"])
def test_smnle_as_a_command_finds_both_moons(options, tmp_path):
    """All settings as they come, C2ST against what is published for sliced score matching."""
    out = tmp_path / "run"
    asked = ["--method", "smnle", "--budget", 1000, "--observation", 1, "--draws", 2000, "--no-report", "--out", out]
    result = unle("run", "two_moons", *asked, *options)
    assert result.exit_code == 0, result.output
    draws = np.asarray(Draws.load(out / "draws.nc"))
    moons = task("two_moons")
    reference = moons.reference(moons.observation(1), 2000, seed=0)
    share = np.mean(draws[:, 0] < reference[:, 0].mean())
    assert 0.2 < share < 0.8
    assert float(c2st_fast(reference, draws[:2000])) < 0.834  # published, sliced; .955 exact
