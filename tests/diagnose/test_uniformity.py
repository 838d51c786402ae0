"""Tests of uniformity: the right size, the right direction, and bands that hold."""

import numpy as np
import pytest

from unle.diagnose.distances import energy_scores, energy_test
from unle.diagnose.p_values import ecdf_band, tail_probability, uniformity
from unle.diagnose.record import bonferroni, verdict_of, worst


def test_uniform_numbers_are_rejected_as_often_as_they_should():
    rng = np.random.default_rng(0)
    p_values = np.array([uniformity(rng.uniform(size=100)).p_value for _ in range(4000)])
    for level in (0.1, 0.01, 0.001):
        expected, sd = 4000 * level, np.sqrt(4000 * level * (1 - level))
        assert abs((p_values < level).sum() - expected) < 4 * sd + 2, level


@pytest.mark.parametrize(
    ("shape", "direction"),
    [((0.5, 0.5), "narrow"), ((3, 3), "wide"), ((2, 1), "low"), ((1, 2), "high")],
)
def test_the_direction_of_a_failure_is_named(shape, direction):
    found = uniformity(np.random.default_rng(1).beta(*shape, size=300))
    assert found.p_value < 1e-3
    assert found.direction == direction


def test_the_band_holds_nineteen_of_twenty_curves():
    points = np.linspace(0.01, 0.99, 99)
    low, high = ecdf_band(200, points, seed=1)
    u = np.sort(np.random.default_rng(2).uniform(size=(2000, 200)), axis=1)
    curves = np.stack([np.searchsorted(row, points, side="right") / 200 for row in u])
    inside = ((curves >= low - 1e-9) & (curves <= high + 1e-9)).all(axis=1).mean()
    assert 0.92 < inside < 0.985


def test_tails_are_counted_where_possible_and_continued_beyond():
    rng = np.random.default_rng(3)
    exact = 0.0111  # P(chi-square with 3 degrees of freedom > 11.12)
    values = [tail_probability(rng.chisquare(3, size=200), 11.12) for _ in range(200)]
    assert np.median(values) == pytest.approx(exact, rel=0.35)
    assert tail_probability(rng.normal(size=100), 50.0) == pytest.approx(1e-6)
    assert tail_probability(np.zeros(10), 0.0) == 1.0


def test_energy_test_tells_clouds_apart_and_keeps_its_level():
    rng = np.random.default_rng(4)
    same = [energy_test(*rng.normal(size=(2, 100, 2)), permutations=100, seed=i).p_value for i in range(60)]
    assert np.mean(np.array(same) < 0.1) < 0.25
    assert energy_test(rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 0.8).p_value < 1e-3


def test_energy_scores_are_those_of_the_definition():
    rng = np.random.default_rng(5)
    forecasts, point = rng.normal(size=(7, 2)), rng.normal(size=(1, 2))
    scores, left_out = energy_scores(forecasts, point)

    def score(b, y):
        pairs = [np.linalg.norm(b[i] - b[j]) for i in range(len(b)) for j in range(len(b)) if i != j]
        return np.mean(np.linalg.norm(b - y, axis=1)) - np.mean(pairs) / 2

    assert scores[0] == pytest.approx(score(forecasts, point[0]))
    assert left_out[3] == pytest.approx(score(np.delete(forecasts, 3, axis=0), forecasts[3]))


def test_words():
    assert verdict_of(0.01) == "good"
    assert worst(["good", "bad", "doubtful"]) == "bad"
    assert worst([]) == "good"
    assert bonferroni([0.01, 0.5]) == pytest.approx(0.02)
