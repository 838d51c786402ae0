"""The page: everything in it, nothing from elsewhere, nothing that a name could smuggle in."""

import json
import os
import re
import shlex
import shutil
import time
from dataclasses import fields, replace
from html.parser import HTMLParser
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from typer.main import get_command
from typer.testing import CliRunner

from unle import plot
from unle.cli import app
from unle.cli.inference import Request
from unle.cli.model import Model
from unle.cli.observation import Observation, read_observation
from unle.cli.settings import RunSettings
from unle.diagnose import CHECKS, Findings, default_checks, run_checks
from unle.diagnose.record import CheckKind
from unle.diagnose.runner import Entry
from unle.diagnose.summary import bayes_factor, export_draws, hdi, summarise
from unle.errors import InputError, StoreError
from unle.posterior import Draws
from unle.report import Picture, write_report
from unle.report.contents import _observation, command, observation_file, prior_rows, setting_rows
from unle.space import Prior, fit_x_space

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Checks that elements are closed in order, and collects ids and links."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.wrong = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes[name] for name in ("src", "href") if attributes.get(name)]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes[name] for name in ("src", "href", "xlink:href") if attributes.get(name)]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture(scope="module")
def page(story):
    path = write_report(story.run, story.posterior, story.draws, story.findings)
    return path.read_text(encoding="utf-8")


def test_without_a_simulator_the_verdict_is_not_good_and_says_what_would_settle_it(story, tmp_path):
    names = ["outlier", "sampler", "predictive"]
    found = run_checks(story.evidence, names)  # the evidence has no simulator
    assert [one.name for one in found.missing] == ["predictive"]
    assert {check.verdict for check in found.checks} == {"good"}
    assert found.verdict == "doubtful"
    assert found.reasons[-1].endswith("unle check DIR --model FILE.")
    assert "1 could not be made" in found.standing
    found.save(tmp_path / "checks")
    assert Findings.load(tmp_path / "checks").plain() == found.plain()


def test_the_banner_has_the_reasons_one_line_each(story, page):
    banner = page[page.index('class="headline') : page.index("<nav")]
    assert banner.count("<li>") == len(story.findings.reasons) > 0
    assert story.findings.standing in banner
    assert f"unle check {story.run.path}" in banner


def test_a_check_that_breaks_is_missing(story):
    broken = replace(story.evidence, x=story.evidence.x[:, :2])
    found = run_checks(broken, ["outlier", "sampler"])
    assert [one.name for one in found.missing] == ["outlier"]
    assert "it failed" in found.missing[0].reason
    assert found.verdict == "doubtful"


def test_default_checks_leave_the_long_ones_for_later(story, monkeypatch):
    kept = [entry for entry in CHECKS if entry.name in ("sampler", "short_run", "local_c2st")]
    monkeypatch.setattr("unle.diagnose.runner.CHECKS", tuple(kept))
    found = default_checks(story.evidence)
    assert [check.name for check in found.checks] == ["sampler"]
    assert {one.name for one in found.later} == {"short_run", "local_c2st"}
    assert found.verdict == "good"  # they are not needed for it
    assert "2 longer ones left to unle check" in found.standing


def test_the_page_is_whole_and_small(page):
    outline = Outline()
    outline.feed(page)
    assert not outline.wrong
    assert not outline.open
    assert len(outline.ids) == len(set(outline.ids))
    assert len(page) < 5e6


def test_nothing_comes_from_elsewhere(page):
    outline = Outline()
    outline.feed(page)
    assert [link for link in outline.links if not link.startswith(("#", "data:"))] == []
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_the_header_has_the_command_of_the_run(page, story):
    header = page[page.index("<header") : page.index("<nav")]
    assert (
        f"--budget 200 --draws 400 --seed 0 --observation {story.run.path}/x_o.json --out {story.run.path}</code>"
        in header
    )


def test_the_command_reads_the_observation_from_the_directory(story, tmp_path):
    write_report(story.run, story.posterior, story.draws, story.findings, tmp_path / "page.html")
    words = shlex.split(command(story.run.settings, str(story.run.path)))
    file = words[words.index("--observation") + 1]
    assert read_observation(file, None).record() == {"x_o": pytest.approx(np.array(story.run.settings["x_o"]))}
    named = {"x_o": [[1.0, 2.0], [3.0, 4.0]], "x_o_names": ["q", "p"]}
    (tmp_path / "x_o.json").write_text(observation_file(named))
    record = read_observation(str(tmp_path / "x_o.json"), None).record()
    assert {key: np.asarray(value).tolist() for key, value in record.items()} == named


def test_a_page_for_elsewhere_needs_nothing_written_in_the_directory(story, tmp_path, monkeypatch):
    def write(path, content):
        if path.parent != tmp_path:
            raise StoreError(f"{path} could not be written: Read-only file system.")
        path.write_bytes(content)

    monkeypatch.setattr("unle.report.contents.write_atomically", write)
    write_report(story.run, story.posterior, story.draws, story.findings, tmp_path / "page.html")
    assert "data:application/json," in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("dim", [4, 30])
def test_many_numbers_of_an_observation_are_drawn(dim, story, monkeypatch):
    seen = {}
    monkeypatch.setattr("unle.plot.observation", lambda x_o, **bands: seen.update(bands) or plot.new_figure)
    monkeypatch.setattr("unle.report.contents.picture", lambda name, *_: Picture(name, "", "", ""))
    checks = (replace(story.findings.checks[0], arrays={"replicas": np.ones((50, dim))}),)
    found = _observation(np.zeros((1, dim)), np.zeros((20, dim)), replace(story.findings, checks=checks), ())
    assert (found["picture"] is not None) == (dim == 30)
    assert (seen["replicas"].shape == (50, 30)) if dim == 30 else not seen


def test_the_story_is_told_in_order(page, story):
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert heads == ["The question", "The answer", "Can I believe it?", "How it was made"]
    for check in story.findings.checks:
        assert check.title in page
    for one in story.findings.skipped:
        assert one.title in page
    assert page.count("<svg") >= 8


def test_conditional_correlations_and_evidence_are_explained(page):
    assert "Numbers are the correlations of these conditional densities" in page
    assert re.search(r"Log-evidence -1.50 ± \S+ nats: the log-density of the observation", page)


def test_names_cannot_smuggle_in_markup(page):
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "a &amp; b" in page


def test_the_observation_can_be_saved_from_the_page(page, story):
    from urllib.parse import unquote

    content = json.loads(unquote(re.search(r'href="data:application/json,([^"]+)"', page).group(1)))
    np.testing.assert_allclose(content["x_o"], story.draws.x_o)


def test_the_command_line_writes_the_page_from_kept_findings(story, tmp_path):
    target = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(story.run.path), "--out", str(target)])
    assert result.exit_code == 0, result.output
    assert "verdict" in result.stdout
    assert target.stat().st_size > 50_000


def test_check_prints_json(story):
    result = CliRunner().invoke(app, ["check", str(story.run.path), "--only", "sampler", "--json"])
    assert result.exit_code == 0, result.output
    (check,) = json.loads(result.stdout)["checks"]
    assert check["name"] == "sampler"
    assert check["verdict"] in ("good", "doubtful", "bad")
    assert (
        len(json.loads((story.run.path / "checks.json").read_text())["checks"]) > 1
    )  # a part does not replace the whole


@pytest.fixture
def three(story, tmp_path, monkeypatch):
    """A run, the three checks in place of all that were made, and what the second raises."""
    made, stop = [], []

    def entry(name):
        kind = CheckKind(name, name, "?")

        def make(_):
            if name == "second" and stop:
                raise stop.pop()
            made.append(name)
            return kind.result("good", {"n": len(made)}, "Fine.", {"values": np.arange(3)})

        return Entry(kind, make)

    monkeypatch.setattr("unle.diagnose.runner.CHECKS", tuple(map(entry, ("first", "second", "third"))))
    return SimpleNamespace(run=shutil.copytree(story.run.path, tmp_path / "run"), made=made, stop=stop)


def test_finished_checks_are_kept_when_interrupted(three):
    run, made, stop = three.run, three.made, three.stop
    stop.append(KeyboardInterrupt)
    check = ["check", str(run)]
    before = (run / "checks.json").read_text()
    interrupted = CliRunner().invoke(app, check)
    assert interrupted.exit_code == 130
    assert "finished and kept: 1 check; the same command makes the others" in interrupted.stderr
    assert (run / "checks.json").read_text() == before  # of the whole; parts do not replace it
    assert CliRunner().invoke(app, check).exit_code == 0
    assert made == ["first", "second", "third"]
    found = Findings.load(run / "checks")
    assert [one.name for one in found.checks] == made
    assert found.checks[0].arrays["values"].tolist() == [0, 1, 2]
    assert not list(run.glob("checks_begun*"))
    for change in (["--seed", "5"], []):  # with another seed, or new draws, nothing is kept
        stop.append(KeyboardInterrupt)
        assert CliRunner().invoke(app, check).exit_code == 130
        if not change:
            after = time.time() + 10
            os.utime(run / "draws.nc", (after, after))
        made.clear()
        assert CliRunner().invoke(app, check + change).exit_code == 0
        assert made == ["first", "second", "third"]


def test_a_fresh_report_and_another_version_take_no_check_that_was_kept(three, monkeypatch):
    for later in (["report", str(three.run), "--fresh"], ["check", str(three.run)]):
        three.stop.append(KeyboardInterrupt)
        assert CliRunner().invoke(app, ["check", str(three.run)]).exit_code == 130
        assert (three.run / "checks_begun.json").exists()
        if later[0] == "check":
            monkeypatch.setattr("unle.diagnose.runner.versions", lambda: {"unle": "later"})
        three.made.clear()
        assert CliRunner().invoke(app, later).exit_code == 0
        assert three.made == ["first", "second", "third"]


def test_checks_that_cannot_be_kept_end_with_the_reason(three, monkeypatch):
    def full(*_):
        raise StoreError("checks_begun.json could not be written: No space left on device.")

    monkeypatch.setattr(Findings, "save", full)
    result = CliRunner().invoke(app, ["check", str(three.run)])
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert three.made == ["first"]


@pytest.mark.parametrize("change", ["another seed", "damaged"])
def test_what_cannot_be_gone_on_with_is_removed_at_once(three, change):
    """Or the names of one call could meet the arrays of another."""
    begun = three.run / "checks_begun.npz"
    three.stop[:] = [KeyboardInterrupt]
    assert CliRunner().invoke(app, ["check", str(three.run)]).exit_code == 130
    if change == "damaged":
        begun.write_bytes(begun.read_bytes()[:100])
    there = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Findings, "save", lambda *_: there.extend(three.run.glob("checks_begun*")))
        seed = ["--seed", "5"] * (change == "another seed")
        assert CliRunner().invoke(app, ["check", str(three.run), *seed]).exit_code == 0
    assert three.made == ["first", "first", "second", "third"]
    assert there == []


def test_what_an_interrupt_leaves_is_said_as_it_is(three, monkeypatch):
    def stopped(*words):
        three.stop[:] = [KeyboardInterrupt]
        result = CliRunner().invoke(app, [*words[:1], str(three.run), *words[1:]])
        assert result.exit_code == 130
        return result.stderr

    assert "finished and kept: 1 check; the same command makes the others." in stopped("check")
    assert "stopped; nothing was written." in stopped("check", "--only", "first", "--only", "second")
    assert "finished and kept: 1 check" in stopped("check")  # which made none of them again
    assert three.made == ["first", "first"]

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("unle.cli.check.require_fit", interrupt)
        (three.run / "checks_begun.json").write_text("{")
        assert "stopped; nothing was written." in stopped("check")
    three.stop.clear()
    monkeypatch.setattr("unle.report.write_report", interrupt)
    result = CliRunner().invoke(app, ["report", str(three.run), "--fresh"])
    assert "stopped; the report was not written." in result.stderr
    assert [one.name for one in Findings.load(three.run / "checks").checks] == ["first", "second", "third"]


@pytest.mark.parametrize("verb", ["check", "report"])
def test_an_unfinished_run_gives_one_sentence(tmp_path, verb):
    result = CliRunner().invoke(app, [verb, str(tmp_path)])
    assert result.exit_code == 1
    assert "holds no run" in result.stderr


def test_words_of_settings():
    spec = {"names": ["a", "b"], "blocks": [{"family": "Uniform", "arguments": {"low": [0.0, 1.0], "high": 2.0}}]}
    assert prior_rows(spec) == [("a", "Uniform(low 0, high 2)"), ("b", "Uniform(low 1, high 2)")]
    text = command({"model": "my model.py", "budget": 5, "seed": 0, "members": None, "x_o": [[1]]}, "runs/x")
    assert text == "unle run 'my model.py' --budget 5 --seed 0 --observation runs/x/x_o.json --out runs/x-again"
    sliced = {"model": "m.py", "method": "smnle", "sliced": True, "normaliser": "divi", "simulations_sha256": "1" * 64}
    assert command(sliced | {"budget": 9, "timeout": 2.0}, "r/") == (
        "unle run m.py --method smnle --normaliser divi --timeout 2.0 --sliced --simulations r/ --out r-again"
    )
    rows = dict(setting_rows({"members": None, "timeout": None, "rounds": [5, 4], "x_o": None, "model_sha256": "ab"}))
    assert rows == {"members": "default", "rounds": "5, 4", "check sum of the model": "ab"}


def test_the_command_takes_every_option_of_a_run():
    """Whoever adds a setting to `unle run` must add it to the command, or the run cannot be made again."""
    prior = Prior.uniform(low=[0.0], high=[1.0])
    model = Model("m.py", prior, len, checksum="ab")
    given = RunSettings("sunle", budget=9, timeout=1.0, rounds="5,4", normaliser="divi", members=2, iterations=3)
    given = replace(
        given,
        seed=7,
        flow="maf",
        sliced=True,
        draws=11,
        proposals="bases",
        repetition=True,
        memory="2GB",
        paper=True,
        summary="learned",
    )
    assert all(getattr(given, field.name) is not None for field in fields(given))
    settings = Request(model, given, Observation(np.zeros((1, 2))), simulations_sha256="cd").record()
    assert RunSettings.from_record(settings) == given
    assert all(value is not None for value in settings.values())
    words = shlex.split(command(settings, "runs/x"))
    known = {option for parameter in get_command(app).commands["run"].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    said = " ".join(words)
    others = (
        "prior",
        "x_o",
        "model",
        "model_sha256",
        "simulations_sha256",
        "budget",
        "rounds",
        "sliced",
        "paper",
        "repetition",
    )
    for name, value in settings.items():
        if name not in others:
            assert f"--{name} {value}" in said, name
    parts = (
        "--rounds 5,4",
        "--sliced",
        "--paper",
        "--repetition",
        "--simulations runs/x",
        "--observation runs/x/x_o.json",
    )
    assert [part for part in parts if part not in said] == []
    assert "--no-repetition" in command({**settings, "repetition": False}, "runs/x")
    assert "repetition" not in command({"model": "m.py"}, "runs/x")


def test_summary_and_its_intervals(story):
    found = summarise(story.draws, prior=np.random.default_rng(0).uniform(-1, 1, size=(1000, 3)))
    assert (found.hdi_low < found.mean).all()
    assert (found.shrinkage > 0.8).all()
    assert found.log_evidence_error < 0.2
    low, high = hdi(np.concatenate([np.zeros(95), np.full(5, 9.0)]))
    assert (low, high) == (0.0, 0.0)


def test_partial_correlation_is_that_of_a_gaussian():
    rng = np.random.default_rng(1)
    cause = rng.normal(size=20_000)
    values = np.stack([cause, cause + rng.normal(size=20_000), cause + rng.normal(size=20_000)], axis=1)
    found = summarise(Draws(values[None], ("a", "b", "c"), np.zeros((1, 1)), 0))
    assert found.correlation[1, 2] == pytest.approx(0.5, abs=0.03)
    assert found.partial[1, 2] == pytest.approx(0.0, abs=0.03)


def test_bayes_factor_of_a_model_with_itself_is_nothing(story):
    same = bayes_factor((story.posterior, story.draws), (story.posterior, story.draws))
    assert same.log_factor == 0
    other = Draws(story.draws.values, story.draws.names, story.draws.x_o + 1, 0, -1.0)
    with pytest.raises(InputError, match="same observation"):
        bayes_factor((story.posterior, story.draws), (story.posterior, other))


def test_bayes_factor_wants_pairs(story):
    with pytest.raises(InputError, match="two pairs of a posterior and its draws"):
        bayes_factor(story.draws, story.draws)


def test_bayes_factor_is_that_of_densities_of_x(story):
    """Two Gaussian models of x, each seen in coordinates of its own: the factor is the ratio of their densities."""
    x_o, pairs, exact = np.array([[0.7]]), [], []
    for scale in (1.0, 10.0):
        x = scale * np.random.default_rng(0).normal(size=(400, 1))
        space = fit_x_space(x)
        w = float(space.forward(jnp.asarray(x_o[0], jnp.float32))[0])
        likelihood = SimpleNamespace(space_of_x=lambda space=space: space)
        evidence = norm.logpdf(w)  # in the coordinates of the fit
        posterior = SimpleNamespace(likelihood=likelihood, summary=None)
        pairs.append((posterior, Draws(np.zeros((2, 9, 1)), ("a",), x_o, 0, evidence)))
        exact.append(norm.logpdf(x_o[0, 0], x.mean(), x.std()))
    assert bayes_factor(*pairs).log_factor == pytest.approx(exact[0] - exact[1], abs=0.02)


def test_the_command_line_exports_draws(story, tmp_path):
    file = tmp_path / "draws.csv"
    result = CliRunner().invoke(app, ["export", str(story.run.path), str(file), "--draws"])
    assert result.exit_code == 0, result.stderr
    assert len(file.read_text().splitlines()) == len(story.draws) + 1


def test_draws_are_exported(story, tmp_path):
    path = export_draws(story.draws, tmp_path / "draws.csv")
    lines = path.read_text().splitlines()
    assert len(lines) == len(story.draws) + 1
    assert lines[1].startswith("0,0,")
    assert Draws.load(export_draws(story.draws, tmp_path / "d.nc")).names == story.draws.names
    with pytest.raises(StoreError, match="not overwritten"):
        export_draws(story.draws, path)
    with pytest.raises(InputError, match=r"\.nc, \.zarr or \.csv"):
        export_draws(story.draws, tmp_path / "draws.xls")


def test_numbers_of_the_observation_have_the_names_of_the_simulations(story, page, tmp_path):
    assert "rest &lt;b&gt; = -0.12" not in page
    named = replace(story.posterior, x_names=("mean", "sd", "count", "rest <b>"))
    path = write_report(story.run, named, story.draws, story.findings, tmp_path / "named.html")
    text = path.read_text(encoding="utf-8")
    assert "mean = 0.2; sd = -0.3; count = 0.1; rest &lt;b&gt; = -0.12" in " ".join(text.split())
