"""One density for all measurements, if they are independent given theta."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from unle.models import Repeated
from unle.train import GaussianTraining, Rows, fit_shared_or_whole, make_splits, residuals
from unle.train.residuals import single_measurements

BASE = GaussianTraining(width=32, depth=2, iterations=500, batch=256)
BLOCKS = ((0,), (1,), (2,), (3,))


def fitted(shared):
    """Fit four measurements, whose mean and spread bend with theta, and which share some of their noise."""
    rng = np.random.default_rng(1)
    t = rng.normal(size=(400, 2))
    noise = np.sqrt(1 - shared) * rng.normal(size=(400, 4)) + np.sqrt(shared) * rng.normal(size=(400, 1))
    w = np.sin(2 * t[:, :1]) + np.exp(t[:, 1:] - 1) * noise
    rows = jnp.asarray(t, jnp.float32), jnp.asarray(w, jnp.float32)
    return fit_shared_or_whole(jr.key(0), BASE.fit, Rows(*rows, make_splits(jr.key(1), 400, members=2)), cuts=[BLOCKS])


def test_independent_measurements_have_one_density():
    bases = fitted(0.0)
    assert isinstance(bases, Repeated)
    assert bases.blocks == BLOCKS


def test_measurements_that_share_noise_are_not_taken_for_independent():
    assert not isinstance(fitted(0.3), Repeated)


def test_where_a_cut_is_too_fine_the_next_is_taken():
    """Three pairs of numbers that are alike, but not independent within a pair: single numbers will not do."""
    rng = np.random.default_rng(2)
    t = rng.normal(size=(400, 2))
    shared = rng.normal(size=(400, 3, 1))
    pairs = np.sin(2 * t[:, None, :1]) + np.exp(t[:, None, 1:] - 1) * (
        0.6 * shared + 0.8 * rng.normal(size=(400, 3, 2))
    )
    rows = jnp.asarray(t, jnp.float32), jnp.asarray(pairs.reshape(400, 6), jnp.float32)
    cuts = [tuple((i,) for i in range(6)), ((0, 1), (2, 3), (4, 5))]
    bases = fit_shared_or_whole(jr.key(0), BASE.fit, Rows(*rows, make_splits(jr.key(1), 400, members=2)), cuts=cuts)
    assert isinstance(bases, Repeated)
    assert bases.blocks == cuts[1]


def test_measurements_of_one_simulation_stay_on_one_side_of_a_split():
    t, w = jnp.arange(10.0)[:, None], jnp.arange(60.0).reshape(10, 6)
    splits = make_splits(jr.key(0), 10, members=2, fraction=0.2)
    many_t, parts, dealt = single_measurements(Rows(t, w, splits), ((0, 3), (1, 4), (2, 5))).table
    assert parts.shape == (30, 2)
    assert parts[3].tolist() == [6.0, 9.0]  # the first measurement of the second simulation
    for k in range(2):
        held = set(np.asarray(many_t)[np.asarray(dealt.held_out[k]), 0].astype(int))
        trained = set(np.asarray(many_t)[np.asarray(dealt.train[k]), 0].astype(int))
        assert held == set(np.asarray(splits.held_out[k]))
        assert not held & trained
        assert len(dealt.train[k]) == 3 * len(splits.train[k])


def test_of_very_many_measurements_some_of_each_simulation_are_taken(monkeypatch):
    monkeypatch.setattr(residuals, "MOST_MEASUREMENTS", 25)
    t, w = jnp.arange(10.0)[:, None], jnp.arange(60.0).reshape(10, 6)
    splits = make_splits(jr.key(0), 10, members=2, fraction=0.2)
    many_t, parts, dealt = single_measurements(Rows(t, w, splits), ((0, 3), (1, 4), (2, 5))).table
    assert parts.shape == (20, 2)
    simulation, first = np.divmod(np.asarray(parts)[:, 0].astype(int), 6)
    assert simulation.tolist() == np.asarray(many_t)[:, 0].astype(int).tolist()
    assert len(set(zip(simulation, first, strict=True))) == 20  # none twice
    assert set(first) == {0, 1, 2}  # not the same ones of every simulation
    assert np.asarray(parts[:, 1] - parts[:, 0]).tolist() == [3.0] * 20
    assert len(dealt.train[0]) == 2 * len(splits.train[0])
