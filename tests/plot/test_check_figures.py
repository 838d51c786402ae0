"""Figures of checks and records: the right things in them, quickly, also for 31 parameters."""

import re
import time
from types import SimpleNamespace

import numpy as np
import pytest

from unle import plot
from unle.diagnose import Calibration, coverage, ensemble_agreement, outlier, predictive, sbc, tarp, training_health
from unle.diagnose.fit_records import rounds
from unle.diagnose.record import Check
from unle.diagnose.summary import Conditional
from unle.errors import InputError
from unle.plot import as_svg


@pytest.fixture(scope="module")
def calibration():
    rng = np.random.default_rng(0)
    truth, draws = rng.normal(size=(100, 2)), rng.normal(size=(100, 50, 2))
    return Calibration.of_draws(
        truth, truth, draws, heights=-np.sum(draws**2, -1), true_height=-np.sum(truth**2, -1), names=["a", "b"]
    )


def test_rank_curves_show_one_curve_per_parameter_and_a_band(calibration):
    figure = plot.rank_curves(sbc(calibration))
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 99]
    assert len(curves) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["95 % band", "a", "b"]
    assert len(plot.rank_histograms(sbc(calibration)).axes) == 2
    assert len(plot.rank_curves(tarp(calibration)).axes) == 1
    with pytest.raises(InputError, match="levels"):
        plot.rank_curves(outlier(np.random.default_rng(0).normal(size=(50, 2)), np.zeros(2)))


def test_coverage_goes_from_corner_to_corner(calibration):
    lines = plot.coverage_curve(coverage(calibration)).axes[0].lines
    line = next(one for one in lines if len(one.get_xdata()) == 99)
    assert line.get_ydata()[0] < 0.1
    assert line.get_ydata()[-1] > 0.9


@pytest.mark.parametrize("dim", [3, 60])
def test_predictive_shows_x_o(dim):
    rng = np.random.default_rng(1)
    figure = plot.predictive(predictive(rng.normal(size=(100, 1, dim)), np.zeros(dim)))
    assert "x_o" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_outlier_figure_shows_every_distance_and_x_o_among_them():
    rng = np.random.default_rng(2)
    check = outlier(rng.normal(size=(100, 2)), np.array([9.0, 9.0]))
    axis = plot.outlier_distances(check).axes[0]
    assert sum(bar.get_height() for bar in axis.patches) == len(check.arrays["distances"])
    (line,) = axis.lines
    assert line.get_xdata()[0] == pytest.approx(check.arrays["observed"][0])
    assert line.get_xdata()[0] > max(bar.get_x() + bar.get_width() for bar in axis.patches)  # far from all of them
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["simulations", "x_o"]


def test_members_are_drawn_at_their_means():
    rng = np.random.default_rng(2)
    check = ensemble_agreement(rng.normal(size=(50, 3)), rng.normal(size=(50, 2)), ("a", "b"))
    axis = plot.member_means(check).axes[0]
    members = [line.get_ydata() for line in axis.lines if len(line.get_xdata()) == 2 and line.get_marker() == "o"]
    np.testing.assert_allclose(members, check.arrays["means"])
    assert len(members) == 3
    assert [label.get_text() for label in axis.get_xticklabels()] == ["a", "b"]
    low, high = axis.get_ylim()
    assert low < np.min(members)
    assert np.max(members) < high


def test_bars_are_as_long_as_the_stages_took():
    figure = plot.run_time([{"stage": "seconds", "fit": 2.0}, {"stage": "seconds", "fit": 1.0, "sample": 1.0}])
    assert [bar.get_width() for bar in figure.axes[0].patches] == [1.0, 3.0]
    with pytest.raises(InputError, match="at least one stage"):
        plot.run_time({})


def test_marginals_show_the_prior():
    rng = np.random.default_rng(3)
    figure = plot.marginals(rng.normal(size=(200, 7)), prior=rng.normal(size=(200, 7)), truth=np.zeros(7))
    assert sum(axis.get_visible() for axis in figure.axes) == 7
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"prior", "posterior", "truth"}


def test_rounds_follow_the_simulations():
    rng = np.random.default_rng(4)
    number = np.repeat([0, 1], 100)
    theta = rng.normal(size=(200, 2)) * np.where(number, 0.1, 1.0)[:, None]
    valid = rng.random(200) < np.where(number, 0.9, 0.5)
    rows = SimpleNamespace(round=number, theta=theta, x=theta + 1, valid=valid)
    record = rounds(rows, np.ones((1, 2)))
    assert record.width[1] == pytest.approx(0.1, rel=0.2)
    assert record.valid[1] > record.valid[0]
    assert record.distance[1] < record.distance[0]
    assert len(plot.rounds(record).axes) == 3


def test_conditional_pairs_have_one_cell_per_pair():
    dim, points = 4, 10
    pair = np.zeros((dim, dim, points, points)) + 1 / points**2
    record = Conditional(
        tuple("abcd"),
        np.zeros(dim),
        np.tile(np.linspace(-1, 1, points), (dim, 1)),
        np.full((dim, points), 1 / points),
        pair,
        np.eye(dim),
    )
    axis = plot.conditional_pairs(record).axes[0]
    assert axis.images[0].get_array().shape == (dim * points, dim * points)
    assert [label.get_text() for label in axis.get_xticklabels()] == list("abcd")


def test_31_parameters_are_drawn_quickly_with_legible_names():
    rng = np.random.default_rng(5)
    draws = rng.normal(size=(10_000, 31))
    start = time.process_time()
    figure = plot.pairs(draws, [f"parameter_{i}" for i in range(31)], truth=np.zeros(31))
    figure.savefig(__import__("io").BytesIO(), dpi=100)
    assert time.process_time() - start < 20  # seconds of this process, however busy the machine is
    axis = figure.axes[0]
    names = [label.get_text() for label in axis.get_xticklabels()]
    assert names == [f"parameter_{i}" for i in range(31)]
    boxes = [label.get_window_extent() for label in axis.get_yticklabels()]
    assert not any(a.overlaps(b) for a, b in zip(boxes, boxes[1:], strict=False))
    assert min(label.get_fontsize() for label in axis.get_yticklabels()) >= 7


def test_svg_has_ids_of_its_own_and_colours_of_the_page():
    figure = plot.marginals(np.random.default_rng(6).normal(size=(50, 1)), ["<b>&"])
    text = as_svg(figure, "mine")
    assert text.startswith("<svg")
    assert "var(--learned)" in text
    assert "<b>" not in text
    assert all(found.startswith("mine-") for found in re.findall(r'\bid="([^"]+)"', text))
    assert all(found.startswith("mine-") for found in re.findall(r"url\(#([^)]+)\)", text))


def test_grid_and_sampler_figures():
    rng = np.random.default_rng(7)
    axis = np.linspace(-1, 1, 20)
    arrays = {"axis_0": axis, "axis_1": axis, "density": np.ones((20, 20)), "draws": rng.normal(size=(50, 2))}
    check = Check("grid", "", "", "good", {}, "", arrays)
    assert len(plot.density_and_draws(check).axes) == 2
    arrays = {
        "r_hat": np.ones(2),
        "ess_bulk": np.ones(2),
        "ess_tail": np.ones(2),
        "temperatures": axis,
        "ess_path": axis,
    }
    check = Check("sampler", "", "", "good", {"r_hat": 1.0}, "", arrays, ("a", "b"))
    assert len(plot.sampler_path(check).axes) == 3


def test_the_training_of_energies_and_of_flows_is_drawn():
    energies = [{"stage": "training", "chunk": i, "gain": 0.1 * i, "gap": 0.0} for i in range(5)]
    assert len(plot.training_path(training_health(energies)).axes) == 2
    flow = [{"stage": "descent", "step": 10 * i, "steps": 50, "held_out": 1 / i, "loss": 1 / i} for i in range(1, 6)]
    assert len(plot.training_path(training_health(flow)).axes) == 1


def test_replicas_that_are_nearly_all_alike_do_not_stretch_the_axis():
    rng = np.random.default_rng(5)
    replicas = rng.normal(size=(400, 3))
    replicas[:, 1] = rng.random(400) < 0.03  # yes or no, nearly always no
    replicas[:, 2] = 7.0
    arrays = {"replicas": replicas, "x_o": np.array([[0.5, 1.0, 7.0]]), "scores": rng.random(400)}
    check = Check("predictive", "Posterior predictive check", "?", "good", {"energy_score": 0.5}, "", arrays)
    low, high = plot.predictive(check).axes[0].get_ylim()
    assert -10 < low < high < 10


def test_a_legend_of_long_names_fits_into_its_figure():
    rng = np.random.default_rng(0)
    names = ["infected", "days in bed", "log(hazard ratio)", "shape", "a name that is rather long"]
    truth, draws = rng.normal(size=(50, 5)), rng.normal(size=(50, 20, 5))
    heights = {"heights": np.zeros((50, 20)), "true_height": np.zeros(50)}
    figure = plot.rank_curves(sbc(Calibration.of_draws(truth, truth, draws, names=names, **heights)))
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1
