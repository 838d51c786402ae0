"""The results page and the file of rows that it is made from."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from unle.cli import app
from unle.errors import StoreError
from unle_bench.paper.results_page import pictures_of, reproduce, results_page
from unle_bench.results.results_csv import as_csv, from_csv
from unle_bench.results.results_store import KEY, NUMBERS, OK, Cell, ResultsStore
from unle_bench.results.summaries import summaries
from unle_bench.results.tables import COUNTERPARTS

DOCS = Path(__file__).parents[2] / "docs"
CONDITIONS = {"device": "cpu", "machine": "a processor", "cores": 2, "draws": 10_000, "classifier": "fast"}
CONDITIONS |= {"observations": "official", "cold": True, "together": 2, "versions": {"unle": "0.1", "jax": "0.9"}}


def row_of(*key, outcome=OK, cold=True, **numbers):
    values = dict.fromkeys(NUMBERS) | numbers
    return dict(zip(KEY, key, strict=True)) | values | {"outcome": outcome, "conditions": CONDITIONS | {"cold": cold}}


@pytest.fixture
def rows():
    seconds = {"simulate_s": 0.5, "train_s": 90.0, "infer_s": 2.0}
    found = [row_of("two_moons", "aunle", 1000, 0, i, c2st=0.5 + i / 100, **seconds) for i in (1, 2)]
    found += [
        row_of("two_moons", "aunle", 1000, 1, i, cold=False, c2st=0.535, simulate_s=0.1, train_s=7.0) for i in (1, 2)
    ]
    found += [row_of("two_moons", "sunle", 1000, 0, 1, outcome="ValueError: a, b", c2st=1.0)]
    return found


def test_rows_survive_the_csv_file(rows):
    back = from_csv(as_csv(rows))
    assert back == rows
    assert as_csv(back) == as_csv(rows)
    with pytest.raises(StoreError, match="expected rows written by"):
        from_csv("a,b\n1,2\n")


def test_the_page_has_means_failures_times_and_commands(rows):
    page = results_page(rows)
    assert "| `aunle` | 0.525 ± 0.010 (2×2)† | 0.543 ± 0.006 |" in page  # means of seeds are .515 and .535
    assert "| `sunle` | 1.000 (1×1, 1 failed)† | 0.572 ± 0.011 |" in page
    assert "1 of 5 rows" in page
    assert "| two_moons | 1,000 | `aunle` | 0.1 | 7 | 0 | 2 | no | a processor, 2 cores |" in page  # warm runs alone
    assert "unlike the published SMNLE" not in page
    assert "unlike the published SMNLE" in results_page([row_of("slcp", "smnle-ssm", 1000, 0, 1, c2st=0.7)])
    assert "ValueError: a, b" in page
    assert "--tasks two_moons --methods aunle --budgets 1000 --seeds 0,1 --observations 1,2" in page


def test_errors_are_over_seeds_and_one_seed_has_none():
    def summary(cells, task="slcp"):
        rows = [row_of(task, "nle", 1000, *cell, c2st=value, c2st_error=0.003) for cell, value in cells.items()]
        return summaries(rows)[task, "nle", 1000]

    ten = {(0, i): 0.6 + i / 100 for i in range(1, 11)}
    one = summary(ten)
    assert np.isnan(one.error)
    assert one.deviation == pytest.approx(np.std(list(ten.values()), ddof=1))
    assert (one.seeds, one.observations, one.partial) == (1, 10, False)
    assert one.measuring == pytest.approx(0.003)
    two = summary(ten | {(1, i): 0.8 for i in range(1, 11)})
    assert two.error == pytest.approx(np.std([0.655, 0.8], ddof=1) / np.sqrt(2))
    assert np.isnan(two.deviation)
    uneven = summary(ten | {(1, 1): 0.8})  # a seed with other observations says nothing of the seeds
    assert np.isnan(uneven.error)
    assert uneven.deviation > 0
    alone = summary({(0, 1): 0.6})
    assert np.isnan(alone.error)
    assert np.isnan(alone.deviation)
    assert alone.partial
    assert not summary({(0, 1): 0.6}, "bimodal").partial  # which has one observation


def test_a_table_of_many_methods_fits(tmp_path):
    methods = [*COUNTERPARTS, "gaussian"]
    budgets = (1000, 10_000, 100_000)
    key = ("gaussian_linear_uniform",)
    many = [
        row_of(*key, m, b, s, i, c2st=0.5 + s / 10) for m in methods for b in budgets for s in (0, 1) for i in (1, 2)
    ]
    (tmp_path / "r.csv").write_text(as_csv(many))
    shown = CliRunner().invoke(app, ["bench", "--show", "--results", str(tmp_path / "r.csv")]).stdout
    lines = shown.splitlines()
    assert "C2ST of 10,000 draws" in lines[0]
    assert all(any(f" {m} " in line and line.count("0.550 ± 0.050 (2×2)†") == 3 for line in lines) for m in methods)
    assert "…" not in shown
    assert "Observations and references: official." in shown
    assert "published SMNLE-SSM" in shown
    for row in many:
        row["conditions"] |= {"draws": 100}
    (tmp_path / "r.csv").write_text(as_csv(many))
    shown = CliRunner().invoke(app, ["bench", "--show", "--results", str(tmp_path / "r.csv")]).stdout
    assert "C2ST of 100 draws" in shown
    assert "SMNLE-SSM" not in shown


def test_commands_make_exactly_the_rows():
    cells = {
        Cell(t, m, b, 0, i) for t in ("slcp", "sir") for m in ("aunle", "nle") for b in (10, 100) for i in (1, 2, 3)
    }
    cells |= {Cell("sir", "sunle", 10, 2, 1)}
    assert sorted(reproduce(cell._asdict() for cell in cells)) == [
        "unle bench --tasks sir --methods sunle --budgets 10 --seeds 2 --observations 1",
        "unle bench --tasks slcp,sir --methods aunle,nle --budgets 10,100 --seeds 0 --observations 1-3",
    ]


def test_show_takes_either_kind_of_file(rows, tmp_path):
    path = tmp_path / "r.sqlite"
    with ResultsStore(path) as store:
        for row in rows:
            numbers = {name: row[name] for name in NUMBERS if row[name] is not None}
            store.add(Cell(*(row[name] for name in KEY)), row["outcome"], numbers, row["conditions"])
    kept, page = tmp_path / "kept.csv", tmp_path / "page.md"
    run = CliRunner().invoke(app, ["bench", "--show", "--results", str(path), "--write", str(kept)])
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(app, ["bench", "--show", "--results", str(kept), "--write", str(page)])
    assert run.exit_code == 0, run.output
    assert f"unle bench --show --results {kept} --write {page}" in page.read_text()
    assert (tmp_path / "images" / "page-c2st-1.png").exists()
    run = CliRunner().invoke(app, ["bench", "--quick", "--results", str(kept)])
    assert run.exit_code != 0


def test_the_page_of_the_documentation_is_that_of_its_rows():
    rows = from_csv((DOCS / "results.csv").read_text())
    pictures = pictures_of(rows, "results")
    assert (DOCS / "results.md").read_text() == results_page(rows, pictures), (
        "write it again with: unle bench --show --results docs/results.csv --write docs/results.md"
    )
    assert all((DOCS / address).exists() for address, _ in pictures)
