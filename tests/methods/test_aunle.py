"""AUNLE from simulations to a posterior, on problems of one dimension whose answer is known."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unle
from unle.errors import Outcome
from unle.methods import AUNLE, aunle
from unle.methods.energy_selection import Choice, Selected
from unle.methods.training_pairs import standardised_pairs
from unle.models import EnergyModel, NeuralCorrection, NoEnergy, TwoViews, length_seen, reach_of
from unle.posterior import Posterior, TemperedSmc
from unle.samplers import Sweep
from unle.simulators import Simulations
from unle.space import Prior
from unle.train import EnergyTraining, FixedBase, GaussianTraining, WarmSmc

ROWS, SLOPE, NOISE = 600, 2.0, 0.5
PRIOR = Prior.normal([0.0], [1.0], names=["a"])
SAMPLER = TemperedSmc(islands=2, particles=1000, sweep=Sweep(walks=6, langevin=0), settle=1)
SD = 17**-0.5  # of the posterior: its precision is 1 + 4 / 0.25
DRAWS = 4000


def simulated(noise, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(ROWS, 1))
    return theta, SLOPE * theta + noise(rng)


def gaussian(rng):
    return NOISE * rng.normal(size=(ROWS, 1))


def two_peaks(rng):
    return rng.choice([-2.0, 2.0], (ROWS, 1)) + NOISE * rng.normal(size=(ROWS, 1))


class Notes(list):
    def __call__(self, **record):
        self.append(record)


@pytest.fixture(scope="module")
def linear(small_aunle):
    notes = Notes()
    return small_aunle.fit(simulated(gaussian), seed=1, on_metrics=notes), notes


@pytest.fixture(scope="module")
def bimodal(small_aunle):
    notes = Notes()
    return small_aunle.fit(Simulations.from_arrays(*simulated(two_peaks)), seed=1, on_metrics=notes), notes


@pytest.mark.parametrize(
    ("kept", "again"),
    [
        ({"unreliable": True}, True),
        ({"noise": True}, True),
        ({"kind": "full"}, True),
        ({"ends_early": True}, True),
        ({}, False),  # the Gaussian base describes the data
    ],
)
def test_autoregressive_bases_are_tried_on_short_data_where_a_gaussian_base_is_not_enough(
    small_aunle, monkeypatch, kept, again
):
    fit = SimpleNamespace(outcome=Outcome.CONVERGED)
    trained, tried = [], []

    def select(key, joint, bases, rows, *, view, **_):
        trained.append(bases)
        alone = Choice(EnergyModel(view(bases), NoEnergy()), jnp.zeros(2), 0.0, unreliable="unreliable" in kept)
        return Selected(alone, fit, kept.get("kind", "none"), "", noise="noise" in kept)

    def in_turn(bases, *_, shortest, **__):
        tried.append(shortest)
        return jax.tree.map(lambda leaf: leaf, bases) if shortest == 1 else bases  # a copy stands for better ones

    monkeypatch.setattr(aunle, "select_model", select)
    monkeypatch.setattr(aunle, "autoregressive_or", in_turn)
    monkeypatch.setattr(aunle, "ends_early", lambda *_: "ends_early" in kept)
    small_aunle.fit(simulated(gaussian), seed=1)
    assert tried == [8, 1][: 1 + again]
    assert len(trained) == 1 + again
    assert trained[0] is not trained[-1] or not again


def test_the_posterior_of_a_linear_gaussian(linear, agreement):
    posterior, _ = linear
    for x_o in (1.0, -2.5):
        mean = x_o * SLOPE / NOISE**2 * SD**2
        exact = agreement(mean, SD, rows=ROWS, leverage=1 + mean**2)
        draws = np.asarray(posterior.sample([x_o], DRAWS, seed=2))
        assert exact.holds(draws), exact.errors(draws)
        # Companions: data that are off by one standard deviation of the noise, and draws with a third more spread.
        assert exact.errors(posterior.sample([x_o + NOISE], DRAWS, seed=2))[0] > 1
        assert exact.errors(mean + 4 / 3 * (draws - draws.mean()))[1] > 1


def test_the_base_is_kept_where_the_truth_is_gaussian(linear, bimodal):
    posterior, notes = linear
    assert isinstance(posterior.likelihood.models.energy, NoEnergy)
    np.testing.assert_array_equal(posterior.likelihood.log_z, np.zeros(2))
    assert notes[-1] | {"outcome": None, "sentence": None} == {
        "stage": "fitted",
        "energy": "none",
        "noise": False,
        "autoregressive": False,
        "sentence": None,
        "outcome": None,
        "gain": 0.0,
        "log_z": [0.0, 0.0],
        "recognised": "",
        "replaced": 0,
        "repeats": 1,
    }
    posterior, notes = bimodal
    assert not isinstance(posterior.likelihood.models.energy, NoEnergy)
    assert notes[-1]["energy"] in ("theta-free", "continued", "full")
    assert notes[-1]["gain"] > 0.3
    assert notes[-1]["sentence"].startswith("Kept: Gaussian base and energies")
    certificate = next(record for record in notes if record["stage"] == "certificate")
    assert abs(certificate["log_z_gap"]) < 0.15 + 2 * certificate["log_z_error"]
    # Nats about theta in x: 1/2 log(1 + 4 / .25) = 1.42 for one peak; two at +-4, one noise sd of .5, tell no less.
    assert next(record for record in notes if record["stage"] == "information")["nats"] > 1.0


def test_two_modes_of_equal_weight(bimodal, agreement):
    """Exact: at +-0.94, four standard deviations of a mode from the middle."""
    posterior, _ = bimodal
    draws = np.asarray(posterior.sample([0.0], DRAWS, seed=2))[:, 0]
    # A quarter of the rows is near either mode: they tell the weights of the two peaks of x there.
    near = ROWS / 4
    error = np.sqrt(0.25 * 4 / DRAWS + 0.25**2 * 2 / near)
    assert abs((draws < 0).mean() - 0.5) < 3.3 * error
    exact = agreement(2.0 * SLOPE / NOISE**2 * SD**2, SD, rows=2 * near, leverage=2.0)
    for side in (draws[draws > 0], -draws[draws < 0]):
        assert exact.errors(side)[0] < 1
    # Companion: the observation of one peak, in whose posterior the modes are off.
    other = np.asarray(posterior.sample([NOISE], DRAWS, seed=2))[:, 0]
    assert exact.errors(other[other > 0])[0] > 1
    assert (np.abs(draws) < 0.1).mean() < 0.03  # exact: less than 0.001; by the Gaussians alone: 0.11


def test_metrics_tell_the_whole_training(bimodal):
    _, notes = bimodal
    training = [record for record in notes if record["stage"] == "training"]
    assert [record["stage"] for record in notes[len(training) :]] == ["information", "certificate", "fitted"]
    assert {record["sees_theta"] for record in training} == {False, True}
    assert all(np.isfinite(record["gain"]) for record in training)


def test_the_seed_fixes_the_fit(linear, bimodal, small_aunle):
    posterior, _ = bimodal
    again = small_aunle.fit(simulated(two_peaks), seed=1)
    same = map(np.array_equal, jax.tree.leaves(posterior.likelihood), jax.tree.leaves(again.likelihood))
    assert all(same)
    other = small_aunle.fit(simulated(gaussian), seed=2)  # without energies: they need not be trained once more
    assert not eqx.tree_equal(linear[0].likelihood, other.likelihood)


def test_a_fitted_posterior_survives_a_file(bimodal, tmp_path):
    posterior, _ = bimodal
    posterior.save(tmp_path / "fit")
    theta = np.linspace(-2, 2, 7)[:, None]
    again = Posterior.load(tmp_path / "fit")
    np.testing.assert_array_equal(again.log_prob(theta, [0.5]), posterior.log_prob(theta, [0.5]))


@pytest.mark.slow
def test_the_original_algorithm():
    """A wide measure in place of a fitted base, warm-started SMC, one member, no bound: everything is learnt."""
    original = AUNLE(
        PRIOR,
        base=FixedBase(),
        training=EnergyTraining(
            WarmSmc(n=300, at_data=False),
            bound=None,
            width=16,
            depth=2,
            iterations=600,
            batch=128,
            chunk=100,
            learning_rate=0.02,
        ),
        members=1,
        sampler=SAMPLER,
    )
    draws = np.asarray(original.fit(simulated(gaussian), seed=1).sample([1.0], 2000, seed=2))
    assert draws.mean() == pytest.approx(SLOPE / NOISE**2 / 17, abs=0.15)
    assert draws.std() == pytest.approx(17**-0.5, rel=0.5)


def test_repeated_measurements_share_a_base_from_fit_to_draws(tmp_path, small_aunle, agreement):
    """Four measurements of noise whose size is |theta| + 0.1: two modes alike, told by a base of one measurement."""
    rng, notes = np.random.default_rng(0), Notes()
    theta = rng.normal(size=(ROWS, 1))
    x = (np.abs(theta) + 0.1) * rng.normal(size=(ROWS, 4))
    method = replace(small_aunle, training=EnergyTraining(width=4, depth=1, iterations=1))
    posterior = method.fit((theta, x), seed=1, on_metrics=notes)
    assert notes[-1]["repeats"] == 4
    posterior.save(tmp_path / "posterior")
    x_o = np.array([0.8, 1.2, 1.1, 0.9])
    draws = np.asarray(posterior.sample(x_o, DRAWS, seed=2))
    np.testing.assert_array_equal(np.asarray(Posterior.load(tmp_path / "posterior").sample(x_o, DRAWS, seed=2)), draws)
    size = np.linspace(0, 5, 5001)
    log_weights = -0.5 * size**2 - 4 * np.log(size + 0.1) - 0.5 * np.sum(x_o**2) / (size + 0.1) ** 2
    weights = np.exp(log_weights - log_weights.max())
    mean = np.average(size, weights=weights)
    sd = np.sqrt(np.average((size - mean) ** 2, weights=weights))
    exact = agreement(mean, sd, rows=ROWS, leverage=8)  # one for each unit of the network
    assert exact.errors(np.abs(draws))[0] < 1
    assert exact.errors(np.abs(posterior.sample(2 * x_o, DRAWS, seed=2)))[0] > 1  # companion: other data
    assert abs((draws < 0).mean() - 0.5) < 3.3 * np.sqrt(0.25 * 4 / DRAWS + 0.25**2 * 8 / ROWS)


@pytest.mark.slow
def test_four_points_in_the_plane_have_four_modes(tmp_path):
    """SLCP: four points in the plane, whose four modes a base of the whole tells apart badly."""
    task, notes = unle.task("slcp"), Notes()
    theta = task.prior.sample(400, seed=0)
    simulations = theta, np.asarray(task.simulate(theta, 1))
    training = EnergyTraining(width=8, depth=1, iterations=1)
    base = GaussianTraining(width=32, depth=3, iterations=500, batch=128, chunk=50)
    method = AUNLE(task.prior, base=base, training=training, members=2, sampler=SAMPLER)
    posterior = method.fit(simulations, seed=1, on_metrics=notes)
    assert notes[-1]["repeats"] == 4
    posterior.save(tmp_path / "posterior")
    loaded = unle.Posterior.load(tmp_path / "posterior")
    x_o = task.observation(1)
    draws = np.asarray(loaded.sample(x_o, 1000, seed=2))
    np.testing.assert_array_equal(draws, np.asarray(posterior.sample(x_o, 1000, seed=2)))
    modes = np.bincount(2 * (draws[:, 2] > 0) + (draws[:, 3] > 0), minlength=4) / len(draws)
    assert modes.min() > 0.03


def test_repeated_measurements_are_looked_for_if_wanted():
    task = unle.task("slcp")
    theta = task.prior.sample(400, seed=0)
    simulations = theta, np.asarray(task.simulate(theta, 1))
    for wanted in (True, False):
        pairs = standardised_pairs(jax.random.key(0), simulations, task.prior, members=1, repetition=wanted)
        assert bool(pairs.cuts) == wanted


def uneven(rng):
    """Noise whose size depends on theta: the first random numbers of the generator, drawn again."""
    theta = np.random.default_rng(0).normal(size=(ROWS, 1))
    return np.exp(1.5 * theta) * rng.normal(size=(ROWS, 1))


@pytest.mark.slow
def test_energies_that_see_two_residuals_are_kept_saved_and_sampled(tmp_path, small_aunle):
    """Two peaks as far apart as theta says: a network bends the base, and an energy on top of it tells them apart."""

    def peaks(rng):
        theta = np.random.default_rng(0).normal(size=(ROWS, 1))
        return np.exp(theta) * (rng.choice([-2.0, 2.0], (ROWS, 1)) + 0.3 * rng.normal(size=(ROWS, 1)))

    notes = Notes()
    posterior = small_aunle.fit(simulated(peaks), seed=1, on_metrics=notes)
    base = posterior.likelihood.models.base
    assert isinstance(base, TwoViews)
    assert notes[-1]["gain"] > 0.2
    posterior.save(tmp_path / "fit")
    theta = np.linspace(-2, 2, 7)[:, None]
    again = Posterior.load(tmp_path / "fit")
    np.testing.assert_array_equal(again.log_prob(theta, [0.5]), posterior.log_prob(theta, [0.5]))
    assert np.isfinite(np.asarray(again.sample([0.5], 200, seed=1))).all()


@pytest.mark.parametrize(
    ("noise", "programs"),
    [pytest.param(uneven, 1, id="right guess"), pytest.param(gaussian, 2, id="wrong guess", marks=pytest.mark.slow)],
)
def test_programs_are_compiled_ahead_of_their_use(monkeypatch, noise, programs):
    """Training for bases of networks, while they are fitted; the sampler, while energies are trained."""
    monkeypatch.setenv("UNLE_AHEAD", "1")
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    compiled = []

    def listen(event, _, *, fun_name="", **__):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append((fun_name, threading.current_thread() is threading.main_thread()))

    base = GaussianTraining(width=8 + programs, depth=1, iterations=400, batch=128, chunk=50)
    training = EnergyTraining(width=8 + programs, depth=1, iterations=100, chunk=50)
    method = AUNLE(PRIOR, base=base, training=training, members=2, sampler=SAMPLER)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        posterior = method.fit(simulated(noise), seed=1)
        fitted = len(compiled)
        base = posterior.likelihood.models.base
        is_network = isinstance(base, TwoViews) and isinstance(base.base.correction, NeuralCorrection)
        reach = reach_of(base, 1, members=2)
        energies = method.training.untrained(1, length_seen(base, 1, 1), members=2, reach=reach)
        kept = eqx.tree_at(lambda p: p.likelihood.models.energy, posterior, energies)  # whatever the gate said
        kept.sample([0.0], seed=1)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert is_network == (programs == 1)
    assert [main for name, main in compiled if name == "jit(validate)"] == [False] * programs
    assert [main for name, main in compiled if name == "jit(run_sampler)"] == [False]
    assert not [name for name, *_ in compiled[fitted:] if name == "jit(run_sampler)"]
