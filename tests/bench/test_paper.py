"""`unle paper`: figures from rows that exist, and commands for rows that do not."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.store import RunDirectory
from unle_bench import task
from unle_bench.paper import density_figures
from unle_bench.paper.figures import BUDGETS, FIGURES, TASKS
from unle_bench.paper.pyloric_figures import pyloric
from unle_bench.plot import kernel_density
from unle_bench.results.results_csv import as_csv
from unle_bench.results.results_query import ResultsQuery
from unle_bench.results.results_store import OK, Cell, ResultsStore
from unle_bench.results.tables import stages

CONDITIONS = {"device": "cpu", "draws": 10, "classifier": "fast", "observations": "official"}


@pytest.fixture
def results(tmp_path):
    """One method on one task, with draws and a density of both toys."""
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        for i in (1, 2):
            numbers = {"c2st": 0.5 + 0.1 * i, "simulate_s": 1.0, "train_s": 60.0, "infer_s": 2.0}
            store.add(Cell("two_moons", "aunle", 1000, 0, i), OK, numbers, CONDITIONS)
        for name in ("two_moons", "bimodal"):
            one = task(name)
            axis = np.linspace(-1, 1, 21)
            cell = Cell(name, "aunle", 1000, 0, 1)
            store.keep(cell, "draws", {"draws": one.reference(one.observation(1), 300)})
            bump = np.exp(-(axis[:, None] ** 2) - axis**2)
            for record in ("density", "likelihood"):
                store.keep(cell, record, {"first": axis, "second": axis, "density": bump})
    return path


def test_what_is_missing_has_a_command(results):
    with ResultsStore(results) as store:
        found = ResultsQuery(store)
        figures = {name: figure(found) for name, figure in FIGURES.items()}
    assert figures["c2st"].command is not None
    assert ("two_moons", "aunle", 1000) not in figures["c2st"].missing
    assert ("slcp", "aunle", 1000) in figures["c2st"].missing
    assert len(figures["sampling"].missing) == len(TASKS) * 2 * len(BUDGETS)
    assert figures["sampling"].drawn == []
    assert len(figures["c2st"].drawn) == 1  # no sequential rows, no second picture
    assert [len(figures[name].drawn) for name in ("moons", "bimodal", "pairs", "time")] == [1, 1, 1, 2]
    assert "--methods aunle-paper,nle,smnle-ssm,sunle-paper,sunle" in figures["bimodal"].command
    alt = figures["c2st"].drawn[0].alt  # short, for those who cannot see the figure: tables have the numbers
    assert re.fullmatch(r"C2ST against simulations: .*\baunle\b.* on .*two_moons.*\.", alt)
    assert "0.65" not in alt


def test_the_page_needs_nothing_else(results, tmp_path):
    out = tmp_path / "out"
    arguments = ["paper", "--results", str(results), "--out", str(out), "--only", "c2st"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    page = (out / "index.html").read_text()
    assert {"c2st.png", "c2st.svg", "index.html"} <= {file.name for file in out.iterdir()}
    assert "unle bench --tasks" in page
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "pairs" not in {file.stem for file in out.iterdir()}


def test_an_unknown_figure_is_told(results, tmp_path):
    outcome = CliRunner().invoke(app, ["paper", "--results", str(results), "--out", str(tmp_path), "--only", "c3st"])
    assert outcome.exit_code == 1
    assert "expected figures among bimodal, c2st" in outcome.output


def test_bench_refuses_what_it_cannot_read(tmp_path):
    path = tmp_path / "r.sqlite"
    for arguments, complaint in (
        (["--tasks", "two_moons"], "expected --methods"),
        (["--tasks", "two_moons", "--methods", "aunle", "--seeds", "a"], "whole numbers"),
        (["--show", "--results", path], "does not exist"),
        (["--quick", "--write", tmp_path / "t.txt"], "ends in .md or .csv"),
        (["--quick", "--sbi-python", tmp_path / "none"], "there is no Python"),
    ):
        outcome = CliRunner().invoke(app, ["bench", *map(str, arguments)])
        assert outcome.exit_code == 1
        assert complaint in outcome.output


def test_kernel_density_keeps_mass_where_the_draws_are():
    rng = np.random.default_rng(0)
    axis = np.linspace(-6, 6, 121)
    density = kernel_density(rng.normal([1.0, -2.0], [0.5, 1.0], size=(20_000, 2)), axis, axis, width=0.1)
    density = density / density.sum()
    assert (density.sum(axis=1) @ axis) == pytest.approx(1.0, abs=0.02)
    assert (density.sum(axis=0) @ axis) == pytest.approx(-2.0, abs=0.03)
    assert np.sqrt(density.sum(axis=1) @ (axis - 1.0) ** 2) == pytest.approx(0.5, rel=0.05)


def test_the_pyloric_network_without_a_run_is_the_published_curves_and_a_command(tmp_path):
    arguments = ["paper", "--out", str(tmp_path / "out"), "--only", "pyloric", "--pyloric", str(tmp_path / "none")]
    outcome = CliRunner().invoke(app, arguments)  # and needs no results file
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "out" / "pyloric.png").exists()
    page = (tmp_path / "out" / "index.html").read_text()
    assert "unle run pyloric --method sunle --rounds 50000,10000" in page


def test_rounds_of_a_run_are_drawn_beside_the_published_ones():
    rng = np.random.default_rng(0)
    rounds = [np.abs(rng.normal(1.0, 0.2, (50, 8))) for _ in range(3)]
    rounds[1][:10] = np.nan
    figure = pyloric(rounds, name="mine")
    assert "80 % and" in figure.drawn[0].alt
    assert "mine" in [text.get_text() for text in figure.drawn[0].figure.legends[0].get_texts()]
    assert figure.command is not None  # there are no draws yet


def test_a_run_of_another_model_is_refused(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"model": "two_moons"})
    run.likelihood(0).with_suffix(".json").write_text("{}")
    out = tmp_path / "out"
    outcome = CliRunner().invoke(app, ["paper", "--only", "pyloric", "--pyloric", str(run.path), "--out", str(out)])
    assert outcome.exit_code != 0
    assert "two_moons" in outcome.output
    assert not out.exists()  # nothing is left of what failed


def test_a_csv_lacks_draws_not_rows(results, tmp_path):
    with ResultsStore(results) as store:
        (tmp_path / "r.csv").write_text(as_csv(store.rows()))
    arguments = ["paper", "--results", str(tmp_path / "r.csv"), "--out", str(tmp_path / "out"), "--only", "moons"]
    outcome = CliRunner().invoke(app, [*arguments, "--only", "c2st"])
    assert outcome.exit_code == 0, outcome.output
    assert "moons: 0 pictures; this needs stored draws, and a .csv holds rows alone" in outcome.output
    assert "c2st: 1 picture; rows are missing: unle bench" in outcome.output
    assert "index.html  (1 picture)" in outcome.output


def test_the_exact_posterior_is_that_of_the_observation_drawn(tmp_path):
    toy = task("bimodal")
    with ResultsStore(tmp_path / "r.sqlite") as store:
        for method, observation in (("aunle", 3), ("nle", 1), ("sunle", 3)):
            draws = toy.reference(toy.observation(observation), 300)
            store.keep(Cell("bimodal", method, 1000, 0, observation), "draws", {"draws": draws})
        figure, shown, x_o = density_figures.bimodal(ResultsQuery(store), ("aunle", "nle", "sunle"))
    assert shown == ["aunle", "sunle"]  # nle has draws of another observation
    np.testing.assert_array_equal(x_o, toy.observation(3))
    titles = {axis.get_title() for axis in figure.axes}
    assert {"exact posterior", "AUNLE: draws", "SUNLE: draws"} <= titles
    assert "NLE: draws" not in titles


def test_times_of_machines_stay_apart_and_compiled_runs_count_alone(tmp_path):
    with ResultsStore(tmp_path / "r.sqlite") as store:
        cases = ((1, "fast", True, 10, 9.0), (2, "fast", False, 10, 1.0), (3, "slow", True, 10, 50.0))
        for i, machine, cold, together, seconds in (*cases, (4, "slow", True, 1, 70.0)):
            conditions = CONDITIONS | {"machine": machine, "cold": cold, "together": together}
            store.add(Cell("two_moons", "aunle", 1000, 0, i), OK, {"train_s": 60 * seconds}, conditions)
        found = ResultsQuery(store)
        heads, table = stages(found.rows)
    assert found.machines(["aunle"]) == ["fast", "slow"]
    assert found.stages("two_moons", "aunle", "fast")[1000]["train"] == 1.0
    assert found.stages("two_moons", "aunle", "slow")[1000]["train"] == 50.0  # of whole runs
    columns = [heads.index(name) for name in ("train", "drawn together", "compiling", "machine")]
    assert [[line[k] for k in columns] for line in table] == [
        ["60", "10", "no", "fast"],
        ["4200", "1", "yes", "slow"],
        ["3000", "10", "yes", "slow"],
    ]
    assert len(FIGURES["time"](found).drawn) == 4  # two kinds of pictures, two machines
