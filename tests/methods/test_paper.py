"""The algorithms of the paper, made small: they find two modes; their twins with a sign error do not."""

from dataclasses import replace

import numpy as np
import pytest

import unle
from unle.diagnose.c2st import c2st_fast
from unle.errors import InputError
from unle.models import ConditionalLikelihood, Normalised
from unle.posterior import WalkingExchange, WarmChains
from unle.train import PairedChains, PersistentChains, WarmSmc
from unle.train import paper as training
from unle.train.divi import DiviChains

DRAWS = 1000
TASK = unle.task("bimodal")  # theta ~ N(0, I), x = theta +- (2, 2) + noise: two modes of x, and of the posterior
X_O = np.zeros(2)
SMALL = {"iterations": 120, "batch": 256, "look": 20}
CHAINS = PersistentChains(n=256, moves=10, own_steps=True)


@pytest.fixture(scope="module")
def simulations():
    theta = TASK.prior.sample(800, seed=3)
    return theta, np.asarray(TASK.simulate(theta, 4))


def distance(draws):
    """C2ST against the exact posterior; 0.5 is perfect."""
    return c2st_fast(TASK.reference(X_O, DRAWS, seed=0), np.asarray(draws)[:DRAWS])


def in_first_mode(draws):
    """Return the share of draws in one of the two modes."""
    return float(np.mean(np.asarray(draws).sum(axis=1) > 0))


@pytest.fixture(scope="module")
def of_the_prior():
    return distance(TASK.prior.sample(DRAWS, seed=9))


@pytest.mark.parametrize("particles", [CHAINS, WarmSmc(n=256, temperatures=4)])
def test_aunle_of_the_paper_finds_both_modes(simulations, of_the_prior, particles):
    records = []
    method = unle.AUNLE.paper(TASK.prior, particles=particles, **SMALL)
    posterior = method.fit(simulations, seed=1, on_metrics=lambda **values: records.append(values))
    draws = posterior.sample(X_O, DRAWS, seed=2)
    assert distance(draws) < of_the_prior - 0.15
    assert 0.3 < in_first_mode(draws) < 0.7
    assert records[-1]["stage"] == "fitted"
    assert records[-1]["steps_back"] == 0


def test_a_sign_error_in_the_gradient_shows(simulations, of_the_prior, monkeypatch):
    right = training._gap
    monkeypatch.setattr(training, "_gap", lambda *parts: -right(*parts))
    settings = SMALL | {"iterations": 121}  # of its own: compiled programs are remembered by their settings
    method = unle.AUNLE.paper(TASK.prior, particles=CHAINS, **settings)
    with pytest.warns(unle.UnleWarning, match="diverged"):
        posterior = method.fit(simulations, seed=1)
    assert distance(posterior.sample(X_O, DRAWS, seed=2)) > of_the_prior - 0.05


def small_sunle(normaliser):
    method = unle.SUNLE.paper(
        TASK.prior,
        unle.batched(TASK.simulate_rows),
        normaliser=normaliser,
        particles=PairedChains(moves=10, fresh=False, own_steps=True),
        iterations=60,
        batch=256,
    )
    return replace(
        method,
        inner_moves=10,
        exchange=WalkingExchange(chains=200, warm_up=30),
        divi=DiviChains(warm_up=20, states=20),
        strategy=WarmChains(chains=200, warm_up=50),
    )


@pytest.mark.parametrize(
    "normaliser", [unle.ByExchange(), unle.Divi(), unle.Online()], ids=["exchange", "divi", "online"]
)
def test_sunle_of_the_paper_finds_both_modes(of_the_prior, normaliser):
    run = small_sunle(normaliser).run(X_O, budget=800, rounds=2, seed=1)
    draws = run.posterior.sample(X_O, DRAWS, seed=2)
    assert distance(draws) < of_the_prior - 0.15
    assert 0.25 < in_first_mode(draws) < 0.75
    assert [done.simulations for done in run.rounds] == [400, 400]


def test_a_sign_error_shows_in_rounds_too(of_the_prior, monkeypatch):
    right = training._gap
    monkeypatch.setattr(training, "_gap", lambda *parts: -right(*parts))
    method = small_sunle(unle.ByExchange())
    method = replace(method, training=replace(method.training, iterations=61))
    with pytest.warns(unle.UnleWarning, match="diverged"):
        run = method.run(X_O, budget=400, rounds=1, seed=1)
    assert distance(run.posterior.sample(X_O, DRAWS, seed=2)) > of_the_prior - 0.05


def test_failed_simulations_count_through_a_network_of_their_own():
    def simulator(theta, rng):
        x = TASK.simulate_rows(theta, rng)
        return np.where(theta[:, :1] > 0, x, np.nan)  # fails on one half of the plane

    method = replace(small_sunle(unle.Online()), simulator=unle.batched(simulator))
    run = method.run(X_O, budget=600, rounds=1, seed=1)
    assert 0.4 < run.rounds[0].valid < 0.6
    draws = np.asarray(run.posterior.sample(X_O, DRAWS, seed=2))
    assert np.mean(draws[:, 0] > 0) > 0.9
    assert isinstance(run.posterior.likelihood, Normalised)
    assert not isinstance(run.posterior.likelihood.likelihood, ConditionalLikelihood)  # P(valid | theta) is around it


def test_what_is_not_of_the_paper_is_refused():
    with pytest.raises(InputError, match="normaliser"):
        unle.SUNLE.paper(TASK.prior, normaliser=unle.Tilted())
    with pytest.raises(InputError, match="pair"):
        unle.SUNLE.paper(TASK.prior, particles=CHAINS)
    with pytest.raises(InputError, match="learning_rate"):
        unle.AUNLE.paper(TASK.prior, learning_rate=0.0)
