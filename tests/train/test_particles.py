r"""Particles, normalisers and gradients against a tilted model that is known exactly.

With t ~ N(0, 1), r | t ~ N(0, 1) and the energy E = -(a + b t) r + (c - 1) r^2 / 2, the tilted joint is Gaussian:

    r | t ~ N((a + b t) / c, 1 / c),   t ~ N(a b / (c - b^2), c / (c - b^2)),
    Z_pi = E_t[exp((a + b t)^2 / 2 c) / sqrt(c)] = exp(a^2 / 2 (c - b^2)) / sqrt(c - b^2).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from unle.errors import InputError
from unle.models import AbstractEnergy, ConditionalGaussian, EnergyModel, FixedMeasure, Mlp, NeuralCorrection
from unle.space import Prior, fit_theta_space
from unle.train import BaseParticles, Batch, DataParticles, JointSpace, PersistentChains, Splits, WarmSmc, validate
from unle.train.energy_training import energy_gap

A, B, C = 0.5, 0.4, 1.5
NO_BATCH = Batch(jnp.zeros(1, int), jnp.zeros((1, 1)))  # tilted models do not look at the data's parameters
REPLICATES, ROWS = 16, 400
Z = 4.5  # Student's t with 15 degrees of freedom: false alarms 4e-4 per comparison

# name -> particles; a new kind is one more line
PARTICLES = {
    "of the base": BaseParticles(n=400, pool=4000),
    "at the data's parameters": DataParticles(n=400, pool=4000),
    "persistent chains": PersistentChains(n=400, moves=3),
    "warm SMC": WarmSmc(n=400, moves=2),
    "chains under the prior": PersistentChains(n=400, moves=3, at_data=False),
    "SMC under the prior": WarmSmc(n=400, moves=2, at_data=False),
}


class Known(AbstractEnergy):
    """E = -(a + b t) r + (c - 1) r^2 / 2."""

    numbers: Float[Array, " 3"]

    def __call__(self, t, r):
        a, b, c = self.numbers
        return -(a + b * t[0]) * r[0] + 0.5 * (c - 1) * r[0] ** 2


class Bent(NeuralCorrection):
    """A correction whose mean is 100 t."""

    def inverse(self, t, v):
        return v + 100 * t


def exact_rows(rng, n):
    """Draw (t, r) from the tilted model."""
    t = A * B / (C - B**2) + np.sqrt(C / (C - B**2)) * rng.normal(size=(n, 1))
    r = (A + B * t) / C + rng.normal(size=(n, 1)) / np.sqrt(C)
    return jnp.asarray(t, jnp.float32), jnp.asarray(r, jnp.float32)


@pytest.fixture(scope="module")
def joint():
    identity = fit_theta_space(np.array([[-1.0], [1.0]]))
    return JointSpace.of(Prior.normal([0.0], [1.0]), identity)


def base():
    """A linear Gaussian that is N(0, 1) for every t, so that w = r = v."""
    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape), jax.eval_shape(lambda: Mlp(jr.key(0), 1, 2, width=1, depth=1))
    )
    return ConditionalGaussian(jnp.zeros(1), jnp.zeros((1, 1)), jnp.eye(1), NeuralCorrection(zeros))


def stacked(tree):
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * REPLICATES), tree)


def t_scores(estimates, exact=0.0):
    estimates = np.asarray(estimates, float)
    return (estimates.mean(0) - exact) / (estimates.std(0, ddof=1) / np.sqrt(len(estimates)))


@eqx.filter_jit
def follow(particles, joint, base, keys):
    """Carry particles from the base to the tilted model, as training does, and return them."""
    new = EnergyModel(base, Known(jnp.array([A, B, C])))

    def one(key):
        key_init, key_renew, key_steps = jr.split(key, 3)

        def step(carry, key):
            state, old, _ = carry
            state, cloud = particles.advance(key, joint, state, EnergyModel(base, old), new, NO_BATCH)
            return (state, new.energy, cloud._replace(of_base=jnp.asarray(cloud.of_base))), None

        flat, between = Known(jnp.array([0.0, 0.0, 1.0])), Known(jnp.array([0.2, 0.3, 1.2]))
        # Renewed with another energy than the one to be followed, as at the beginning of a chunk.
        t = jr.normal(jr.fold_in(key_init, 1), (4000, 1))  # the prior, as data that come from it
        state = particles.renew(key_renew, joint, particles.init(key_init, joint, base, t), EnergyModel(base, between))
        shapes = jax.eval_shape(step, (state, flat, None), key_steps)[0][2]
        cloud = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        (state, _, cloud), _ = jax.lax.scan(step, (state, flat, cloud), jr.split(key_steps, 40))
        return state, cloud

    return jax.lax.map(one, keys)  # quicker to compile than a vmap


@pytest.fixture(scope="module", params=PARTICLES)
def followed(request, joint):
    particles = PARTICLES[request.param]
    states, clouds = follow(particles, joint, base(), jr.split(jr.key(1), REPLICATES))
    return particles, states, clouds


def test_gain_and_normaliser_are_exact(followed, joint):
    particles, states, _ = followed
    t, r = exact_rows(np.random.default_rng(0), ROWS)
    held_out = jnp.stack([jnp.arange(k, ROWS, REPLICATES) for k in range(REPLICATES)])
    splits = Splits(held_out, held_out)
    models = stacked(EnergyModel(base(), Known(jnp.array([A, B, C]))))
    scores = validate(jr.split(jr.key(2), REPLICATES), joint, models, t, r, splits, particles, states)
    exact = A**2 / (2 * (C - B**2)) - 0.5 * np.log(C - B**2)
    # Unbiased for Z itself, not for its logarithm.
    assert abs(t_scores(np.exp(scores.log_z), np.exp(exact))) < Z
    assert abs(t_scores(np.exp(scores.log_z), np.exp(exact + 0.1))) > 2 * Z  # and precise enough to tell
    t, r = np.asarray(t)[held_out, 0], np.asarray(r)[held_out, 0]
    tilt = (A + B * t) * r - 0.5 * (C - 1) * r**2
    np.testing.assert_allclose(scores.rows, tilt - np.asarray(scores.log_z)[:, None], atol=1e-4)
    np.testing.assert_allclose(scores.gain, scores.rows.mean(1), atol=1e-5)
    assert (scores.ess > 0.3).all()
    assert (scores.ess <= 1).all()


@eqx.filter_jit
def gradients(energy, data, clouds):
    return jax.vmap(lambda data, cloud: jax.grad(lambda e: energy_gap(e, data, cloud)[0])(energy))(data, clouds)


def test_the_likelihood_is_flat_at_the_truth_and_nowhere_else(followed):
    """At the truth the mean energies of data and particles have the same gradient; with other data they do not."""
    _, _, clouds = followed
    rng = np.random.default_rng(1)
    data = tuple(part.reshape(REPLICATES, 2000, 1) for part in exact_rows(rng, 2000 * REPLICATES))
    energy = Known(jnp.array([A, B, C]))
    assert np.abs(t_scores(gradients(energy, data, clouds).numbers)).max() < Z
    for wrong in ((data[0], data[1] + 0.2), (data[0], 1.2 * data[1]), (-data[0], data[1])):
        assert np.abs(t_scores(gradients(energy, wrong, clouds).numbers)).max() > 2 * Z


def test_particles_report_how_they_moved(followed):
    particles, _, clouds = followed
    assert (clouds.acceptance > 0.3).all()
    assert (clouds.acceptance <= 1).all()
    moving = not isinstance(particles, BaseParticles)
    assert bool((clouds.step_size > 0).all()) == moving
    assert not np.asarray(clouds.of_base).any() == moving


@pytest.mark.parametrize("rows", [7, 19, 20, 33])
def test_draws_at_the_datas_parameters_are_as_many_at_each_and_belong_to_it(joint, rows):
    """The base's mean is 100 t: a draw that went to another t would be a hundred standard deviations away."""
    shapes = jax.eval_shape(lambda: Mlp(jr.key(0), 1, 2, width=1, depth=1))
    net = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
    wide = ConditionalGaussian(jnp.zeros(1), jnp.zeros((1, 1)), jnp.eye(1), Bent(net))
    t = jnp.arange(rows, dtype=jnp.float32)[:, None]
    seen, r = DataParticles()._draws(jr.key(0), joint, wide, t, 20)
    assert 20 <= len(seen) < 40
    assert (np.abs(np.asarray(r - 100 * seen)) < 6).all()
    assert np.std(np.asarray(r - 100 * seen)) > 0.3
    if rows <= 20:  # a random sample of more
        assert len(set(np.unique(np.asarray(seen), return_counts=True)[1])) == 1
        assert len(np.unique(np.asarray(seen))) == rows


@pytest.mark.parametrize("particles", [DataParticles(n=50, pool=400), PersistentChains(n=400)])
def test_parameters_of_sorted_data_are_sampled_from_all_of_them(particles, joint, monkeypatch):
    """Sequential runs store rows round by round: the first of them are no sample."""
    monkeypatch.setattr("unle.train.persistent_particles.MOST_PARAMETERS", 400)
    t = jnp.linspace(-1, 1, 4000)[:, None]
    kept = np.asarray(particles.init(jr.key(0), joint, base(), t).t)
    assert abs(kept.mean()) < 4 * np.sqrt(1 / 3 / 400)  # four standard errors; the first rows have -.95
    assert kept.std() == pytest.approx(np.sqrt(1 / 3), rel=4 * np.sqrt(0.2 / 400))  # kurtosis 1.8


@pytest.mark.parametrize("kind", [PersistentChains, WarmSmc])
def test_particles_at_the_data_keep_to_their_parameters(kind, joint):
    """Data of two parameters only: particles are at these, and in the shares of the tilted model."""
    particles, model = kind(n=4000), EnergyModel(base(), Known(jnp.array([A, B, C])))
    t = jnp.array([[-2.0], [1.0]])

    @eqx.filter_jit
    def followed():
        def step(state, key):
            return particles.advance(key, joint, state, model, model, NO_BATCH)

        state = particles.init(jr.key(0), joint, model.base, t)
        return jax.lax.scan(step, state, jr.split(jr.key(1), 40))[1]

    clouds = followed()
    places, weights = np.asarray(clouds.seen[0])[-1, :, 0], np.exp(np.asarray(clouds.log_weights)[-1])
    assert set(places) == {-2.0, 1.0}
    z = np.exp((A + B * np.array([-2.0, 1.0])) ** 2 / (2 * C))  # Z(t), up to a factor: the share of each
    share = weights[places == 1.0].sum() / weights.sum()
    assert share == pytest.approx(z[1] / z.sum(), abs=4.5 * 0.5 / np.sqrt(1000))  # a quarter as good as independent
    assert abs(share - 0.5) > 0.05  # which is not that of the data


@pytest.mark.parametrize("kind", [PersistentChains, WarmSmc])
def test_particles_at_the_data_refuse_a_base_whose_draws_are_never_taken(kind, joint):
    fixed, t = FixedMeasure(jnp.zeros(1), jnp.asarray(10.0)), jnp.zeros((5, 1))
    with pytest.raises(InputError, match=f"{kind.__name__}\\(at_data=False\\)"):
        kind(n=10).init(jr.key(0), joint, fixed, t)
    assert kind(n=10, at_data=False).init(jr.key(0), joint, fixed, t).particles.positions.shape == (10, 2)
