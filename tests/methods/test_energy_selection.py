"""Which energies are kept, with members that are known exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from unle.errors import Outcome
from unle.methods import energy_selection
from unle.methods.energy_selection import _clearly_worse, select_energy
from unle.models import AbstractEnergy, ConditionalGaussian, NoCorrection, NoEnergy
from unle.space import Prior, fit_theta_space
from unle.train import BaseParticles, EnergyFit, JointSpace, Rows, Splits, Validation

ROWS = 1800


class Narrow(AbstractEnergy):
    """E = (c - 1) r^2 / 2: the data are N(0, 1 / c), and c = 1 has learned nothing."""

    c: Float[Array, ""]

    def __call__(self, t, r):
        return 0.5 * (self.c - 1) * jnp.sum(r**2)


def choice_of(members, scales=None, *, replace=True):
    """Gate members with the given c over bases N(0, scale^2), for data of variance 1 / 4."""
    count = len(members)
    joint = JointSpace.of(Prior.normal([0.0], [1.0]), fit_theta_space(np.array([[-1.0], [1.0]])))
    one = ConditionalGaussian(jnp.zeros(1), jnp.zeros((1, 1)), jnp.eye(1), NoCorrection())
    bases = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), one)
    if scales is not None:
        bases = eqx.tree_at(lambda b: b.whitener, bases, 1 / jnp.asarray(scales)[:, None, None])
    t, w = jr.normal(jr.key(0), (ROWS, 1)), 0.5 * jr.normal(jr.key(1), (ROWS, 1))
    rows = jnp.arange(ROWS).reshape(count, -1)
    particles = BaseParticles(n=100, pool=4000, validation=4000)
    states = jax.vmap(lambda key: particles.init(key, joint, one, t))(jr.split(jr.key(2), count))
    scored = Validation(np.ones(count), np.ones((count, 1)), jnp.zeros(count), jnp.ones(count))
    fit = EnergyFit(Narrow(jnp.asarray(members)), states, scored, Outcome.CONVERGED, [])
    data = Rows(t, w, Splits(rows, rows))
    return select_energy(jr.key(3), joint, bases, fit, data, particles, replace_failed=replace)[0]


def test_members_that_learned_are_kept_as_they_are():
    choice = choice_of([4.0, 3.5, 4.5])
    assert choice.replaced == 0
    assert choice.models.energy.c.tolist() == [4.0, 3.5, 4.5]
    # log Z = -log(c) / 2, and the gain of the truth is (log 4 - 1 + 1 / 4) / 2
    np.testing.assert_allclose(choice.log_z, -0.5 * np.log([4.0, 3.5, 4.5]), atol=0.1)
    assert choice.gain == pytest.approx(0.5 * (np.log(4) - 0.75), abs=0.1)


def test_a_member_that_did_not_learn_gives_way_to_the_best():
    choice = choice_of([1.0, 4.0, 1.1])
    assert choice.replaced == 2
    assert choice.models.energy.c.tolist() == [4.0, 4.0, 4.0]
    np.testing.assert_allclose(choice.log_z, choice.log_z[0])


def test_the_best_comes_with_its_base():
    choice = choice_of([4.0, 1.0], scales=[1.0, 1.5])
    assert choice.replaced == 1
    np.testing.assert_array_equal(choice.models.base.whitener, np.ones((2, 1, 1)))


def test_a_member_with_little_to_learn_stays():
    """The second base is right by itself; its energy gains nothing, and its likelihood is the best."""
    choice = choice_of([4.0, 1.0], scales=[1.0, 0.5])
    assert choice.replaced == 0
    assert choice.models.energy.c.tolist() == [4.0, 1.0]


def test_members_are_replaced_by_chance_hardly_ever():
    """Equally good members gain little, and by chance one of them half of another; its error says so."""
    rng = np.random.default_rng(0)
    alike = [_clearly_worse(0.1 + rng.normal(scale=0.45, size=(3, 100))).any() for _ in range(1000)]
    assert np.mean(alike) < 0.03
    apart = np.array([[0.9], [0.0], [0.9]]) + rng.normal(scale=0.45, size=(3, 100))
    assert _clearly_worse(apart).tolist() == [False, True, False]


def test_nobody_is_replaced_unasked():
    choice = choice_of([1.0, 4.0, 1.1], replace=False)
    assert choice.replaced == 0
    np.testing.assert_allclose(choice.models.energy.c, [1.0, 4.0, 1.1])


def test_where_none_learned_the_bases_stay_alone():
    choice = choice_of([1.0, 1.0, 1.0])
    assert isinstance(choice.models.energy, NoEnergy)
    assert choice.gain == 0
    assert choice.replaced == 0


@pytest.mark.parametrize(("c", "gained"), [(4.0, True), (1.0, False)])
def test_energies_that_gained_without_a_normaliser_to_rely_on_are_dropped_and_reported(monkeypatch, c, gained):
    monkeypatch.setattr(energy_selection, "FEWEST_EFFECTIVE", 1e9)
    choice = choice_of([c, c])
    assert not choice.has_energies
    assert choice.unreliable == gained
