"""The energy score by hand, the published numbers, and the figures made of them."""

import sys

import numpy as np
import pytest

from unle.errors import InputError
from unle_bench.paper.pyloric_figures import (
    as_fifteen,
    budget_curve,
    energy_score,
    prior_scale,
    published_curves,
    trace_at,
)
from unle_bench.plot import round_curves, voltages
from unle_bench.pyloric.specification import RHYTHMIC
from unle_bench.pyloric.statistics import FREE, OBSERVED


def test_energy_score_by_hand():
    scale = np.ones(15)
    x = OBSERVED[:15] + np.eye(15)[:1] * np.array([[3.0], [-1.0], [np.nan]])
    assert energy_score(x, scale) == pytest.approx(2 * 2.0 - 2 * 4.0 / 2)
    assert energy_score(x, 2 * scale) == pytest.approx(energy_score(x, scale) / 2)
    assert np.isnan(energy_score(x[2:], scale))


def test_energy_score_prefers_what_is_near_and_honest():
    rng = np.random.default_rng(0)
    near, far = (OBSERVED[:15] + spread * rng.normal(size=(2500, 15)) for spread in (0.1, 1.0))
    scale = np.ones(15)
    assert energy_score(near, scale) < energy_score(far, scale)
    exact = energy_score(far, scale)
    assert energy_score(far + 1.0, scale) > exact + 1  # a cloud beside x_o


def test_eight_statistics_score_as_fifteen():
    x = np.abs(np.random.default_rng(1).normal(OBSERVED[list(FREE)], 10, size=(50, 8)))
    scale = prior_scale(x)
    assert scale.shape == (15,)
    assert energy_score(x, scale) == pytest.approx(energy_score(as_fifteen(x), scale))
    with pytest.raises(InputError, match="at least two valid"):
        prior_scale(np.full((3, 8), np.nan))


def test_published_curves_and_a_run_in_one_figure():
    curves, points = published_curves()
    assert curves[0].valid[-1] == 0.924
    assert curves[1].simulations[-1] == 330_000
    assert curves[1].valid.max() == 0.854
    rng = np.random.default_rng(2)
    rounds = [np.abs(rng.normal(OBSERVED[list(FREE)], sd, size=(100, 8))) for sd in (300, 60, 20)]
    rounds[1][:40] = np.nan
    ours = budget_curve("ours", rounds)
    np.testing.assert_array_equal(ours.simulations, [100, 200])
    np.testing.assert_allclose(ours.valid, [0.6, 1.0])
    assert ours.energy[1] < ours.energy[0]
    figure = round_curves([ours, *curves], points=points)
    left, right = figure.axes
    assert len(left.lines) == 5
    np.testing.assert_allclose(left.lines[0].get_ydata(), [60, 100])
    assert len(right.lines) == 4
    assert [line.get_markerfacecolor() == "none" for line in right.lines] == [False, True, True, True]
    assert {f"{tick:g}" for tick in right.get_yticks()} >= {"0.1", "0.2", "0.5", "1"}
    assert len(right.yaxis.get_minorticklocs()) == 0
    with pytest.raises(InputError):
        round_curves([])


def test_a_trace_needs_no_numba(monkeypatch):
    compiled, _ = trace_at(RHYTHMIC, seed=1, samples=4000)
    other, _ = trace_at(RHYTHMIC, seed=2, samples=4000)
    monkeypatch.setitem(sys.modules, "numba", None)  # as if it were not installed
    trace, x = trace_at(RHYTHMIC, seed=1, samples=4000)
    assert trace.shape == compiled.shape == (3, 4000)
    assert x.shape == (15,)
    assert np.abs(trace - compiled).max() < 1e-3
    assert np.abs(other - compiled).max() > 1  # other noise would be seen


def test_the_circuit_of_the_tutorial_works():
    _, x = trace_at(RHYTHMIC, seed=1)
    assert np.isfinite(x).all()
    assert x[0] == pytest.approx(1165, abs=100)


def test_traces_beside_statistics():
    rng = np.random.default_rng(3)
    trace = rng.normal(-50, 5, size=(3, 200_000))
    figure = voltages(
        {"mean": trace, "MAP": trace},
        step=0.025,
        neurons=["AB/PD", "LP", "PY"],
        statistics={"mean": OBSERVED[:15], "MAP": 2 * OBSERVED[:15]},
        x_o=OBSERVED[:15],
    )
    assert len(figure.axes) == 8
    np.testing.assert_allclose(figure.axes[7].lines[1].get_xdata(), 2)
    with pytest.raises(InputError):
        voltages({}, step=0.025, neurons=[])
