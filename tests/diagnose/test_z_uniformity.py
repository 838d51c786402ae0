"""The check of Z(theta) on models whose normaliser is known in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from unle.diagnose import ZUniformity, z_uniformity
from unle.diagnose.z_of_theta import sd_without_noise
from unle.errors import InputError
from unle.models import (
    AbstractEnergy,
    Consensus,
    EnergyLikelihood,
    EnergyModel,
    Ensemble,
    FixedMeasure,
    GivenValid,
    NoEnergy,
    Region,
    Tempered,
)
from unle.models.likelihood import TractableLikelihood
from unle.posterior import Draws, Posterior
from unle.space import Prior, ThetaSpace, XSpace, fit_theta_space, fit_x_space

DIM = 2


class ThetaEnergy(AbstractEnergy):
    """E = a . t, constant in x: log Z(t) = -a . t whatever the base."""

    slope: Float[Array, " dim"]

    def __call__(self, t, r):
        return self.slope @ t


class BilinearEnergy(AbstractEnergy):
    """E = -(a . t) r_0 over r ~ N(0, 1): log Z(t) = (a . t)^2 / 2."""

    slope: Float[Array, " dim"]

    def __call__(self, t, r):
        return -(self.slope @ t) * r[0]


@pytest.fixture(scope="module")
def spaces() -> tuple[ThetaSpace, XSpace]:
    """Spaces that standardise by nothing but a shift and a scale."""
    rng = np.random.default_rng(0)
    theta_space, x_space = (
        fit_theta_space(rng.normal([1.0, -2.0], [2.0, 0.5], (500, DIM))),
        fit_x_space(rng.normal(size=(500, 1))),
    )
    assert set(theta_space.standardiser.marginals.names()) == {"identity"}
    return theta_space, x_space


def posterior(spaces, energy: AbstractEnergy, log_z=(0.0,), scale: float = 1.0) -> Posterior:
    """Stack members that share a base N(0, scale^2); the energy's arrays have one row per member."""
    members = len(log_z)
    base = eqx.filter_vmap(FixedMeasure)(jnp.zeros((members, 1)), jnp.full(members, scale))
    likelihood = Ensemble(*spaces, EnergyModel(base, energy), jnp.asarray(log_z, jnp.float32))
    return Posterior(Prior.normal([1.0, -2.0], [2.0, 0.5], names=["a", "b"]), likelihood)


@pytest.fixture(scope="module")
def theta() -> np.ndarray:
    return np.random.default_rng(1).normal([1.0, -2.0], [2.0, 0.5], (4000, DIM)).astype(np.float32)


def standardised(spaces, theta) -> np.ndarray:
    return np.asarray(jax.vmap(spaces[0].forward)(jnp.asarray(theta)))


def test_a_normaliser_that_varies_is_measured_exactly_and_called_bad(spaces, theta):
    slope = jnp.array([[1.0, 0.5]])
    check = z_uniformity(posterior(spaces, ThetaEnergy(slope)), theta)
    exact = -standardised(spaces, check.theta) @ np.asarray(slope[0])
    np.testing.assert_allclose(check.log_z, exact, atol=1e-5)
    np.testing.assert_allclose(check.sd, exact.std(), rtol=1e-4)
    np.testing.assert_allclose(check.span, np.ptp(exact), rtol=1e-4)
    np.testing.assert_allclose(check.member_sd, [check.sd])
    assert check.ess > 0.9999  # E is constant in x: nothing to estimate
    assert check.verdict == "bad"
    assert "corrected" in check.advice
    assert check.expected_c2st == pytest.approx(0.5 + 0.2 * check.sd, abs=0.02)


def test_correction_recovers_the_posterior_that_the_tilt_had_spoilt(spaces, theta):
    # Plain draws follow N(m, s^2) in t, taken as the density tilted by exp(-a.t); dividing by Z = exp(-a.t)
    # multiplies by exp(a.t), which moves the mean of t by a s^2 and leaves the covariance.
    slope = jnp.array([[0.6, -0.3]])
    chains = theta.reshape(4, 1000, DIM)
    draws = Draws(chains, ("a", "b"), np.zeros((1, 1)), seed=0)
    model = posterior(spaces, ThetaEnergy(slope))
    check = z_uniformity(model, draws)
    t = standardised(spaces, theta)
    exact = t.mean(axis=0) + np.cov(t.T) @ np.asarray(slope[0])
    fixed = check.corrected(draws, seed=3)
    assert isinstance(fixed, Draws)
    assert fixed.values.shape == chains.shape
    assert fixed.info["corrected_for_z"]
    effective = check.weight_ess * len(theta)
    assert effective > 400
    error = 4 * t.std(axis=0) / np.sqrt(effective)
    after = standardised(spaces, np.asarray(fixed))
    assert (np.abs(after.mean(axis=0) - exact) < error).all()
    np.testing.assert_allclose(np.cov(after.T), np.cov(t.T), atol=0.25)
    assert (np.abs(t.mean(axis=0) - exact) > error).any()  # the plain draws fail the same test
    moved = (exact - t.mean(axis=0)) / t.std(axis=0)
    np.testing.assert_allclose(check.shift, moved, atol=0.25)  # at 200 draws


def test_importance_sampling_agrees_with_quadratic_normaliser_within_its_error(spaces, theta):
    slope = jnp.array([[0.5, 0.25]])
    model = posterior(spaces, BilinearEnergy(slope))
    check = z_uniformity(model, theta)
    exact = (standardised(spaces, check.theta) @ np.asarray(slope[0])) ** 2 / 2
    assert (np.abs(check.log_z - exact) < 4.5 * check.log_z_error + 1e-5).all()
    assert (np.abs(check.log_z - exact) > check.log_z_error).any()  # the error bars are no larger than they need be
    assert check.sd == pytest.approx(exact.std(), rel=0.2)


def test_noise_is_subtracted():
    rng = np.random.default_rng(2)
    signal, noise = rng.normal(0.0, 0.3, 20_000), rng.normal(0.0, 0.5, (2, 20_000))
    assert sd_without_noise(signal + noise) == pytest.approx(0.3, abs=0.015)
    assert np.std((signal + noise).mean(axis=0)) > 0.45  # what one would have reported otherwise
    assert sd_without_noise(noise) < 0.1


def test_mixture_averages_normalised_members(spaces, theta):
    slope, log_z = jnp.array([[1.0, 0.0], [-1.0, 0.0]]), (0.3, -0.2)
    check = z_uniformity(posterior(spaces, ThetaEnergy(slope), log_z), theta)
    members = -standardised(spaces, check.theta) @ np.asarray(slope).T - np.asarray(log_z)
    np.testing.assert_allclose(check.member_log_z, members.T, atol=1e-5)
    np.testing.assert_allclose(check.log_z, np.log(np.exp(members).mean(axis=1)), atol=1e-5)
    assert check.sd < check.member_sd.min()  # opposite errors cancel in the mixture


@pytest.mark.parametrize("members", [1, 3])
def test_without_energy_nothing_varies(spaces, theta, members):
    check = z_uniformity(posterior(spaces, NoEnergy(), (0.0,) * members), theta)
    assert check.verdict == "good"
    np.testing.assert_allclose(check.log_z, 0.0, atol=1e-5)
    assert check.sd < 1e-5
    assert check.expected_c2st == pytest.approx(0.5, abs=1e-5)
    assert check.weight_ess == pytest.approx(1.0)
    np.testing.assert_array_equal(check.corrected(theta), theta)  # equal weights: every draw is chosen once


def test_each_row_of_the_observation_counts(spaces, theta):
    model = posterior(spaces, ThetaEnergy(jnp.array([[0.04, 0.0]])))
    one = z_uniformity(model, Draws(theta[None], ("a", "b"), np.zeros((1, 1)), seed=0))
    many = z_uniformity(model, Draws(theta[None], ("a", "b"), np.zeros((20, 1)), seed=0))
    assert many.sd == pytest.approx(20 * one.sd)
    assert (one.verdict, many.verdict) == ("good", "bad")


def test_a_base_far_from_the_model_is_not_believed(spaces, theta):
    class Narrow(AbstractEnergy):
        precision: Float[Array, ""]

        def __call__(self, t, r):
            return 0.5 * self.precision * jnp.sum((r - t[:1]) ** 2)

    check = z_uniformity(posterior(spaces, Narrow(jnp.array([1e4])), scale=10.0), theta)
    assert check.verdict == "doubtful"
    assert "raise n_data" in check.advice


def test_uneven_weights_are_not_called_a_remedy(spaces, theta):
    check = z_uniformity(posterior(spaces, ThetaEnergy(jnp.array([[3.0, 3.0]]))), theta)
    assert check.verdict == "bad"
    assert "more simulations" in check.advice


def test_one_tilted_model_is_an_ensemble_of_one(spaces, theta):
    ensemble = posterior(spaces, ThetaEnergy(jnp.array([[0.2, 0.1]])), (0.5,))
    single = eqx.tree_at(lambda p: p.likelihood, ensemble, ensemble.likelihood.member(0))
    assert isinstance(single.likelihood, EnergyLikelihood)
    first, second = (z_uniformity(p, theta) for p in (ensemble, single))
    np.testing.assert_allclose(first.log_z, second.log_z, atol=1e-6)


def test_the_text_says_it_all_and_seeds_fix_it(spaces, theta):
    model = posterior(spaces, BilinearEnergy(jnp.array([[0.5, 0.25]])))
    first, again, other = (z_uniformity(model, theta, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.log_z, again.log_z)
    assert not np.array_equal(first.log_z, other.log_z)
    text = str(first)
    assert text.startswith(f"Z-uniformity: {first.verdict}.")
    assert "a " in text
    assert "of 2000" in text


def test_wrong_arguments_are_named(spaces, theta):
    model = posterior(spaces, NoEnergy())
    with pytest.raises(InputError, match=r"draws of shape \(n, 2\)"):
        z_uniformity(model, theta[:, :1])
    with pytest.raises(InputError, match="n_data >= 2"):
        z_uniformity(model, theta, n_data=1)

    class Flow(TractableLikelihood):
        def prepare(self, x):
            return x

        def log_likelihood(self, theta, w):
            return jnp.zeros(())

    with pytest.raises(InputError, match="not in question"):
        z_uniformity(Posterior(model.prior, Flow()), theta)


def test_second_check_compiles_nothing(spaces, theta):
    model = posterior(spaces, BilinearEnergy(jnp.array([[0.5, 0.25]])))
    z_uniformity(model, theta)
    compiled = []

    def listen(event, seconds, **_):
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        check = z_uniformity(model, theta[::-1], seed=5, n_theta=195)  # fills as many chunks
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert isinstance(check, ZUniformity)
    assert not compiled


def wrapped(posterior: Posterior, spaces) -> Posterior:
    """As a sequential run reports it: the geometric mean, in a box."""
    box = Region(spaces[0], jnp.full(DIM, -9.0), jnp.full(DIM, 9.0))
    return Posterior(posterior.prior, GivenValid(Consensus(posterior.likelihood), box))


def test_the_ensemble_is_found_inside_its_wrappers(spaces, theta):
    plain = posterior(spaces, ThetaEnergy(jnp.array([[0.3, 0.0], [0.3, 0.0]])), log_z=(0.0, 0.0))
    expected = z_uniformity(plain, theta).sd
    box = Region(spaces[0], jnp.full(DIM, -9.0), jnp.full(DIM, 9.0))
    inside = Posterior(plain.prior, GivenValid(plain.likelihood, box))
    assert z_uniformity(inside, theta).sd == expected
    halved = Posterior(plain.prior, Tempered(plain.likelihood, jnp.asarray(0.5)))
    np.testing.assert_allclose(z_uniformity(halved, theta).sd, expected / 2, rtol=1e-5)


def test_the_geometric_mean_has_a_normaliser_of_its_own(spaces, theta):
    """E_k = -(a_k . t) r over N(0, 1): C(t) = exp((mean a . t)^2 / 2), whatever the members' Z_k are."""
    slopes = jnp.array([[0.8, 0.0], [0.2, 0.4]])
    found = z_uniformity(wrapped(posterior(spaces, BilinearEnergy(slopes), log_z=(0.0, 0.0)), spaces), theta)
    assert found.geometric
    t = np.asarray(jax.vmap(spaces[0].forward)(jnp.asarray(found.theta, jnp.float32)), float)
    exact = 0.5 * (t @ np.asarray(slopes).mean(axis=0)) ** 2
    z = (found.log_z - exact) / found.log_z_error
    assert found.ess * found.n_data > 100
    assert np.abs(z).max() < 4.5  # of 200, nearly one and the same error
    np.testing.assert_allclose(found.sd, exact.std(), atol=0.05)


def test_members_that_cancel_have_a_constant_normaliser_together(spaces, theta):
    slopes = jnp.array([[0.7, 0.3], [-0.7, -0.3]])
    found = z_uniformity(wrapped(posterior(spaces, BilinearEnergy(slopes), log_z=(0.0, 0.0)), spaces), theta)
    assert found.member_sd.min() > 0.15
    assert found.sd < 0.02
    assert found.verdict == "good"


def test_corrected_draws_of_a_geometric_mean_follow_its_normaliser(spaces, theta):
    slopes = jnp.array([[1.0, 0.0], [0.0, 0.0]])  # C = exp(-t_1 / 2): dividing by it moves t_1 by + 1 / 2
    found = z_uniformity(wrapped(posterior(spaces, ThetaEnergy(slopes), log_z=(0.0, 0.0)), spaces), theta)
    moved = found.corrected(theta)[:, 0].mean() - theta[:, 0].mean()
    assert moved / theta[:, 0].std() == pytest.approx(0.5, abs=5 / np.sqrt(len(theta)))
