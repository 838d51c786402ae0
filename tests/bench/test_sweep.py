"""Sweeps: what is planned, what is written, what survives."""

import json
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.errors import InputError, StoreError, UnleWarning
from unle_bench import TASKS
from unle_bench.cli import bench as bench_command
from unle_bench.methods import registry as registry_room
from unle_bench.methods.method_adapter import AbstractMethodAdapter, Outcome
from unle_bench.methods.registry import METHODS
from unle_bench.paper.results_page import results_page
from unle_bench.results.published import SOURCES, best, number_of, published
from unle_bench.results.results_store import OK, Cell, ResultsStore
from unle_bench.results.summaries import summaries
from unle_bench.results.tables import comparison
from unle_bench.sweep import scoring as scoring_room
from unle_bench.sweep.run_sweep import run_sweep
from unle_bench.sweep.scoring import Scorer, problem_with, reference_draws
from unle_bench.sweep.sweep import Job, Sweep, fail_job
from unle_bench.tasks.task import Task

DRAWS = 100
OWN = """
import numpy as np
from unle_bench.methods.method_adapter import AbstractMethodAdapter, Outcome

class Fake(AbstractMethodAdapter):
    calls = []
    def infer(self, task, *, budget, seed, observations, draws):
        Fake.calls.append((task.name, budget, seed, tuple(observations)))
        if budget == 13:
            raise ValueError("unlucky\\nnumber")
        rng = np.random.default_rng(seed)
        found = {i: rng.normal(size=(draws, task.dim_theta)) for i in observations}
        if 2 in found and budget == 7:
            found[2][3, 0] = np.nan
        return Outcome(draws=found, seconds={"train": 2.0, "infer": 1.0 * len(found)}, notes={"mine": 1})

class OneByOne(Fake):
    sequential = True

class Together(Fake):
    side_by_side = True
    def infer(self, task, *, budget, seed, observations, draws):
        if seed == 2:
            raise ValueError("unlucky seed")
        return super().infer(task, budget=budget, seed=seed, observations=observations, draws=draws)

METHODS = {"fake": Fake(), "rounds": OneByOne(), "together": Together()}
"""


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    registry_room._with_files.cache_clear()
    return str(file)


@pytest.fixture(autouse=True)
def _no_classifier(monkeypatch):
    """Training classifiers takes seconds, and they have tests of their own."""
    monkeypatch.setattr(Scorer, "_c2st", lambda self, references, sets: np.full(len(sets), 0.75))


def sweep_of(own, **changes):
    parts = {"tasks": ("two_moons",), "methods": ("fake",), "observations": (1, 2, 3), "scorer": Scorer(DRAWS)}
    return Sweep(**(parts | {"extra": (own,)} | changes))


def test_jobs_share_a_fit_unless_the_method_is_sequential(own):
    sweep = sweep_of(own, methods=("fake", "rounds"), seeds=(0, 1))
    jobs = sweep.jobs([])
    assert Job("two_moons", "fake", 1000, 1, (1, 2, 3)) in jobs
    assert [job.observations for job in jobs if job.method == "rounds" and job.seed == 0] == [(1,), (2,), (3,)]
    assert len(sweep.cells()) == 12
    left = sweep.jobs([Cell("two_moons", "fake", 1000, 0, 2)])
    assert Job("two_moons", "fake", 1000, 0, (1, 3)) in left
    assert sweep.jobs(sweep.cells()) == []


def test_teams_are_seeds_of_methods_that_allow_it(own):
    sweep = sweep_of(own, methods=("fake", "together"), seeds=(0, 1, 2), budgets=(10, 20))
    sizes = [(team[0].method, team[0].budget, len(team)) for team in sweep.teams([], 2)]
    alone = [("fake", 10, 1)] * 3
    assert sorted(sizes) == sorted(
        [*alone, *(("fake", 20, 1),) * 3, *((("together", b, n)) for b in (10, 20) for n in (2, 1))]
    )
    assert {job for team in sweep.teams([], 2) for job in team} == set(sweep.jobs([]))
    assert all(len(team) == 1 for team in sweep.teams([], 1))


def test_a_team_writes_the_rows_that_its_jobs_would_write_alone(own, tmp_path):
    sweep = sweep_of(own, methods=("together",), seeds=(0, 1, 2))
    run_sweep(sweep, tmp_path / "team.sqlite", together=3)
    run_sweep(sweep, tmp_path / "alone.sqlite")
    found = {}
    for name in ("team", "alone"):
        with ResultsStore(tmp_path / f"{name}.sqlite") as results:
            found[name] = results.rows()
            assert results.running() == []
    assert len(found["team"]) == 9
    for row, other in zip(found["team"], found["alone"], strict=True):
        assert [row[k] for k in ("seed", "observation", "outcome", "mmd")] == [
            other[k] for k in ("seed", "observation", "outcome", "mmd")
        ]
        assert (row["outcome"] == OK) == (row["seed"] != 2)  # whoever fails does not spoil the others
    assert {(row["conditions"]["team"], row["train_s"]) for row in found["team"]} == {(3, None)}
    assert {row["train_s"] for row in found["alone"] if row["seed"] != 2} == {2.0}


def test_seeds_that_lack_different_rows_are_no_team(own):
    sweep = sweep_of(own, methods=("together",), seeds=(0, 1, 2))
    teams = sweep.teams([Cell("two_moons", "together", 1000, 1, 2)], 3)
    assert sorted([job.seed for job in team] for team in teams) == [[0, 2], [1]]


def test_a_task_with_one_observation_of_its_own_takes_one(own):
    assert [cell.observation for cell in sweep_of(own, tasks=("bimodal",)).cells()] == [1]


def test_rows_are_written_with_numbers_and_conditions(own, tmp_path):
    path = tmp_path / "r.sqlite"
    seen = []
    run_sweep(sweep_of(own), path, on_row=lambda cell, outcome, numbers: seen.append(cell))
    with ResultsStore(path) as results:
        rows = results.rows()
        assert results.running() == []
        kept = results.record(Cell("two_moons", "fake", 1000, 0, 1), "draws")["draws"]
        assert results.records("draws") == [Cell("two_moons", "fake", 1000, 0, 1)]  # one observation of one seed
    assert len(seen) == len(rows) == 3
    assert kept.shape == (DRAWS, 2)
    for row in rows:
        assert (row["outcome"], row["c2st"], row["train_s"], row["infer_s"]) == (OK, 0.75, 2.0, 1.0)
        assert row["energy_distance"] > 4 * row["energy_distance_error"] > 0
        assert row["mean_error"] > 0
        assert np.isfinite(row["energy_score"])
        assert row["conditions"]["draws"] == DRAWS
        assert row["conditions"]["together"] == 3
        assert row["conditions"]["mine"] == 1


def test_failures_are_rows_with_a_reason(own, tmp_path):
    path = tmp_path / "r.sqlite"
    run_sweep(sweep_of(own, budgets=(13, 7)), path)
    with ResultsStore(path) as results:
        rows = {(row["budget"], row["observation"]): row for row in results.rows()}
        assert rows[13, 1]["outcome"] == "ValueError: unlucky number"
        assert rows[7, 2]["outcome"] == "1 draws with NaN or inf"
        assert rows[13, 1]["c2st"] == rows[7, 2]["c2st"] == 1.0
        assert rows[7, 1]["outcome"] == OK  # one bad observation does not spoil the others
        assert "4 failed" not in results_page(list(rows.values()))
        assert "3 failed" in results_page(list(rows.values()))
        assert results.forget(results.failed()) == 4
    assert len(sweep_of(own, budgets=(13, 7)).jobs(ResultsStore(path).finished())) == 2


def test_nothing_finished_is_done_again(own, tmp_path, monkeypatch):
    path = tmp_path / "r.sqlite"
    sweep = sweep_of(own, methods=("rounds",), seeds=(0, 1))
    fake = type(sweep.registry().method("fake"))

    def stop(cell, outcome, numbers):
        if cell == Cell("two_moons", "rounds", 1000, 1, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep, path, on_row=stop)
    with ResultsStore(path) as results:
        before = {Cell(*(row[k] for k in Cell._fields)): row["created"] for row in results.rows()}
    assert len(before) == 5  # what was written before the interruption is kept, the last one too
    fake.calls.clear()
    run_sweep(sweep, path)
    assert fake.calls == [("two_moons", 1000, 1, (3,))]
    with ResultsStore(path) as results:
        after = {Cell(*(row[k] for k in Cell._fields)): row["created"] for row in results.rows()}
    assert set(after) == set(sweep.cells())
    assert all(after[cell] == when for cell, when in before.items())


def test_a_file_keeps_to_one_convention(own, tmp_path):
    path = tmp_path / "r.sqlite"
    run_sweep(sweep_of(own), path)
    with pytest.raises(StoreError, match="draws 100; got 200"):
        run_sweep(sweep_of(own, scorer=Scorer(200)), path)


def test_a_file_keeps_to_one_source_of_observations(own, tmp_path, monkeypatch):
    path = tmp_path / "r.sqlite"
    run_sweep(sweep_of(own), path)
    monkeypatch.setattr(Task, "observation_source", property(lambda self: "another's"))
    with pytest.raises(StoreError, match="observations of two_moons .* got another's, which must not be mixed"):
        run_sweep(sweep_of(own), path)


def test_what_cannot_be_scored_is_a_failure_of_its_own(own, tmp_path, monkeypatch):
    def reference(task, i, n):
        if i == 2:
            raise FloatingPointError("no reference")
        return reference_draws(task, i, n)

    monkeypatch.setattr(scoring_room, "reference_draws", reference)
    run_sweep(sweep_of(own), tmp_path / "r.sqlite")
    with ResultsStore(tmp_path / "r.sqlite") as results:
        found = {row["observation"]: (row["outcome"], row["c2st"]) for row in results.rows()}
    assert found == {1: (OK, 0.75), 2: ("not scored: FloatingPointError: no reference", 1.0), 3: (OK, 0.75)}


def test_tasks_without_a_reference_are_refused_and_all_skips_them(own):
    with pytest.raises(InputError, match="expected tasks whose posterior is known.*pyloric_15"):
        sweep_of(own, tasks=("two_moons", "pyloric_15"))
    given = dict.fromkeys(("tasks", "methods", "budgets", "seeds", "observations")) | {"methods": "prior"}
    everything = bench_command._sweep(given | {"tasks": "all"}, quick=False, draws=100, classifier="fast", own=())
    assert set(everything.tasks) == {name for name in TASKS if not name.startswith("pyloric")}


def test_what_is_not_installed_is_no_result(own, tmp_path, monkeypatch):
    path = tmp_path / "r.sqlite"
    fake = type(sweep_of(own).registry().method("fake"))

    def check(self):
        raise InputError("expected something; try: pip install it.")

    run_sweep(sweep_of(own), path)
    monkeypatch.setattr(fake, "check", check)
    run_sweep(sweep_of(own), path)  # nothing is left to do
    with pytest.raises(InputError, match="pip install it"):
        run_sweep(sweep_of(own, seeds=(0, 1)), path)
    with ResultsStore(path) as results:
        assert {row["seed"] for row in results.rows()} == {0}
    monkeypatch.setitem(sys.modules, "flowjax", None)
    for name in ("nle", "snle"):
        with pytest.raises(InputError, match=r"flows need flowjax .* try: pip install 'unle\[bench\]'"):
            METHODS[name].check()


def test_retry_forgets_what_it_tries_again_and_no_more(own, tmp_path):
    path = tmp_path / "r.sqlite"

    def bench(*arguments):
        common = ["--tasks", "two_moons", "--observations", "1,2", "--draws", DRAWS, "--workers", 1]
        arguments = ["bench", *common, "--results", path, "--with", own, *arguments]
        return CliRunner().invoke(app, list(map(str, arguments)))

    failing = ("--methods", "fake", "--budgets", 13)
    outcome = bench(*failing)
    assert outcome.exit_code == 1
    assert "every row of this sweep failed; the first of the reasons: ValueError: unlucky number" in outcome.output
    outcome = bench("--methods", "fake", "--budgets", 5, "--retry")
    assert outcome.exit_code == 0, outcome.output
    assert "0 failed rows to be tried again" in outcome.output
    with ResultsStore(path) as results:
        assert {cell.budget for cell in results.failed()} == {13}
        assert len(results.finished()) == 4
    assert "2 failed rows to be tried again" in bench(*failing, "--retry").output
    for option, text, complaint in (
        ("--observations", "11", "expected observations from 1 to 10; got 11."),
        ("--seeds", "3-1", "expected --seeds from the smaller to the larger number; got '3-1'."),
        ("--budgets", "0", "expected budgets of at least one simulation; got 0."),
    ):
        assert complaint in bench("--methods", "fake", option, text).output


def test_copies_of_draws_are_told():
    draws = np.random.default_rng(0).normal(size=(DRAWS, 2))
    assert problem_with(draws, DRAWS, 2) is None
    with pytest.warns(UnleWarning, match="only 10 of 100 draws are distinct"):
        assert problem_with(np.repeat(draws[:10], 10, axis=0), DRAWS, 2) is None


def test_the_examples_of_the_documentation_run(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text()
    blocks = re.findall(r"```python\n(# \w+\.py\n.*?)```", page, flags=re.DOTALL)
    files = [tmp_path / block.splitlines()[0].removeprefix("# ") for block in blocks]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block)
    assert [file.name for file in files] == ["mine.py", "mytask.py"]
    extra = tuple(map(str, files))
    sweep = Sweep(("mytask",), ("neighbours", "exact"), observations=(1, 2), scorer=Scorer(DRAWS), extra=extra)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnleWarning)
        run_sweep(sweep, tmp_path / "r.sqlite")
    with ResultsStore(tmp_path / "r.sqlite") as results:
        assert results.failed() == set()
        assert len(results.finished()) == 4
    # The posterior of the example is right: simulations that fell near an observation are draws of it.
    task = sweep.registry().task("mytask")
    theta = task.prior.sample(400_000, seed=0)
    x_o = task.observation(1)
    near = theta[np.abs(task.simulate(theta, 1) - x_o).max(axis=1) < 0.1]
    exact = task.reference(x_o, 100_000)
    error = exact.std(axis=0) / np.sqrt(len(near))
    np.testing.assert_array_less(np.abs(near.mean(axis=0) - exact.mean(axis=0)), 4 * error + 0.01)
    np.testing.assert_allclose(near.std(axis=0), exact.std(axis=0), rtol=4 / np.sqrt(2 * len(near)) + 0.02)


def test_a_row_is_written_once(tmp_path):
    with ResultsStore(tmp_path / "r.sqlite") as results:
        cell = Cell("a", "b", 1, 2, 3)
        assert results.add(cell, OK, {"c2st": 0.5}, {})
        assert not results.add(cell, OK, {"c2st": 0.9}, {})
        assert results.rows()[0]["c2st"] == 0.5
        assert results.rows()[0]["mmd"] is None


def test_a_dead_worker_becomes_rows(own, tmp_path):
    sweep = sweep_of(own)
    with ResultsStore(tmp_path / "r.sqlite") as results:
        fail_job(sweep.jobs([])[0], sweep, results, "died")
        assert {row["outcome"] for row in results.rows()} == {"died"}


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.sqlite").write_text("not a database, by any means, and long enough to be looked at" * 20)
    with pytest.raises(StoreError, match="could not be opened"):
        ResultsStore(tmp_path / "text.sqlite")
    with pytest.raises(StoreError, match="does not exist"):
        ResultsStore(tmp_path / "absent.sqlite", read_only=True)


def test_unknown_names_and_bad_files_are_told(own, tmp_path):
    with pytest.raises(InputError, match="did you mean two_moons"):
        sweep_of(own, tasks=("two_moon",))
    with pytest.raises(InputError, match=r"expected one of the methods .*fake"):
        sweep_of(own, methods=("nothing",))
    with pytest.raises(InputError, match="at least one of the seeds"):
        sweep_of(own, seeds=())
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1")
    with pytest.raises(InputError, match="defines neither"):
        sweep_of(str(empty))
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        sweep_of(str(broken))
    with pytest.raises(InputError, match="classifier among fast, exact"):
        Scorer(classifier="slow")


def test_tables_show_ours_beside_published(own, tmp_path):
    path = tmp_path / "r.sqlite"
    run_sweep(sweep_of(own, seeds=(0, 1)), path)
    with ResultsStore(path) as results:
        rows = [row | {"method": "aunle"} for row in results.rows()]
    found = summaries(rows)["two_moons", "aunle", 1000]
    assert (found.mean, found.error, found.rows, found.failures) == (0.75, 0.0, 6, 0)
    assert comparison(rows)[1] == [["two_moons", "aunle", "0.750 ± 0.000 (2×3)†"]]  # 100 draws: nothing published
    assert "| `aunle` | 0.750 ± 0.000 (2×3)† |\n" in results_page(rows)
    for row in rows:
        row["conditions"]["draws"] = 10_000
    heads, table = comparison(rows)
    assert heads == ["task", "method", "1,000"]
    assert [line[1:] for line in table] == [
        ["aunle", "0.750 ± 0.000 (2×3)†"],
        ["published AUNLE", "0.543 ± 0.006"],
        ["best pub. amortised", "0.543 ± 0.006 AUNLE"],
        ["best pub. sequential", "0.572 ± 0.011 SUNLE"],
    ]
    assert "| `aunle` | 0.750 ± 0.000 (2×3)† | 0.543 ± 0.006 |" in results_page(rows)


def test_published_numbers_have_sources_and_are_those_of_the_papers():
    everything = published()
    assert {one.source for one in everything} == set(SOURCES)
    keys = [(one.method, one.task, one.budget) for one in everything]
    assert len(keys) == len(set(keys))
    assert all(0.49 < one.c2st <= 1.0 for one in everything)
    assert best("lotka_volterra", 10_000, sequential=True).method == "SUNLE"
    assert best("slcp", 1000, sequential=False).c2st == pytest.approx(0.946, abs=5e-4)
    assert number_of("AUNLE", "slcp", 100_000).c2st == pytest.approx(0.855, abs=5e-4)
    assert number_of("AUNLE", "sir", 1000) is None


def test_notes_are_json(own, tmp_path):
    class Odd(AbstractMethodAdapter):
        def infer(self, task, *, budget, seed, observations, draws):
            return Outcome(reasons=dict.fromkeys(observations, "no"), notes={"versions": {"sbi": "1"}})

    outcome = Odd().infer(None, budget=1, seed=0, observations={1: 0}, draws=1)
    assert json.dumps(outcome.notes)
