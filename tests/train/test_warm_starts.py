"""A warm start is the same function in other coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.models import MlpEnergy
from unle.space import fit_theta_space, fit_x_space, restandardise_theta, restandardise_x
from unle.train import Carried, Frame, GaussianTraining, PairedChains, Rows, make_splits, warm_start
from unle.train.persistent_particles import PairedState

ROWS, MEMBERS = 120, 2


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(ROWS, 2)) * [1.0, 3.0] + [0.0, 5.0]
    x = np.stack([theta.sum(axis=1), np.exp(0.3 * theta[:, 0])], axis=1) + 0.1 * rng.normal(size=(ROWS, 2))
    first_theta, first_x = fit_theta_space(theta), fit_x_space(x)
    near = np.flatnonzero(np.abs(theta[:, 0]) < 1)
    quick = GaussianTraining(iterations=50, width=4, depth=1)

    def frame(rows):
        theta_space, x_space = restandardise_theta(first_theta, theta[rows]), restandardise_x(first_x, x[rows])
        t = jax.vmap(theta_space.forward)(jnp.asarray(theta[rows], jnp.float32))
        w = jax.vmap(x_space.forward)(jnp.asarray(x[rows], jnp.float32))
        bases = quick.fit(jr.key(1), Rows(t, w, make_splits(jr.key(0), len(rows), members=MEMBERS)))
        return Frame(theta_space, x_space, bases, t, jnp.asarray(rows))

    return frame(np.arange(ROWS)), frame(near)


@pytest.fixture(scope="module")
def energies():
    return eqx.filter_vmap(lambda key: MlpEnergy.initial(key, 2, 2, width=5, depth=2, bound=20.0))(
        jr.split(jr.key(2), MEMBERS)
    )


@eqx.filter_jit
def _values(energies, frame, theta, x):
    t, w = frame.theta_space.forward(theta), frame.x_space.forward(x)
    return eqx.filter_vmap(lambda energy, base: energy(t, base.features(t, w)))(energies, frame.bases)


def test_energies_are_the_same_function(frames, energies):
    old, new = frames
    carried = warm_start(Carried(old, energies, None), new, pairs=len(new.t)).energies
    for point in ([0.2, 5.0, 4.0, 1.5], [-0.9, 1.0, 2.0, 0.7]):
        theta, x = jnp.asarray(point[:2]), jnp.asarray(point[2:])
        before, after = _values(energies, old, theta, x), _values(carried, new, theta, x)
        np.testing.assert_allclose(after, before, rtol=2e-4, atol=1e-5)
        assert np.abs(_values(energies, new, theta, x) - before).max() > 1e-3  # not carried: another function


def test_particles_are_the_same_points(frames, energies):
    old, new = frames
    pairs, padded = len(new.rows), len(new.rows) + 3
    v = jr.normal(jr.key(3), (MEMBERS, ROWS, 1, 2))
    state = PairedState(
        v, jnp.zeros((MEMBERS, ROWS, 1)), jnp.ones((MEMBERS, ROWS, 1)), PairedChains().step_size.init(1)
    )
    start = warm_start(Carried.of(old, energies, state), new, pairs=padded)
    positions, _, values = start.particles
    assert positions.shape == (MEMBERS, padded, 1, 2)
    assert np.isnan(positions[:, pairs:]).all()  # padding has no particles of its own
    assert np.isfinite(positions[:, :pairs]).all()
    np.testing.assert_array_equal(values[:, :pairs], 1.0)

    def points(frame, positions, t):
        def one(base, v, t):
            return jax.vmap(lambda t, v: base.unwhiten(t, v[0]))(t, v)

        w = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 0, None))(frame.bases, positions, t)
        standardiser = frame.x_space.standardiser
        return standardiser.mean + standardiser.scale * w

    before = points(old, v[:, np.asarray(new.rows)], old.t[np.asarray(new.rows)])
    after = points(new, positions[:, :pairs], new.t)
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-3)


def test_new_pairs_keep_their_own_draws(frames, energies):
    particles = PairedChains()
    fresh = PairedState(jnp.ones((2, 1, 2)), jnp.zeros((2, 1)), jnp.zeros((2, 1)), particles.step_size.init(1))
    known = (jnp.asarray([[[5.0, 5.0]], [[jnp.nan, jnp.nan]]]), jnp.full((2, 1), -1.0), jnp.full((2, 1), 3.0))
    state = particles.started(fresh, known)
    np.testing.assert_array_equal(state.positions, [[[5.0, 5.0]], [[1.0, 1.0]]])
    np.testing.assert_array_equal(state.energies, [[3.0], [0.0]])


def test_nothing_is_carried_to_other_transforms(frames, energies):
    old, new = frames
    kinds = lambda frame: frame.x_space.standardiser.marginals.kind  # noqa: E731
    assert warm_start(Carried(old, energies, None), new, pairs=len(new.t)) is not None
    assert warm_start(Carried(old, energies, None), eqx.tree_at(kinds, new, kinds(new) + 1), pairs=len(new.t)) is None
