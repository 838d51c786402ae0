"""Figures: the right panels with the right data in them, and a sentence where the input cannot be drawn."""

import io

import matplotlib
import numpy as np
import pytest

from unle import plot
from unle.errors import InputError
from unle.plot import compare_draws, marginals, observation, pairs, training_curves
from unle.plot.inputs import draw_sets
from unle.plot.pairs import credible_levels
from unle.posterior import Draws
from unle.space import Prior


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


@pytest.fixture
def two_sets(rng):
    first = Draws(rng.normal(size=(2, 500, 3)), ("a", "b", "c"), np.zeros((1, 1)), seed=0)
    second = Draws(rng.normal(2.0, 1.0, size=(2, 500, 3)), ("c", "a", "b"), np.zeros((1, 1)), seed=0)
    return {"one": first, "two": second}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_several_posteriors_subsets_limits_truth_and_colours(two_sets):
    figure = pairs(
        two_sets, parameters=["c", "a"], limits={"a": (-1.0, 5.0)}, truth={"a": 1.0}, colours=["#112233", "#445566"]
    )
    assert legend(figure) == ["one", "two", "truth"]
    marginal_c, pair, marginal_a = figure.axes
    assert [axis.get_title() for axis in (marginal_c, marginal_a)] == ["c", "a"]
    assert marginal_a.get_xlim() == pair.get_ylim() == (-1.0, 5.0)
    assert len(marginal_a.lines) == 1  # the truth of a; that of c is not known
    assert not marginal_c.lines
    figure = marginals(two_sets, prior=Prior.normal([0, 0, 0], 3.0, names=["a", "b", "c"]), parameters=["b"])
    assert legend(figure) == ["prior", "one", "two"]
    assert len(figure.axes) == 1


def test_columns_of_further_sets_are_found_by_name(two_sets):
    figure = pairs(list(two_sets.values()), parameters=["a"])
    own, other = (patch.get_data() for patch in figure.axes[0].patches[::2])
    centres = [np.average((edges[1:] + edges[:-1]) / 2, weights=heights) for heights, edges, _ in (own, other)]
    np.testing.assert_allclose(centres, [two_sets["one"]["a"].mean(), two_sets["two"]["a"].mean()], atol=0.1)
    assert legend(figure) == ["draws 1", "draws 2"]


@pytest.mark.parametrize("shape", ["round", "two rings"])
def test_credible_areas_hold_their_shares_of_fresh_draws(rng, shape):
    def draw(n):
        values = rng.normal(size=(n, 2))
        if shape == "two rings":
            values *= (2 + 0.15 * rng.normal(size=n) + 2 * rng.integers(2, size=n))[:, None]
            values /= np.linalg.norm(values, axis=1, keepdims=True) ** 0.8
        return values

    limits = ((-7.0, 7.0), (-7.0, 7.0))
    x, y, density, levels = credible_levels(draw(20_000), limits)
    fresh = draw(50_000)
    i, j = (np.abs(column[:, None] - middles).argmin(axis=1) for column, middles in zip(fresh.T, (x, y), strict=True))
    for level, share in zip(levels, (0.95, 0.5), strict=True):
        assert np.mean(density[j, i] >= level) == pytest.approx(share, abs=0.02)


def test_limits_may_come_from_a_prior(rng):
    prior = Prior.uniform([-3.0, -4.0], [3.0, 4.0], names=["a", "b"])
    figure = pairs(rng.normal(size=(200, 2)), ["a", "b"], limits=prior)
    assert figure.axes[0].get_xlim() == (-3.0, 3.0)
    assert figure.axes[1].get_ylim() == (-4.0, 4.0)


def test_dots_are_drawn_if_asked_for(rng):
    values = rng.normal(size=(200, 2))
    assert [len(pairs(values, dots=dots).axes[1].lines) for dots in (True, False)] == [1, 0]
    assert len(pairs(values).axes[1].collections) >= 2


def test_an_observation_is_a_line_over_its_bands(rng):
    simulations, replicas = rng.normal(0, 3, size=(300, 20)), rng.normal(size=(300, 20))
    x_o = np.linspace(-1, 1, 20)
    axis = observation(x_o, simulations=simulations, replicas=replicas).axes[0]
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), x_o)
    heights = [band.get_paths()[0].get_extents().height for band in axis.collections]
    assert heights[0] > heights[1] > heights[2]  # prior, then 95 % and 50 % of replicas
    # Coordinates of very different size are drawn in units of their own spread.
    sizes = np.logspace(0, 6, 20)
    axis = observation(x_o * sizes, simulations=simulations * sizes).axes[0]
    assert np.ptp(axis.lines[0].get_ydata()) < 2
    assert axis.get_ylabel() == "in spreads of the band"


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
        (lambda: pairs(np.zeros((5, 2)), parameters=["b"]), "expected parameters among theta_1, theta_2; got 'b'"),
        (lambda: pairs(np.zeros((5, 2)), truth={"b": 0}), "expected parameters among theta_1, theta_2; got 'b'"),
        (lambda: pairs(np.zeros((5, 2)), truth=[0, 0, 0]), "2 columns; got 3"),
        (lambda: pairs(np.zeros((5, 2)), limits={"theta_1": (1, 0)}), "low < high"),
        (lambda: pairs([np.zeros((5, 2))] * 2, labels=["a"]), "expected 2 labels"),
        (lambda: pairs([np.zeros((5, 9))] * 3), "at most 8 parameters for 3 sets"),
        (lambda: training_curves([]), "got none"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_draws_of_a_smaller_model_are_laid_over_those_of_a_larger_one():
    rng = np.random.default_rng(0)
    large, small = (
        Draws(rng.normal(size=(2, 50, len(names))), names, np.zeros((1, 1)), 0)
        for names in (("a", "b", "c"), ("b", "a"))
    )
    sets, _, _ = draw_sets({"large": large, "small": small}, None, parameters=["a", "b"])
    np.testing.assert_array_equal(sets[1].values, small[["a", "b"]])
    np.testing.assert_array_equal(sets[0].values, large[["a", "b"]])
    with pytest.raises(InputError, match="expected `small` with 3 columns; got 2"):
        draw_sets({"large": large, "small": small}, None)


def test_names_of_other_libraries_are_answered(rng):
    with pytest.raises(AttributeError, match=r"no attribute 'pairplot'; try unle.plot.pairs"):
        plot.pairplot  # noqa: B018
    with pytest.raises(InputError, match="expected `colours`; got `colors`"):
        pairs(rng.normal(size=(50, 2)), colors=["red"])


def test_areas_end_at_the_walls_of_the_prior(rng):
    values = rng.uniform(size=(4000, 2)) ** 3  # piled up at zero
    x, y, density, levels = credible_levels(values, ((-0.5, 1.5), (-0.5, 1.5)))
    assert x.min() > 0
    assert y.min() > 0
    assert x.max() < 1
    assert density[0, 0] > levels[-1]  # the densest area reaches into the corner
