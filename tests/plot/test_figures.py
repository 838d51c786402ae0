"""Figures: the right panels with the right data in them, and a sentence where the input cannot be drawn."""

import io

import matplotlib
import numpy as np
import pytest

from unle.errors import InputError
from unle.plot import compare_draws, pairs, training_curves
from unle.posterior import Draws


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def saved_size(figure) -> int:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.tell()


def test_comparison_has_three_panels_on_the_same_axes(rng):
    draws, reference = rng.normal(size=(300, 2)), rng.normal(1.0, 1.0, size=(500, 2))
    x, y = np.linspace(-3, 3, 20), np.linspace(-2, 2, 30)
    figure = compare_draws(draws, reference, ["a", "b"], density=(x, y, np.ones((30, 20))), title="C2ST 0.6")
    learned, exact, density, _ = figure.axes  # the last is the colour bar
    assert learned.get_xlim() == exact.get_xlim() == density.get_xlim()
    assert learned.get_title() == "learned draws"
    assert learned.get_ylabel() == "b"
    # as many points in either panel, or one would look denser
    assert len(learned.lines[0].get_xdata()) == len(exact.lines[0].get_xdata()) == 300
    assert saved_size(figure) > 10_000


@pytest.mark.parametrize(("dim", "panels"), [(1, 1), (2, 3), (5, 15)])
def test_pair_plot_has_a_panel_per_parameter_and_pair(rng, dim, panels):
    draws = rng.normal(size=(200, dim))
    figure = pairs(draws, reference=draws + 1, truth=np.zeros(dim))
    assert len(figure.axes) == panels
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["draws", "reference", "truth"]


def test_pair_plot_takes_the_names_of_the_draws(rng):
    draws = Draws(rng.normal(size=(2, 50, 2)), ("drift", "$noise$"), np.zeros((1, 3)), seed=0)
    titles = {axis.get_title() for axis in pairs(draws).axes}
    assert titles == {"drift", "", r"\$noise\$"}


def test_pair_plot_shows_a_truth_outside_the_draws(rng):
    figure = pairs(rng.normal(size=(200, 1)), truth=[9.0])
    low, high = figure.axes[0].get_xlim()
    assert low < 9.0 < high


def test_constant_parameters_and_heavy_tails_can_be_drawn(rng):
    values = np.stack([np.full(500, 2.0), np.exp(3 * rng.normal(size=500))], axis=1)
    assert saved_size(pairs(values)) > 5_000


def test_training_curves_show_all_energies():
    records = [
        {"stage": "training", **kind, "chunk": i, "gain": i, "gap": -i, "ess": 0.5}
        for kind in ({"sees_theta": False}, {"sees_theta": True}, {"sees_theta": True, "continued": True})
        for i in range(4)
    ]
    figure = training_curves([{"stage": "seconds", "fit": 1.0}, *records])
    gain = figure.axes[0]
    assert len([line for line in gain.lines if len(line.get_xdata()) == 4]) == 3
    np.testing.assert_array_equal(gain.lines[0].get_ydata(), [0, 1, 2, 3])


def test_a_figure_leaves_the_settings_of_the_user_alone(rng):
    before = dict(matplotlib.rcParams)
    pairs(rng.normal(size=(50, 2)))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare_draws(np.zeros((5, 3)), np.zeros((5, 3))), "two parameters; got 3"),
        (lambda: compare_draws(np.zeros((5, 2)), np.zeros((5, 3))), "2 columns; got 3"),
        (
            lambda: compare_draws(
                np.zeros((5, 2)), np.zeros((5, 2)), density=(np.ones(3), np.ones(4), np.ones((3, 4)))
            ),
            r"shape \(4, 3\)",
        ),
        (lambda: pairs(np.full((5, 2), np.nan)), "finite values"),
        (lambda: pairs(np.zeros(5)), "one draw per row"),
        (lambda: pairs(np.zeros((5, 2)), ["a"]), "2 names"),
        (lambda: pairs(np.zeros((5, 50))), "at most 40"),
        (lambda: training_curves([]), "got none"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
