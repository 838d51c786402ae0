r"""Particles of a conditional model against one that is known exactly.

With r | t ~ N(0, 1) under the base and the energy E = -(a + b t) r + (c - 1) r^2 / 2,

    r | t ~ N((a + b t) / c, 1 / c),   Z(t) = exp((a + b t)^2 / 2 c) / sqrt(c),

whatever distribution the parameters t come from; here it is uniform, far from any prior.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from unle.models import AbstractEnergy, ConditionalGaussian, EnergyModel, Mlp, NeuralCorrection
from unle.space import Prior, fit_theta_space
from unle.train import Batch, JointSpace, PairedChains, PairedSmc
from unle.train.energy_training import energy_gap

A, B, C = 0.5, 0.8, 1.5
PAIRS, BATCH = 2000, 500
Z = 4.5

PARTICLES = {"chains": PairedChains(moves=3), "SMC": PairedSmc(n=4, moves=1)}


class Known(AbstractEnergy):
    """E = -(a + b t) r + (c - 1) r^2 / 2."""

    numbers: Float[Array, " 3"]

    def __call__(self, t, r):
        a, b, c = self.numbers
        return -(a + b * t[0]) * r[0] + 0.5 * (c - 1) * r[0] ** 2


@pytest.fixture(scope="module")
def joint():
    return JointSpace.of(Prior.normal([0.0], [1.0]), fit_theta_space(np.array([[-1.0], [1.0]])))


@pytest.fixture(scope="module")
def base():
    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape), jax.eval_shape(lambda: Mlp(jr.key(0), 1, 2, width=1, depth=1))
    )
    return ConditionalGaussian(jnp.zeros(1), jnp.zeros((1, 1)), jnp.eye(1), NeuralCorrection(zeros))


@pytest.fixture(scope="module")
def t():
    return jnp.linspace(-1.0, 3.0, PAIRS)[:, None]


@pytest.fixture(scope="module", params=PARTICLES)
def followed(request, joint, base, t):
    particles = PARTICLES[request.param]

    @eqx.filter_jit
    def follow(key):
        key_init, key_order, key_steps = jr.split(key, 3)
        order = jr.permutation(key_order, PAIRS)

        def step(state, i):
            share = jnp.minimum(i / 20, 1.0)  # an energy that changes while pairs are visited in turn
            now = EnergyModel(base, Known(jnp.array([A, B, 1.0 + (C - 1.0) * share])))
            rows = order[(i * BATCH + jnp.arange(BATCH)) % PAIRS]
            return particles.advance(jr.fold_in(key_steps, i), joint, state, now, now, Batch(rows, t[rows]))[0], None

        state, _ = jax.lax.scan(step, particles.init(key_init, joint, base, t), jnp.arange(60))
        return state

    state = follow(jr.key(1))
    weights = np.asarray(jax.nn.softmax(state.log_weights, axis=1))
    return particles, state, weights


def z_scores(rows):
    return rows.mean(0) / (rows.std(0) / np.sqrt(len(rows)))


def test_each_pair_has_particles_of_its_own_conditional(followed, t):
    _, state, weights = followed
    r = np.asarray(state.positions)[:, :, 0]
    deviation = r - (A + B * np.asarray(t)) / C

    def moments(deviation):
        mean, square = (weights * deviation).sum(1), (weights * deviation**2).sum(1)
        return np.column_stack([mean, mean * np.asarray(t)[:, 0], square - 1 / C])

    assert (np.abs(z_scores(moments(deviation))) < Z).all()
    assert np.abs(z_scores(moments(r - A / C))).max() > 2 * Z  # particles that ignore their t are found out


def test_log_normalisers_are_those_of_each_parameter(followed, joint, base):
    particles, state, _ = followed
    model = EnergyModel(base, Known(jnp.array([A, B, C])))
    t = jnp.linspace(-1.0, 3.0, 9)[:, None]
    log_z, share = type(particles)(importance=20_000).log_z(jr.key(3), joint, state, model, t)
    exact = (A + B * np.asarray(t)[:, 0]) ** 2 / (2 * C) - 0.5 * np.log(C)
    assert log_z.shape == (9,)
    worst = np.exp((A + 3 * B) ** 2 / C - exact[-1]) / 20_000  # at t = 3: E[exp(-2 E)] / Z^2 is of this order
    np.testing.assert_allclose(log_z, exact, atol=Z * np.sqrt(worst))
    assert 0 < share < 1


def test_the_conditional_likelihood_is_flat_at_the_truth_and_nowhere_else(followed, joint, base, t):
    particles, state, _ = followed
    truth = Known(jnp.array([A, B, C]))
    r = (A + B * t) / C + jr.normal(jr.key(5), (PAIRS, 1)) / np.sqrt(C)
    gradient = eqx.filter_jit(jax.vmap(lambda data, cloud: jax.grad(lambda e: energy_gap(e, data, cloud)[0])(truth)))

    def gradients(r):
        rows = jnp.arange(PAIRS).reshape(20, -1)
        visit = eqx.filter_jit(
            jax.vmap(
                lambda key, rows: particles.advance(
                    key, joint, state, EnergyModel(base, truth), EnergyModel(base, truth), Batch(rows, t[rows])
                )[1]._replace(of_base=jnp.asarray(0.0))
            )
        )
        clouds = visit(jr.split(jr.key(6), 20), rows)
        return np.asarray(gradient((t[rows], r[rows]), clouds).numbers)

    assert (np.abs(z_scores(gradients(r))) < Z + 1).all()  # Student's t with 19 degrees of freedom
    assert np.abs(z_scores(gradients(r + 0.3))).max() > 2 * Z
