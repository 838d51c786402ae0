"""Distances between sets of draws: unbiased where there is none, right where there is one."""

import numpy as np
import pytest

from unle.diagnose import discrepancy, energy_score
from unle.errors import InputError


def _normals(shift, *, n=2000, dim=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)), shift + rng.normal(size=(n, dim))


def test_equal_laws_have_distance_zero_within_error():
    values = [discrepancy(*_normals(0.0, seed=seed)) for seed in range(12)]
    for name in ("mmd", "energy_distance"):
        scores = np.array([getattr(v, name).value / getattr(v, name).error for v in values])
        assert abs(scores.mean()) < 4 / np.sqrt(12) * 1.3  # t with nine degrees of freedom is wider than a normal
        assert np.abs(scores).max() < 6


def test_known_distances():
    """One dimension, N(0, 1) against N(m, 1), exact by the normal law of differences."""
    m, n = 1.0, 8000
    found = discrepancy(*_normals(m, n=n, dim=1))
    centre = 2 * np.exp(-(m**2) / 4) / np.sqrt(np.pi) + m * (1 - 2 * 0.23975006109347669)  # E|d|, d ~ N(m, 2)
    exact = 2 * centre - 2 * 2 / np.sqrt(np.pi)
    assert abs(found.energy_distance.value - exact) < 4 * found.energy_distance.error + 0.01  # sd is estimated
    assert abs(found.mean_error.value - m) < 4 * found.mean_error.error + 0.01
    width = 0.9539**2  # median of |d|, d ~ N(0, 2), squared
    kernel = lambda shift: np.sqrt(width / (width + 2)) * np.exp(-(shift**2) / (2 * (width + 2)))  # noqa: E731
    assert found.mmd.value == pytest.approx(2 * kernel(0) - 2 * kernel(m), rel=0.08)


def test_error_of_the_mean_has_the_right_size():
    spread = [discrepancy(*_normals(0.5, seed=seed)).mean_error for seed in range(30)]
    assert np.mean([one.error for one in spread]) == pytest.approx(np.std([one.value for one in spread]), rel=0.5)


def test_energy_score_prefers_the_truth():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2000, 2))
    near, far = (energy_score(draws, truth, np.ones(2)) for truth in ([0.0, 0.0], [3.0, 0.0]))
    assert near < far
    assert energy_score(draws * [1, 5], [0.0, 0.0], np.array([1, 5])) == pytest.approx(near)


def test_refusals():
    reference, draws = _normals(0.0, n=100)
    with pytest.raises(InputError, match="equal shape"):
        discrepancy(reference, draws[:90])
    with pytest.raises(InputError, match=r"constant columns \[0\]"):
        discrepancy(reference * [0, 1], draws)
