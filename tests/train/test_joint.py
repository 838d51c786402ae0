"""The particles' coordinates: their density against the change of variables, their draws against their density."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

from unle.models import ConditionalGaussian, EnergyModel, FixedMeasure, Mlp, MlpEnergy, NeuralCorrection
from unle.space import Prior, fit_theta_space
from unle.train import JointSpace

DIM, DATA, DRAWS = 3, 2, 4000
RNG = np.random.default_rng(0)
POSITIONS = jnp.asarray(RNG.normal(size=(6, DIM + DATA)), jnp.float32)


def filled(shapes, seed):
    """Return a module with weights from numpy: compiling a generator for each would take longer than the tests."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(0.4 * rng.normal(size=leaf.shape), leaf.dtype), shapes)


def gaussian():
    net = filled(jax.eval_shape(lambda: Mlp(jr.key(0), DIM, NeuralCorrection.outputs(DATA), width=4, depth=1)), 1)
    slope = jnp.asarray(RNG.normal(size=(DIM, DATA)), jnp.float32)
    return ConditionalGaussian(
        jnp.array([0.2, -1.0]), slope, jnp.array([[1.3, 0.0], [0.4, 0.8]]), NeuralCorrection(net)
    )


BASES = {"conditional Gaussian": gaussian, "fixed measure": lambda: FixedMeasure(jnp.zeros(DATA), jnp.asarray(3.0))}


@pytest.fixture(scope="module")
def joint():
    """A wall on two sides, a wall on one, and none; in different units."""
    prior = Prior([dist.Uniform(-3.0, 40.0), dist.LogNormal(1.0, 0.7), dist.Normal(-5.0, 0.1)])
    return JointSpace.of(prior, fit_theta_space(prior.sample(500, seed=1)))


@eqx.filter_jit
def evaluate(joint, model):
    """Evaluate all that is compared, compiled once per kind of base."""

    def to_theta_and_w(position):
        theta = joint.prior.constrain(joint.centre + joint.scale * position[:DIM])
        return jnp.concatenate([theta, model.base.unwhiten(joint.theta_space.forward(theta), position[DIM:])])

    def by_change_of_variables(position):
        theta, w = jnp.split(to_theta_and_w(position), [DIM])
        t = joint.theta_space.forward(theta)
        log_jacobian = jnp.linalg.slogdet(jax.jacfwd(to_theta_and_w)(position))[1]
        base = joint.prior.log_density(theta) + model.base.log_density(t, w) + log_jacobian
        energy = model.energy(t, model.base.features(t, w))
        return base - energy, base, t, model.base.features(t, w)

    density = jax.vmap(lambda position: joint.log_density(model, position))(POSITIONS)
    reference = jax.vmap(lambda position: joint.log_reference(model.base, position))(POSITIONS)
    seen = jax.vmap(lambda position: joint.seen(model.base, position))(POSITIONS)
    draws = joint.draws(jr.key(1), model.base, DRAWS)
    slopes = [
        jax.vmap(jax.grad(lambda position: joint.log_reference(model.base, position)))(moved)
        for moved in (draws, 1.2 * draws)
    ]
    return (density, reference, *seen), jax.vmap(by_change_of_variables)(POSITIONS), draws, slopes


@pytest.fixture(params=BASES)
def evaluated(request, joint):
    energy = filled(jax.eval_shape(lambda: MlpEnergy.initial(jr.key(0), DIM, DATA, width=4, depth=1, bound=5.0)), 2)
    return evaluate(joint, EnergyModel(BASES[request.param](), energy))


def test_density_is_prior_times_base_times_tilt(joint, evaluated):
    (density, reference, t, r), (exact, exact_reference, exact_t, exact_r), *_ = evaluated
    constant = float(jnp.sum(jnp.log(joint.scale)))  # d theta = scale d a: left out by design
    np.testing.assert_allclose(density, exact - constant, atol=2e-3)
    np.testing.assert_allclose(reference, exact_reference - constant, atol=2e-3)
    assert np.ptp(density - reference) > 0.1  # the energy does something
    np.testing.assert_allclose(t, exact_t, atol=1e-4)
    np.testing.assert_allclose(r, exact_r, atol=1e-3)


def test_draws_are_of_unit_spread_whatever_the_units(evaluated):
    *_, draws, _ = evaluated
    spread = np.asarray(draws[:, :DIM])
    np.testing.assert_allclose(spread.mean(0), np.zeros(DIM), atol=0.1)
    np.testing.assert_allclose(spread.std(0), np.ones(DIM), atol=0.1)


def stein_scores(positions, slopes):
    """Return z-scores of E[d_j log q] = 0 and E[x_j d_j log q] = -1, which hold for draws of q."""
    positions, slopes = np.asarray(positions, float), np.asarray(slopes, float)
    values = np.concatenate([slopes, positions * slopes + 1], axis=1)
    return np.abs(values.mean(0) / (values.std(0) / np.sqrt(DRAWS)))


def test_draws_have_the_reference_density(evaluated):
    *_, draws, (right, wide) = evaluated
    assert stein_scores(draws, right).max() < 4  # ten comparisons, false alarms 6e-4
    assert stein_scores(1.2 * draws, wide).max() > 8
