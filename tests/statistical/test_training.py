"""Training against the exact likelihood of a toy, by quadrature: no noise of a test set in the comparison.

    theta ~ U(-1, 1),   x = theta + s (1 + theta / 2) + 0.25 noise,   s = +1 or -1.

Two peaks whose distance depends on theta, over a Gaussian base of the right mean and variance.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm

from unle.models import ConditionalGaussian, EnergyModel, Mlp, NeuralCorrection, NoEnergy
from unle.space import Prior, fit_theta_space
from unle.train import (
    BaseParticles,
    EnergyTraining,
    JointSpace,
    PersistentChains,
    Rows,
    WarmSmc,
    fit_energies,
    make_splits,
)

ROWS, NOISE = 2000, 0.25
SPREAD = np.sqrt(1 + 0.25 / 3 + NOISE**2)

# name -> particles; a new kind is one more line
PARTICLES = {
    "of the base": BaseParticles(n=1000, pool=8192),
    "persistent chains": PersistentChains(n=500, moves=3),
    "warm SMC": WarmSmc(n=500, moves=2),
}


def settings(particles):
    return EnergyTraining(
        particles, width=16, depth=2, iterations=500, batch=256, learning_rate=0.02, average=0.95, chunk=50
    )


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    theta = rng.uniform(-1, 1, (ROWS, 1))
    x = theta + rng.choice([-1.0, 1.0], (ROWS, 1)) * (1 + theta / 2) + NOISE * rng.normal(size=(ROWS, 1))
    joint = JointSpace.of(Prior.uniform([-1.0], [1.0]), fit_theta_space(np.array([[-1.0], [1.0]])))
    shapes = jax.eval_shape(lambda: Mlp(jr.key(0), 1, 2, width=1, depth=1))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
    base = ConditionalGaussian(
        jnp.zeros(1), jnp.ones((1, 1)), jnp.full((1, 1), 1 / SPREAD, jnp.float32), NeuralCorrection(zeros)
    )
    arrays = jnp.asarray(theta, jnp.float32), jnp.asarray(x, jnp.float32)
    return joint, jax.tree.map(lambda leaf: leaf[None], base), Rows(*arrays, make_splits(jr.key(0), ROWS, members=1))


@eqx.filter_jit
def by_quadrature(models):
    """Return the expected log-likelihood lost against the truth, log Z_pi, and the spread of log Z(theta)."""
    model = jax.tree.map(lambda leaf: leaf[0], models)
    theta, x = jnp.linspace(-0.995, 0.995, 200), jnp.linspace(-4.5, 4.5, 901)
    log_q = jax.vmap(lambda t: jax.vmap(lambda w: model.log_density(t[None], w[None]))(x))(theta)
    peaks = jax.vmap(lambda t: jnp.logaddexp(*(norm.logpdf(x, t + s * (1 + t / 2), NOISE) for s in (-1, 1))))(theta)
    log_p = peaks - jnp.log(2.0)
    step = x[1] - x[0]
    z = jnp.sum(jnp.exp(log_q), axis=1) * step
    lost = jnp.mean(jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=1) * step) + jnp.log(jnp.mean(z))
    return lost, jnp.log(jnp.mean(z)), jnp.std(jnp.log(z))


# Chains are trained with to two modes by `methods/test_paper.py`, and are exact by `train/test_particles.py`.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "chains" in name else ()) for name in PARTICLES]
)
def test_every_kind_of_particles_trains_to_the_exact_likelihood(problem, name):
    _, bases, *_ = problem
    fit = fit_energies(jr.key(1), *problem, settings=settings(PARTICLES[name]), sees_theta=True)
    lost, log_z, spread = by_quadrature(EnergyModel(bases, fit.energies))
    nothing_learnt, *_ = by_quadrature(EnergyModel(bases, NoEnergy()))
    assert nothing_learnt > 0.4  # nats per row
    assert 0 < lost < 0.05
    assert spread < 0.15  # Z(theta) hardly depends on theta: the likelihood needs no correction
    assert fit.validation.log_z[0] == pytest.approx(float(log_z), abs=0.05)
    # the gain on 200 held-out rows, whose standard error is about 0.05
    assert fit.gain == pytest.approx(float(nothing_learnt - lost), abs=0.2)
    assert 0.02 < fit.history[-1]["ess"] <= 1


def test_an_energy_that_does_not_see_theta_learns_less(problem):
    _, bases, *_ = problem
    fit = fit_energies(jr.key(1), *problem, settings=settings(PARTICLES["of the base"]), sees_theta=False)
    lost, *_ = by_quadrature(EnergyModel(bases, fit.energies))
    assert lost > 0.1
    assert fit.gain > 0.1
