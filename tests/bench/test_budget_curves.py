"""Curves over the number of simulations: where the legend is, and what is drawn of an error that is not there."""

import numpy as np

from unle_bench.plot import Series, budget_curves

NAN = float("nan")


def bars(axis):
    """Return the ends of all error bars that can be seen."""
    segments = [segment for container in axis.collections for segment in container.get_segments()]
    return [segment[:, 1].tolist() for segment in segments if segment.size and np.isfinite(segment).all()]


def test_five_panels_leave_a_place_for_the_legend():
    line = Series("ours", [1000, 10_000], [0.7, 0.6])
    figure = budget_curves({f"task_{k}": [line] for k in range(5)})
    *panels, free = figure.axes
    assert len(panels) == 5  # two rows of three
    assert figure.legends == []
    assert [text.get_text() for text in free.get_legend().get_texts()] == ["ours", "0.5: as good as exact"]
    assert {axis.get_xlabel() for axis in panels} == {"simulations"}
    assert 0.5 in panels[0].get_yticks()
    assert len(budget_curves({"a": [line]}).legends) == 1


def test_no_error_no_bar_and_hollow_where_observations_are_missing():
    line = Series(
        "ours", [1000, 10_000, 100_000], [0.7, 0.6, 0.5], [NAN, NAN, 0.01], [0.05, NAN, NAN], [True, True, False]
    )
    figure = budget_curves({"a": [line]})
    (axis,) = figure.axes
    np.testing.assert_allclose(sorted(bars(axis)), [[0.49, 0.51], [0.65, 0.75]])
    (hollow,) = [drawn for drawn in axis.lines if drawn.get_markerfacecolor() == "white"]
    assert list(hollow.get_ydata()) == [0.7, 0.6]
    assert "not all observations" in [text.get_text() for text in figure.legends[0].get_texts()]
