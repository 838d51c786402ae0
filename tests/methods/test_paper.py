"""The algorithms of the paper, made small: they find two modes; their twins with a sign error do not."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import unle
from unle.diagnose import c2st_fast
from unle.errors import InputError, UnleWarning
from unle.methods import paper
from unle.models import ConditionalLikelihood, Normalised
from unle.posterior import WalkingExchange, WarmChains
from unle.train import PairedChains, PersistentChains, ValidityTraining, WarmSmc, fit_validity
from unle.train import energy_training as training
from unle.train.paper_log_z import DiviChains

DRAWS = 1000
NOISE = 0.4
SHIFT = np.array([1.0, 1.0])
X_O = np.zeros(2)
PRIOR = unle.Prior.uniform(low=[-3.0, -3.0], high=[3.0, 3.0])
CHAINS = PersistentChains(n=900, moves=10, own_steps=True)  # one at each row of training
SMALL = {"iterations": 150, "batch": 256, "width": 24, "depth": 3}


def simulate(theta, rng):
    """Add or subtract a shift: x has two modes given theta, and theta has two given x."""
    sign = rng.choice([-1.0, 1.0], (len(theta), 1))
    return theta + sign * SHIFT + NOISE * rng.normal(size=theta.shape)


@pytest.fixture(scope="module")
def simulations():
    theta = np.asarray(PRIOR.sample(1000, seed=3))
    return theta, simulate(theta, np.random.default_rng(4))


def distance(draws):
    """C2ST against the exact posterior at x_o = 0, two normals within the prior; 0.5 is perfect."""
    rng = np.random.default_rng(0)
    exact = rng.choice([-1.0, 1.0], (DRAWS, 1)) * SHIFT + NOISE * rng.normal(size=(DRAWS, 2))
    return c2st_fast(exact, np.asarray(draws)[:DRAWS])


def in_first_mode(draws):
    """Return the share of draws in one of the two modes."""
    return float(np.mean(np.asarray(draws).sum(axis=1) > 0))


@pytest.fixture(scope="module")
def of_the_prior():
    return distance(PRIOR.sample(DRAWS, seed=9))


@pytest.mark.parametrize(
    "particles",
    [
        pytest.param(CHAINS, id="chains"),
        # Particles of this kind are quickly tested in `statistical/test_training.py`.
        pytest.param(WarmSmc(n=256, temperatures=4), id="smc", marks=pytest.mark.slow),
    ],
)
def test_aunle_of_the_paper_finds_both_modes(simulations, of_the_prior, particles):
    records = []
    method = unle.AUNLE.paper(PRIOR, particles=particles, **(SMALL | {"iterations": 400}))
    posterior = method.fit(simulations, seed=1, on_metrics=lambda **values: records.append(values))
    draws = posterior.sample(X_O, DRAWS, seed=2)
    assert distance(draws) < of_the_prior - 0.15
    assert 0.2 < in_first_mode(draws) < 0.8
    assert records[-1]["stage"] == "fitted"
    assert records[-1]["gain"] > 1


def wrong(*parts, right=training.energy_gap):
    """Return the loss with the wrong sign."""
    gap, ess = right(*parts)
    return -gap, ess


def test_a_sign_error_in_the_gradient_shows(simulations, of_the_prior, monkeypatch):
    monkeypatch.setattr(training, "energy_gap", wrong)
    settings = SMALL | {"iterations": 151}  # of its own: compiled programs are remembered by their settings
    method = unle.AUNLE.paper(PRIOR, particles=CHAINS, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnleWarning)
        posterior = method.fit(simulations, seed=1)
    assert distance(posterior.sample(X_O, DRAWS, seed=2)) > of_the_prior - 0.05


def small_sunle(normaliser, simulator=simulate, **settings):
    method = unle.SUNLE.paper(
        PRIOR,
        unle.batched(simulator),
        normaliser=normaliser,
        particles=PairedChains(moves=10, fresh=False, own_steps=True),
        **(SMALL | {"iterations": 100} | settings),
    )
    return replace(
        method,
        inner_moves=20,
        exchange=WalkingExchange(chains=200, warm_up=50),
        divi=DiviChains(warm_up=20, states=20),
        sampler=WarmChains(chains=200, warm_up=50),
    )


@pytest.mark.parametrize(
    "normaliser", [unle.ByExchange(), unle.Divi(), unle.Online()], ids=["exchange", "divi", "online"]
)
def test_sunle_of_the_paper_finds_both_modes(of_the_prior, normaliser):
    run = small_sunle(normaliser).run(X_O, budget=1000, rounds=2, seed=1)
    draws = run.posterior.sample(X_O, DRAWS, seed=2)
    assert distance(draws) < of_the_prior - 0.15
    assert [done.simulations for done in run.rounds] == [500, 500]
    assert run.lost is None


def test_rounds_of_the_paper_say_that_they_lost_the_observation():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnleWarning)
        run = small_sunle(unle.Online()).run(np.full(2, 50.0), budget=1000, rounds=2, seed=1)
    assert run.lost is not None
    assert "outside of the simulations of every round" in run.lost
    assert run.lost in [str(warning.message) for warning in caught]


@pytest.mark.slow
def test_a_sign_error_shows_in_rounds_too(of_the_prior, monkeypatch):
    monkeypatch.setattr(training, "energy_gap", wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnleWarning)
        run = small_sunle(unle.ByExchange(), iterations=101).run(X_O, budget=1000, rounds=2, seed=1)
    assert distance(run.posterior.sample(X_O, DRAWS, seed=2)) > of_the_prior - 0.05


def test_failed_simulations_count_through_a_network_of_their_own(monkeypatch):
    def fails(theta, rng):
        return np.where(theta[:, :1] > 0, simulate(theta, rng), np.nan)  # on one half of the plane

    def quickly(*args, **how):
        return fit_validity(*args, **how, settings=ValidityTraining(members=1, iterations=300))

    monkeypatch.setattr(paper, "fit_validity", quickly)
    run = small_sunle(unle.Online(), fails).run(X_O, budget=1000, rounds=1, seed=1)
    assert 0.4 < run.rounds[0].valid < 0.6
    assert isinstance(run.posterior.likelihood, Normalised)
    assert not isinstance(run.posterior.likelihood.likelihood, ConditionalLikelihood)  # P(valid | theta) is around it
    draws = np.asarray(run.posterior.sample(X_O, DRAWS, seed=2))
    assert np.mean(draws[:, 0] > 0) > 0.9


def test_what_is_not_of_the_paper_is_refused():
    with pytest.raises(InputError, match="normaliser"):
        unle.SUNLE.paper(PRIOR, normaliser=unle.Tilted())
    with pytest.raises(InputError, match="pair"):
        unle.SUNLE.paper(PRIOR, particles=CHAINS)
    with pytest.raises(InputError, match="learning_rate"):
        unle.AUNLE.paper(PRIOR, learning_rate=0.0)
