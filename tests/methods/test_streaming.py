"""Fits to more simulations than may be in memory."""

import warnings
from dataclasses import replace

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest

import unle
from unle.methods.training_pairs import as_bytes, machine_memory, row_bytes, standardised_pairs
from unle.store import SimulationStore
from unle.train import DataParticles, EnergyTraining, GaussianTraining, JointSpace, Rows, fit_energies, fit_gaussians
from unle.train.gaussian_training import decay_for

ROWS, MEMBERS = 12_000, 2
PRIOR = unle.Prior.normal([0.0], [1.0])
BASE = GaussianTraining(width=16, depth=2, iterations=500, batch=128, chunk=50, learning_rate=5e-3)
EACH = row_bytes(1, 1, members=MEMBERS, work=BASE.work_per_row(1))
MEMORY = 1500 * EACH


def simulated(n, seed):
    """Noise that grows with theta: a network has to learn it, no regression can."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, 1))
    return theta, theta + np.exp(theta / 2) * rng.normal(size=(n, 1))


@pytest.fixture(scope="module")
def store():
    with SimulationStore(None) as store:
        theta, x = simulated(ROWS, 0)
        store.append(ids=np.arange(ROWS), theta=theta, x=x, reasons=[""] * ROWS)
        yield store


def pairs_of(simulations, memory=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unle.UnleWarning)
        work = BASE.work_per_row(1)
        return standardised_pairs(jr.key(3), simulations, PRIOR, members=MEMBERS, memory=memory, work=work)


def scores(pairs, bases):
    """Log-densities of other simulations, member by member."""
    theta, x = simulated(4000, 1)

    @eqx.filter_jit
    def score(bases, theta, x):
        def one(base, theta, x):
            w = pairs.x_space.forward(x)
            return base.log_density(pairs.theta_space.forward(theta), w) + pairs.x_space.log_det(x)

        return eqx.filter_vmap(lambda base: jax.vmap(lambda a, b: one(base, a, b))(theta, x))(bases)

    return np.asarray(score(bases, theta.astype(np.float32), x.astype(np.float32)))


@pytest.fixture(scope="module")
def streamed(store):
    pairs = pairs_of(store, MEMORY)
    bases, _ = fit_gaussians(jr.key(5), pairs.rows, settings=BASE)
    return pairs, bases


def test_a_window_is_a_sample_with_held_out_rows_of_its_own(streamed):
    pairs, _ = streamed
    assert pairs.rows.t.shape == (1500, 1)
    train, held_out = np.asarray(pairs.rows.splits.train), np.asarray(pairs.rows.splits.held_out)
    assert held_out.shape == (MEMBERS, 150)
    assert not np.isin(held_out, train).any()
    np.testing.assert_array_equal(np.sort(np.concatenate([train[0], held_out.ravel()])), np.arange(1500))
    assert pairs.rows.stream.taken == 1200 * 9  # the window has 1,200 training rows, and a chunk would draw more


def lost(pairs, bases):
    """Nats per row by which the members miss the truth on other rows."""
    theta, x = simulated(4000, 1)
    truth = -theta / 2 - 0.5 * ((x - theta) / np.exp(theta / 2)) ** 2 - 0.5 * np.log(2 * np.pi)
    return float(np.mean(truth) - np.mean(scores(pairs, bases)))


def test_a_window_teaches_what_all_rows_would(streamed):
    """12,000 rows through 1,200 places at a time."""
    pairs, bases = streamed
    assert lost(pairs, bases) < 0.03
    # Companion: the measure notices a window that is no uniform sample.
    rows = pairs.rows
    half = np.resize(np.flatnonzero(np.asarray(rows.t)[:, 0] < 0), len(rows.t))
    one_side = Rows(rows.t[half], rows.w[half], rows.splits)
    as_fast = replace(BASE, weight_decay=decay_for(pairs.rows.stream.size))  # weights decay as in the fit above
    one_sided, _ = fit_gaussians(jr.key(5), one_side, settings=as_fast)
    assert lost(pairs, one_sided) > 0.1


def test_energies_are_trained_on_rows_that_come_in_later(store):
    pairs = pairs_of(store, MEMORY)
    bases = BASE.untrained(1, 1, members=MEMBERS)
    settings = EnergyTraining(DataParticles(n=16, pool=64, validation=64), width=4, depth=1, iterations=6, chunk=2)
    joint = JointSpace.of(PRIOR, pairs.theta_space)
    fit = fit_energies(jr.key(0), joint, bases, pairs.rows, settings=settings, sees_theta=True)
    assert len(fit.history) == 3
    assert pairs.rows.stream.taken == 2 * 2 * settings.batch


def test_training_of_no_steps_returns_what_it_began_with(store):
    pairs = pairs_of(store, MEMORY)
    settings = EnergyTraining(DataParticles(n=16, pool=64, validation=64), width=4, depth=1, iterations=1)
    joint, bases = JointSpace.of(PRIOR, pairs.theta_space), BASE.untrained(1, 1, members=MEMBERS)
    fit = fit_energies(jr.key(0), joint, bases, pairs.rows, settings=settings, sees_theta=True, share=0.4)
    assert not fit.history
    assert fit.validation is None


@pytest.mark.slow
def test_a_streamed_fit_is_as_good_as_one_in_memory():
    """Two peaks, which only the energy can tell: the same log-density at other rows, and the same modes."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(8000, 1))
    x = 2 * theta + rng.choice([-2.0, 2.0], theta.shape) + 0.5 * rng.normal(size=theta.shape)
    training = unle.train.EnergyTraining(width=24, depth=2, iterations=800, batch=128, patience=6)
    method = unle.AUNLE(PRIOR, base=GaussianTraining(width=8, depth=1, iterations=300), training=training, members=2)
    notes = []
    with SimulationStore(None) as store:
        store.append(ids=np.arange(6000), theta=theta[:6000], x=x[:6000], reasons=[""] * 6000)
        whole = method.fit(store, seed=1)
        with pytest.warns(unle.UnleWarning, match="a window of 1,500 rows"):
            part = method.fit(store, seed=1, memory=1500 * EACH, on_metrics=lambda **record: notes.append(record))
        with pytest.warns(unle.UnleWarning, match="a window of"):
            again = method.fit(store, seed=1, memory=1500 * EACH)
    assert eqx.tree_equal(part.likelihood, again.likelihood)
    assert notes[-2]["stage"] == "stream"
    assert notes[-2]["taken"] > 6000
    scored = [
        np.array([float(p.log_prob(a[None], b)[0]) for a, b in zip(theta[6000:6300], x[6000:6300], strict=True)])
        for p in (whole, part)
    ]
    difference = scored[1] - scored[0]
    assert abs(difference.mean()) < 0.05 + 3 * difference.std() / np.sqrt(len(difference))
    draws = np.asarray(part.sample([0.0], 2000, seed=2))[:, 0]
    assert (draws < 0).mean() == pytest.approx(0.5, abs=0.15)
    assert (np.abs(draws) < 0.1).mean() < 0.01


def test_the_seed_fixes_a_streamed_fit(store, streamed):
    pairs = pairs_of(store, MEMORY)
    again, _ = fit_gaussians(jr.key(5), pairs.rows, settings=BASE)
    assert eqx.tree_equal(again, streamed[1])


def test_a_store_that_fits_is_taken_as_a_whole(store):
    rows = store.read()
    there, here = pairs_of(store, ROWS * EACH), pairs_of((rows.theta, rows.x))
    assert there.rows.stream is None
    assert eqx.tree_equal(there.rows.table, here.rows.table)


def test_rows_that_cannot_be_learned_from_are_found_wherever_they_are():
    with SimulationStore(None) as store:
        theta, x = simulated(2000, 0)
        x[1700] = 1e39
        store.append(ids=np.arange(2000), theta=theta, x=x, reasons=[""] * 2000)
        with pytest.raises(unle.InputError, match="within the range of float32"):
            pairs_of(store, 1000 * EACH)
    with SimulationStore(None) as store:
        theta, x = simulated(2000, 0)
        store.append(ids=np.arange(2000), theta=theta, x=x, reasons=[""] * 2000)
        with pytest.raises(unle.InputError, match="outside its support, the first .* in row"):
            standardised_pairs(jr.key(0), store, unle.Prior.uniform([-2.0], [9.0]), members=MEMBERS, memory=1000 * EACH)
        two = unle.Prior.normal([0.0, 0.0], [1.0, 1.0])
        with pytest.raises(unle.InputError, match="with 2 columns, as the prior; got 1"):
            standardised_pairs(jr.key(0), store, two, members=MEMBERS, memory=1000 * EACH)


@pytest.mark.parametrize("memory", ["", "much", "-2GB", "0", "2XB", "nan", True])
def test_silly_amounts_of_memory(memory):
    with pytest.raises(unle.InputError, match="such as 500MB or 2GB; got"):
        as_bytes(memory)


def test_amounts_of_memory():
    assert as_bytes("2GB") == as_bytes("2 gb") == as_bytes(2e9) == 2_000_000_000
    assert as_bytes("1GiB") == 2**30
    assert as_bytes(None) == machine_memory() // 2 > 1e8


def test_too_little_memory_and_memory_for_what_is_there_already(store):
    with pytest.raises(unle.InputError, match="at least 1000 of these simulations.*try memory="):
        unle.AUNLE(PRIOR).fit(store, memory="10kB")
    with pytest.raises(unle.InputError, match="in memory already"):
        unle.AUNLE(PRIOR).fit(simulated(100, 0), memory="1GB")
    paired = unle.AUNLE(PRIOR, training=unle.train.EnergyTraining(unle.train.PairedChains()))
    with pytest.raises(unle.InputError, match="do not belong to single simulations"), pytest.warns(unle.UnleWarning):
        paired.fit(store, memory=2000 * EACH)
