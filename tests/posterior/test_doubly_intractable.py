"""Which sampler goes with which kind of likelihood, and what an exchange run reports."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle.models import (
    AbstractEnergy,
    ConditionalLikelihood,
    DoublyIntractableLikelihood,
    EnergyModel,
    LogNormaliser,
    Normalised,
)
from unle.posterior import Chains, Exchange, Posterior, TemperedSmc
from unle.samplers import RejectionInner, TemperedInner

TRACES = []


class Slope(AbstractEnergy):
    """E = t_1 tanh(r_1): something that depends on theta."""

    def __call__(self, t, r):
        TRACES.append("traced")
        return t[0] * jnp.tanh(r[0])


@pytest.fixture(scope="module")
def parts(linear_gaussian):
    prior, fitted, _ = linear_gaussian.fitted(np.random.default_rng(0))
    doubly = ConditionalLikelihood(fitted.theta_space, fitted.x_space, EnergyModel(fitted.model.base, Slope()))
    return prior, fitted, doubly


OBSERVED = np.array([104.0, 35.0])


def quick(starts):
    """Return a sampler that compiles quickly: tempered SMC before it is a matter of the statistical tests."""
    inner = TemperedInner(temperatures=2, settle=1, candidates=2, moves=1)
    return Exchange(warm_up=4, thin=1, importance=8, inner=inner, starts=jnp.asarray(starts, jnp.float32))


@pytest.fixture(scope="module")
def draws(parts):
    prior, _, doubly = parts
    return Posterior(prior, doubly, quick(prior.sample(20, seed=0))).sample(OBSERVED, 100, seed=1)


def test_an_exchange_run_reports_its_health(draws):
    assert draws.values.shape == (20, 5, 2)
    assert np.isfinite(draws.values).all()
    wanted = {"acceptance", "inner_acceptance", "inner_drift", "inner_drift_error", "inner_spread", "inner_trusted"}
    assert wanted <= set(draws.info)
    assert 0 < draws.info["acceptance"] <= 1


def test_another_observation_or_other_starts_do_not_compile_anew(parts, draws):
    prior, _, doubly = parts
    before = len(TRACES)
    warm = Posterior(prior, doubly, quick(draws.values[:, -1]))
    other = warm.sample(OBSERVED + 1.0, 100, seed=1)
    assert len(TRACES) == before
    assert not np.array_equal(other.values, draws.values)


def test_the_kind_of_likelihood_picks_the_sampler(parts):
    prior, tractable, doubly = parts
    with pytest.raises(InputError, match="would ignore Z"):
        Posterior(prior, doubly, TemperedSmc())
    with pytest.raises(InputError, match="would ignore Z"):
        Posterior(prior, doubly).sample(OBSERVED, 10, sampler=Chains())
    with pytest.raises(InputError, match="needs no auxiliary data"):
        Posterior(prior, tractable, Exchange())
    with pytest.raises(InputError, match="known normaliser"):
        Posterior(prior, doubly).log_prob([1.0, 0.0], OBSERVED)
    with pytest.raises(InputError, match="known normaliser"):
        Posterior(prior, doubly).map(OBSERVED)
    assert isinstance(doubly, DoublyIntractableLikelihood)


@pytest.mark.slow
def test_a_learned_normaliser_goes_with_either_sampler(parts):
    prior, _, doubly = parts
    posterior = Posterior(prior, Normalised(doubly, LogNormaliser.initial(jr.key(0), 2)))
    corrected = posterior.sample(OBSERVED, 100, seed=4, sampler=quick(prior.sample(20, seed=0)))
    assert corrected.values.shape == (20, 5, 2)
    assert np.isfinite(posterior.log_prob([1.0, 0.0], OBSERVED))
    assert len(posterior.sample(OBSERVED, 1000, seed=5)) >= 1000  # by tempered SMC, like any tractable likelihood


def test_wrong_settings_are_named():
    with pytest.raises(InputError, match="chains >= 2"):
        Exchange(chains=1)
    with pytest.raises(InputError, match="as many particles as chains"):
        Exchange(chains=500, particles=100)
    with pytest.raises(InputError, match="temperatures >= 1"):
        TemperedInner(temperatures=0)
    with pytest.raises(InputError, match="batch >= 1"):
        RejectionInner(1.0, batch=0)


def test_a_sampler_without_starts_is_saved_and_loaded(parts, tmp_path):
    prior, fitted, _ = parts
    Posterior(prior, fitted).save(tmp_path / "posterior")
    assert Posterior.load(tmp_path / "posterior").sampler is None
