"""Which sampler goes with which kind of likelihood, and what an exchange run reports."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from unle.errors import InputError
from unle.models import (
    AbstractEnergy,
    ConditionalLikelihood,
    DoublyIntractableLikelihood,
    LogNormaliser,
    Mlp,
    Normalised,
    TiltedModel,
)
from unle.posterior import Chains, Exchange, Posterior, TemperedSmc
from unle.samplers import RejectionInner, Sweep, TemperedInner, Walk

TRACES = []


class Slope(AbstractEnergy):
    """E = t_1 tanh(r_1): something that depends on theta."""

    def __call__(self, t, r):
        TRACES.append("traced")
        return t[0] * jnp.tanh(r[0])


@pytest.fixture(scope="module")
def parts(linear_gaussian):
    prior, fitted, _ = linear_gaussian.fitted(np.random.default_rng(0))
    doubly = ConditionalLikelihood(fitted.theta_space, fitted.x_space, TiltedModel(fitted.model.base, Slope()))
    return prior, fitted, doubly


OBSERVED = np.array([104.0, 35.0])
QUICK = Exchange(
    chains=20,
    particles=40,
    warm_up=4,
    thin=1,
    importance=8,
    sweep=Sweep(walks=2, langevin=0),
    inner=TemperedInner(temperatures=2, settle=1, candidates=2, moves=1),
)


@pytest.fixture(scope="module")
def draws(parts):
    prior, _, doubly = parts
    return Posterior(prior, doubly, QUICK).sample(OBSERVED, 100, seed=1)


def test_an_exchange_run_reports_its_health(draws):
    assert draws.values.shape == (20, 5, 2)
    assert np.isfinite(draws.values).all()
    wanted = {"acceptance", "inner_acceptance", "inner_drift", "inner_drift_error", "inner_spread", "inner_trusted"}
    assert wanted <= set(draws.info)
    assert 0 < draws.info["acceptance"] <= 1


def test_another_observation_or_other_starts_do_not_compile_anew(parts, draws):
    prior, _, doubly = parts
    posterior = Posterior(prior, doubly, QUICK)
    before = len(TRACES)
    other = posterior.sample(OBSERVED + 1.0, 100, seed=2)
    assert len(TRACES) == before
    warm = eqx.tree_at(
        lambda s: s.starts, QUICK, jnp.asarray(draws.values[:, -1], jnp.float32), is_leaf=lambda x: x is None
    )
    first = posterior.sample(OBSERVED, 100, seed=3, strategy=warm)
    before = len(TRACES)
    again = eqx.tree_at(lambda s: s.starts, warm, jnp.asarray(other.values[:, -1], jnp.float32))
    second = posterior.sample(OBSERVED, 100, seed=3, strategy=again)
    assert len(TRACES) == before
    assert not np.array_equal(first.values, second.values)


def test_the_kind_of_likelihood_picks_the_sampler(parts):
    prior, tractable, doubly = parts
    with pytest.raises(InputError, match="would ignore Z"):
        Posterior(prior, doubly, TemperedSmc())
    with pytest.raises(InputError, match="would ignore Z"):
        Posterior(prior, doubly).sample(OBSERVED, 10, strategy=Chains())
    with pytest.raises(InputError, match="needs no auxiliary data"):
        Posterior(prior, tractable, Exchange())
    with pytest.raises(InputError, match="known normaliser"):
        Posterior(prior, doubly).log_prob([1.0, 0.0], OBSERVED)
    with pytest.raises(InputError, match="known normaliser"):
        Posterior(prior, doubly).map(OBSERVED)
    assert isinstance(doubly, DoublyIntractableLikelihood)


def test_a_learned_normaliser_goes_with_either_sampler(parts):
    prior, _, doubly = parts
    zeros = Mlp.__new__(Mlp)
    object.__setattr__(zeros, "weights", (jnp.zeros((2, 1)),))
    object.__setattr__(zeros, "biases", (jnp.zeros(1),))
    b = LogNormaliser(jnp.zeros(2), jnp.eye(2), jnp.zeros(()), jnp.zeros(2), jnp.ones(()), zeros)
    posterior = Posterior(prior, Normalised(doubly, b), QUICK)
    assert posterior.sample(OBSERVED, 40, seed=4).values.shape == (20, 2, 2)
    assert np.isfinite(posterior.log_prob([1.0, 0.0], OBSERVED))
    assert posterior.strategy is QUICK
    assert Posterior(prior, Normalised(doubly, b)).strategy is None  # tempered SMC, like any tractable likelihood


def test_wrong_settings_are_named():
    with pytest.raises(InputError, match="chains >= 2"):
        Exchange(chains=1)
    with pytest.raises(InputError, match="as many particles as chains"):
        Exchange(chains=500, particles=100)
    with pytest.raises(InputError, match="temperatures >= 1"):
        TemperedInner(temperatures=0)
    with pytest.raises(InputError, match="batch >= 1"):
        RejectionInner(1.0, batch=0)
    assert Walk().target_acceptance == 0.25


def test_a_strategy_without_starts_is_saved_and_loaded(parts, tmp_path):
    prior, fitted, _ = parts
    Posterior(prior, fitted).save(tmp_path / "posterior")
    assert Posterior.load(tmp_path / "posterior").strategy is None
