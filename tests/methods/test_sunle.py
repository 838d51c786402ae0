"""SUNLE from a simulator to a posterior, on problems whose answer is known."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from unle.errors import InputError
from unle.methods import SUNLE, Round, RoundState, region_fit, sunle
from unle.methods.abstract_method import SequentialRun
from unle.methods.normalisers import ByExchange, Divi, Tilted
from unle.models import Normalised
from unle.posterior import Exchange, Posterior, TemperedSmc
from unle.samplers import Sweep
from unle.simulators import batched
from unle.space import Prior
from unle.train import (
    DataParticles,
    EnergyTraining,
    GaussianTraining,
    LogNormaliserTraining,
    PairedChains,
    autoregressive_fit,
    energy_fit,
    gaussian_training,
)

PRIOR = Prior.normal([0.0], [1.0], names=["a"])
NOISE = 0.05
SAMPLER = TemperedSmc(islands=2, particles=600, sweep=Sweep(walks=6, langevin=0), settle=1)


def tiny(simulator, particles=None, **parts):
    return SUNLE(
        PRIOR,
        simulator,
        base=GaussianTraining(width=8, depth=1, iterations=100, batch=64, chunk=50),
        training=EnergyTraining(
            particles or DataParticles(n=256, pool=2048, validation=2048),
            width=16,
            depth=2,
            iterations=400,
            batch=128,
            chunk=50,
            patience=4,
            learning_rate=0.01,
        ),
        members=2,
        sampler=SAMPLER,
        **parts,
    )


@batched
def curved(theta, rng):
    return theta + 0.2 * theta**3 + NOISE * rng.normal(size=theta.shape)


@batched
def two_peaks(theta, rng):
    return theta + rng.choice([-2.0, 2.0], theta.shape) + 0.3 * rng.normal(size=theta.shape)


@batched
def often_broken(theta, rng):
    x = theta + NOISE * rng.normal(size=theta.shape)
    return np.where(theta < 0, np.nan, x)


def by_quadrature(log_likelihood):
    theta = np.linspace(-4, 4, 20_001)
    weights = np.exp(-0.5 * theta**2 + log_likelihood(theta))
    weights /= weights.sum()
    mean = weights @ theta
    return mean, np.sqrt(weights @ (theta - mean) ** 2)


# Calls while a training step is traced: of the scores, for the loss and for held-out rows; of the steps of energies.
TRACES = {"gaussian": 0, "tilted": 0}
NOTES = []


def counted(name, function):
    def call(*arguments, **settings):
        TRACES[name] += 1
        return function(*arguments, **settings)

    return call


@pytest.fixture(scope="module")
def narrow():
    seen = []

    def note(**record):
        NOTES.append(record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian_training, "_scores", counted("gaussian", gaussian_training._scores))
        patch.setattr(energy_fit, "likelihood_steps", counted("tilted", energy_fit.likelihood_steps))
        run = tiny(curved).run([1.2], budget=400, rounds=4, seed=1, on_round=seen.append, on_metrics=note)
    return run, seen


def test_all_rounds_share_one_compiled_training(narrow):
    """`test_compilations.py` has ten rounds, energies in every one, and a companion that must compile in each."""
    assert 1 <= TRACES["gaussian"] <= 2
    assert 1 <= TRACES["tilted"] <= 2


def test_rounds_close_in_on_the_observation(narrow):
    run, seen = narrow
    assert tuple(seen) == run.rounds
    assert [done.simulations for done in run.rounds] == [100] * 4
    assert len(run.simulations) == 400
    assert run.rounds[-1].distance < 0.2 * run.rounds[0].distance
    assert run.rounds[-1].width < 0.3 * run.rounds[0].width
    assert run.rounds[-1].used < 400  # the region was left by the first simulations


def test_the_posterior_is_the_exact_one(narrow, agreement):
    run, _ = narrow
    mean, sd = by_quadrature(lambda theta: -0.5 * ((1.2 - theta - 0.2 * theta**3) / NOISE) ** 2)
    # The curve is a cubic: what the simulations that were used, those closest, tell of it there.
    used = run.rounds[-1].used
    offsets = run.simulations.theta[:, 0] - mean
    near = offsets[np.argsort(np.abs(offsets))[:used]]
    powers = (near[:, None] / np.abs(near).max()) ** np.arange(4)
    leverage = used * np.linalg.inv(powers.T @ powers)[0, 0]
    exact = agreement(mean, sd, rows=used, leverage=leverage)
    draws = np.asarray(run.posterior.sample([1.2], 2000, seed=2))
    assert exact.holds(draws), exact.errors(draws)
    # Companions: data that are off by one standard deviation of the noise, and draws with half of the spread more.
    assert exact.errors(run.posterior.sample([1.2 + NOISE], 2000, seed=2))[0] > 1
    assert exact.errors(mean + 1.5 * (draws - draws.mean()))[1] > 1


def test_what_only_the_posterior_of_a_run_has_is_said_where_to_find():
    run = SequentialRun(None, None, ())  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError, match=r"no attribute 'save'; try run\.posterior\.save"):
        run.save("kept")
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        _ = run.nothing
    assert pickle.loads(pickle.dumps(run)) == run


def test_the_seed_fixes_the_run(narrow):
    run, _ = narrow
    again = tiny(curved).run([1.2], budget=400, rounds=4, seed=1)
    np.testing.assert_array_equal(again.simulations.theta, run.simulations.theta)


def at_the_modes(theta):
    """Return the share of parameters within a unit of -2 or 2: not around zero, where one Gaussian would have them."""
    return float(np.mean(np.abs(np.abs(theta) - 2) < 1))


def without_a_last_fit(self, state, **_):
    return SequentialRun(None, state.simulations, state.history)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("proposals", ["best", "bases", "Gaussian bases"])
def test_energies_propose_where_the_bases_are_wrong(proposals, monkeypatch):
    """Exact: two modes at +-1.83, of width 0.29; the base has one Gaussian of width 2 for x given theta."""
    monkeypatch.setattr(SUNLE, "finish", without_a_last_fit)
    if proposals == "Gaussian bases":
        monkeypatch.setattr(region_fit, "fit_noise", lambda *_: None)
    run = tiny(two_peaks, proposals=proposals.split()[-1]).run([0.0], budget=900, rounds=3, seed=1)
    shares = [at_the_modes(theta) for theta in np.split(run.simulations.theta, 3)]
    if proposals == "best":
        assert [done.energies for done in run.rounds] == [True, True, False]
        assert min(shares[1:]) > 0.8
        return
    assert not any(done.energies for done in run.rounds)
    if proposals == "bases":  # the noise of their residuals has two modes as well
        assert shares[0] < 0.5 < shares[1] < shares[2]
    else:
        assert max(shares) < 0.5


def update_all(method, simulator, x_o, *, budget, rounds):
    """Return the state after all rounds, without a last fit of energies."""
    state = method.begin(x_o, budget=budget, rounds=rounds, seed=1)
    for number in range(rounds):
        theta = state.propose()
        state = method.update(state, (theta, simulator(theta, np.random.default_rng(number))))
    return state


@pytest.mark.parametrize("with_noise", [True, False])
def test_rounds_keep_the_tail_that_an_outlying_observation_has(with_noise, monkeypatch):
    """Noise with heavy tails, and x_o beyond all parameters: Gaussian noise would have theta at the wall alone."""
    if not with_noise:
        monkeypatch.setattr(region_fit, "fit_noise", lambda *_: None)
    method = replace(tiny(None, proposals="bases"), prior=Prior.uniform(low=[-3.0], high=[3.0]))
    state = update_all(
        method, lambda theta, rng: theta + 0.3 * rng.standard_t(2, theta.shape), [5.0], budget=900, rounds=3
    )
    theta = np.linspace(-3, 3, 6001)
    cumulated = np.cumsum(student.pdf((5.0 - theta) / 0.3, 2))
    lower = theta[np.searchsorted(cumulated, 0.025 * cumulated[-1])]
    assert lower < 0.5
    low = state.fitting.theta_space.inverse(state.fitting.rows.t.min(axis=0))[0]
    assert (low < lower) == with_noise


@pytest.mark.parametrize(
    ("autoregressive", "rounds"),
    # The sampler of such a base takes long to compile: one round tells whether it is taken, and proposes nothing.
    [(True, 1), (False, 1), pytest.param(True, 2, marks=pytest.mark.slow)],
)
def test_rounds_take_long_data_one_number_after_the_other(autoregressive, rounds, monkeypatch):
    """Ten readings whose size is theta: a network that takes them in turn learns it from ten times the examples."""
    monkeypatch.setattr(autoregressive_fit, "RACE_STEPS", 100)
    monkeypatch.setattr(autoregressive_fit, "OF_POINTS", autoregressive_fit.OF_POINTS._replace(steps=300))
    method = tiny(None, proposals="bases", autoregressive=autoregressive)

    def simulator(theta, rng):
        return np.exp(theta) * rng.normal(size=(len(theta), 10))

    x_o = np.exp(1.0) * np.array([-1.5, -1.1, -0.8, -0.4, -0.1, 0.1, 0.4, 0.8, 1.1, 1.5])
    state = update_all(method, simulator, x_o, budget=400 * rounds, rounds=rounds)
    assert [done.autoregressive for done in state.history] == [autoregressive] * rounds


def of_two_peaks(theta, number):
    return theta, two_peaks(theta, np.random.default_rng(number))


@pytest.fixture
def without_noise(monkeypatch):
    """Noise with two modes would leave nothing to energies."""
    monkeypatch.setattr(region_fit, "fit_noise", lambda *_: None)


@pytest.fixture(scope="module")
def helped():
    """The state after a first round, whose energies helped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region_fit, "fit_noise", lambda *_: None)
        state = tiny(two_peaks).begin([0.0], budget=900, rounds=3, seed=1)
        state = tiny(two_peaks).update(state, of_two_peaks(state.propose(), 0))
    assert state.history[0].energies
    return state


@pytest.mark.usefixtures("without_noise")
def test_a_run_taken_up_again_goes_on_with_its_energies(helped):
    """What a round kept, its proposals and energies, leads to the same next round; without the energies it does not."""
    method, (first,) = tiny(two_peaks), helped.history
    state = method.update(helped, of_two_peaks(helped.propose(), 1))
    later = []
    for carried in (helped.carried, None):
        again = method.begin([0.0], budget=900, rounds=3, seed=1)
        again = again.recall(of_two_peaks(again.propose(), 0), first, helped.proposals, carried)
        again = method.update(again, of_two_peaks(again.propose(), 1))
        later.append(again.proposals)
    np.testing.assert_array_equal(later[0], state.proposals)
    assert not np.array_equal(later[1], state.proposals)


@pytest.mark.usefixtures("without_noise")
def test_energies_that_no_longer_help_are_dropped(helped, monkeypatch):
    monkeypatch.setattr(sunle, "select_energy", lambda *_, **__: (sunle.Choice(None, None, 0.0), ""))
    state = tiny(two_peaks).update(helped, of_two_peaks(helped.propose(), 1))
    assert not state.history[1].energies
    assert state.carried is None


def test_energies_are_tried_twice_on_the_way():
    def tried(sizes):
        state = RoundState.begin(PRIOR, [0.0], sizes, seed=0)
        states = [
            replace(state, history=(Round(0, 1, 1.0, 1, 1.0, 0.0, 1.0, 0.0),) * number) for number in range(len(sizes))
        ]
        return [one.number for one in states if sunle._is_trial(one)]

    assert tried([100] * 10) == [1, 4]
    assert tried([500, 500]) == [0]  # both at once
    assert tried([900, 50, 50]) == [0]
    assert tried([1000]) == [0]  # the last round, which proposes nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("normaliser", "particles"),
    [
        (Tilted(), None),
        (Divi(LogNormaliserTraining(particles=128, width=16, depth=1, iterations=200)), PairedChains(moves=2)),
        (
            ByExchange(Exchange(chains=100, warm_up=10, particles=200, sweep=Sweep(walks=6, langevin=0))),
            PairedChains(moves=2),
        ),
    ],
    ids=["tilted", "divi", "exchange"],
)
def test_two_peaks_need_an_energy_and_their_modes_get_their_weights(normaliser, particles):
    """Exact: modes at -2 and 2 / (1 + 0.09), of equal weight."""
    notes = []
    run = tiny(two_peaks, particles, normaliser=normaliser).run(
        [0.0], budget=600, rounds=2, seed=1, on_metrics=lambda **record: notes.append(record)
    )
    fitted = next(record for record in notes if record["stage"] == "fitted")
    assert fitted["energy"] != "none"  # the shape of the residual does not depend on theta: either will do
    assert fitted["gain"] > 0.2
    own = normaliser.sampler if isinstance(normaliser, ByExchange) else SAMPLER
    assert run.posterior.sampler == own  # not the default
    draws = np.asarray(run.posterior.sample([0.0], 2000, seed=2))[:, 0]
    assert (draws < 0).mean() == pytest.approx(0.5, abs=0.15)
    assert np.abs(draws).mean() == pytest.approx(2 / 1.09, abs=0.25)


@pytest.mark.slow
def test_exchange_after_energies_in_every_round_pools_the_members_and_can_be_saved(tmp_path):
    exchange = Exchange(chains=100, warm_up=10, particles=200, sweep=Sweep(walks=6, langevin=0))
    surrogate = LogNormaliserTraining(particles=64, temperatures=1, width=16, depth=1, iterations=100)
    method = tiny(two_peaks, PairedChains(moves=2), normaliser=ByExchange(exchange, surrogate), proposals="energies")
    run = method.run([0.0], budget=600, rounds=3, seed=1)
    draws = run.posterior.sample([0.0], 1000, seed=2)
    assert isinstance(run.posterior.likelihood, Normalised)
    assert {"acceptance", "inner_drift", "inner_trusted"} <= set(draws.info)
    assert draws.info["acceptance"] > 0.5  # the learned normaliser proposes well
    run.posterior.save(tmp_path / "posterior")
    again = Posterior.load(tmp_path / "posterior").sample([0.0], 1000, seed=2)
    np.testing.assert_array_equal(again.values, draws.values)


@pytest.mark.slow
def test_invalid_simulations_enter_by_their_probability():
    run = tiny(often_broken).run([0.02], budget=300, rounds=2, seed=1)
    assert run.rounds[0].valid == pytest.approx(0.5, abs=0.15)
    assert run.rounds[1].valid > run.rounds[0].valid
    draws = np.asarray(run.posterior.sample([0.02], 1000, seed=2))
    # Half of N(0.02, 0.05) would lie below zero, where nothing is ever observed.
    assert (draws < -0.05).mean() < 0.05


def test_rounds_by_hand_are_the_same_rounds(narrow):
    run, _ = narrow
    state = tiny(None).begin([1.2], budget=400, rounds=4, seed=1)
    np.testing.assert_array_equal(state.propose(), run.simulations.theta[:100])
    np.testing.assert_array_equal(state.propose(), state.propose())


def test_interrupted_rounds_go_on_from_the_store(tmp_path, narrow):
    run, _ = narrow
    calls = []

    @batched
    def until_tired(theta, rng):
        calls.append(len(theta))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return curved(theta, rng)

    @batched
    def counted(theta, rng):
        calls.append(len(theta))
        return curved(theta, rng)

    with pytest.raises(KeyboardInterrupt):
        tiny(until_tired).run([1.2], budget=400, rounds=4, seed=1, directory=tmp_path)
    calls.clear()
    again = tiny(counted).run([1.2], budget=400, rounds=4, seed=1, directory=tmp_path)
    assert sum(calls) == 200  # the last two rounds
    np.testing.assert_array_equal(again.simulations.theta, run.simulations.theta)
    np.testing.assert_array_equal(again.simulations.x, run.simulations.x)


def test_wrong_arguments_are_named():
    method = tiny(curved)
    with pytest.raises(InputError, match="at least one round; got rounds = 0"):
        method.run([0.0], budget=100, rounds=0)
    with pytest.raises(InputError, match="a budget of at least 32 simulations; got 10"):
        method.run([0.0], budget=10, rounds=20)
    with pytest.raises(InputError, match="expected a whole number of simulations; got budget = 99.5"):
        method.run([0.0], budget=99.5)
    with pytest.raises(InputError, match=r"expected a complete x_o for rounds; got NaN or inf in coordinates \[0\]"):
        method.run([np.nan], budget=100)
    with pytest.raises(InputError, match=r"got 'data.csv'; try np.loadtxt"):
        method.run("data.csv", budget=100)
    with pytest.raises(InputError, match="add up to the budget"):
        method.run([0.0], budget=100, rounds=[50, 40])
    with pytest.raises(InputError, match="expected a simulator"):
        tiny(None).run([0.0], budget=100)
    with pytest.raises(InputError, match="expected an observation of length 1, as the simulations; got 2"):
        method.run([0.0, 1.0], budget=100, rounds=2)
    with pytest.raises((InputError, TypeError)):  # the second by the type checker of the tests
        tiny(curved, proposals="yes")
    with pytest.raises(InputError, match="at least 32 valid"):
        method.run([0.0], budget=60, rounds=[20, 40])
    state = method.begin([0.0], budget=100, rounds=2)
    with pytest.raises(InputError, match="nothing has been fitted"):
        _ = state.fitting


def test_there_are_no_energies_where_the_base_is_right(narrow):
    fitted = next(record for record in NOTES if record["stage"] == "fitted")
    assert fitted["energy"] == "none"
    assert fitted["gain"] == 0
