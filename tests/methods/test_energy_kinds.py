"""Which energies are trained, and which are kept: scores are given, nothing is trained."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import Outcome
from unle.methods.energy_selection import best_energies
from unle.train import EnergyFit, EnergyTraining, Validation, WarmStart
from unle.train.persistent_particles import PairedState

MEMBERS, ROWS = 2, 100


def fit(gain, seed, particles=None):
    """A training that ended with so much gain; rows scatter by 0.1, so means have a standard error of about 0.007."""
    energies = EnergyTraining(width=3, depth=1).untrained(1, 1, members=MEMBERS, key=jr.key(seed))
    if gain is None:
        return EnergyFit(energies, particles, None, Outcome.CONVERGED, [])
    noise = np.random.default_rng(seed).normal(scale=0.1, size=(MEMBERS, ROWS))
    rows = jnp.asarray(gain + noise - noise.mean(), jnp.float32)
    scores = Validation(rows.mean(1), rows, jnp.zeros(MEMBERS), jnp.ones(MEMBERS))
    return EnergyFit(energies, particles, scores, Outcome.CONVERGED, [])


class Scripted:
    """Trainings with given gains, which remembers how they were asked for."""

    def __init__(self, free, full, continued=None, particles=None):
        self.free, self.full, self.continued = fit(free, 1, particles), fit(full, 2), fit(continued, 3)
        self.calls, self.aims = [], []

    def __call__(self, key, *, sees_theta, start=None, share=1.0, aim=0.0):
        self.calls.append((sees_theta, start, share))
        self.aims.append(aim)
        if not sees_theta:
            return self.free
        return self.full if share == 1 else self.continued


@pytest.mark.parametrize(
    ("free", "continued", "full", "kept", "name"),
    [
        (1.0, 1.0, 1.0, "free", "theta-free"),  # as good as the others
        (1.0, 1.2, 1.3, "full", "full"),
        (1.0, 1.2, 1.2, "continued", "continued"),  # the simpler of two that are better
        (1.0, 1.2, 1.1, "continued", "continued"),
        (0.2, 1.5, 1.0, "full", "full"),  # a start that explains little is not continued from
        (None, 1.5, 1.0, "full", "full"),
        (0.0, 1.5, 0.0, "free", "theta-free"),  # no clear gain: nothing to continue, and the gate will drop them
        (1.0, None, None, "free", "theta-free"),
    ],
)
def test_the_simplest_that_is_as_good_is_kept(free, continued, full, kept, name):
    train = Scripted(free, full, continued)
    best, kind = best_energies(jr.key(0), train)
    assert best is getattr(train, kept)
    assert kind == name


def test_full_energies_begin_where_they_are_told_and_continued_ones_at_the_theta_free():
    positions = jnp.zeros((MEMBERS, 5, 1, 1))
    particles = PairedState(positions, jnp.zeros((MEMBERS, 5, 1)), jnp.ones((MEMBERS, 5, 1)), jnp.ones(MEMBERS))
    train = Scripted(1.0, 1.0, 1.0, particles)
    start = WarmStart(fit(1.0, 4).energies, None)
    best_energies(jr.key(0), train, start=start)
    assert [call[0] for call in train.calls] == [True, False, True]
    assert train.calls[0][1] is start
    assert train.calls[1][1] is None
    begun, share = train.calls[2][1:]
    assert begun.energies is train.free.energies
    assert begun.particles[0] is positions  # each pair goes on with its own
    assert 0 < share < 1


def test_nothing_is_continued_where_theta_matters():
    train = Scripted(0.5, 1.0, 1.0)
    best_energies(jr.key(0), train)
    assert len(train.calls) == 2


@pytest.mark.parametrize(("full", "aim"), [(1.0, 1.0), (0.0, 0.0), (None, 0.0)])
def test_theta_free_energies_aim_at_what_full_ones_clearly_gained(full, aim):
    train = Scripted(0.0, full)
    best_energies(jr.key(0), train)
    assert train.aims == [0.0, pytest.approx(aim, abs=1e-6)]


def test_repetitions_of_held_out_rows_do_not_count():
    rows = jnp.asarray([[1.0, 3.0, 100.0, 100.0], [2.0, 4.0, -100.0, -100.0]])
    scores = Validation(rows.mean(1), rows, jnp.zeros(MEMBERS), jnp.ones(MEMBERS))
    np.testing.assert_array_equal(scores.of(slice(2)).rows, rows[:, :2])
    np.testing.assert_array_equal(scores.of(slice(2)).gain, [2.0, 3.0])
    np.testing.assert_array_equal(scores.of(slice(None)).gain, rows.mean(1))
