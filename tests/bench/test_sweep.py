"""Sweeps: what is planned, what is written, what survives."""

import json

import numpy as np
import pytest

from unle.bench import registry as registry_room
from unle.bench.contestant import AbstractContestant, Outcome
from unle.bench.published import SOURCES, best, number_of, published
from unle.bench.results_page import results_page
from unle.bench.running import run_sweep
from unle.bench.scoring import Scorer
from unle.bench.sweep import Job, Sweep, fail_job
from unle.bench.tables import comparison, summaries
from unle.errors import InputError, StoreError
from unle.store.results import OK, Cell, ResultsStore

DRAWS = 100
OWN = """
import numpy as np
from unle.bench.contestant import AbstractContestant, Outcome

class Fake(AbstractContestant):
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

METHODS = {"fake": Fake(), "rounds": OneByOne()}
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
        assert results.forget_failures() == 4
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
    assert (found.mean, found.rows, found.failures, found.seconds) == (0.75, 6, 0, 3.0)
    heads, table = comparison(rows)
    assert table == [["two_moons", "1,000", "0.750 ± 0.000 (6)", "0.543", "0.543 AUNLE", "0.572 SUNLE"]]
    assert heads[2:4] == ["aunle", "AUNLE (published)"]
    assert "| `aunle` | 0.750 ± 0.000 (6) | 0.543 |" in results_page(rows)


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
    class Odd(AbstractContestant):
        def infer(self, task, *, budget, seed, observations, draws):
            return Outcome(reasons=dict.fromkeys(observations, "no"), notes={"versions": {"sbi": "1"}})

    outcome = Odd().infer(None, budget=1, seed=0, observations={1: 0}, draws=1)
    assert json.dumps(outcome.notes)
