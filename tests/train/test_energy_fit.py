"""The training loop: what it keeps, when it stops, and how it survives numbers that blow up."""

from contextlib import contextmanager
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import Outcome
from unle.models import ConditionalGaussian, Mlp, NeuralCorrection
from unle.space import Prior, fit_theta_space
from unle.train import (
    BaseParticles,
    EnergyTraining,
    JointSpace,
    Rows,
    WarmSmc,
    WarmStart,
    compile_energies,
    fit_energies,
    make_splits,
)
from unle.train.energy_fit import _healthy, _roll_back
from unle.train.energy_training import EnergyState, StepMetrics
from unle.train.loop import CHUNKS_BEFORE_GIVING_UP, Weights

MEMBERS, ROWS, DIM = 2, 400, 1


def training(**changes):
    settings = {"width": 8, "depth": 1, "iterations": 400, "chunk": 40, "batch": 64, "learning_rate": 0.05}
    settings |= {"average": 0.9, "patience": 3}
    return EnergyTraining(particles=BaseParticles(n=256, pool=2048), **(settings | changes))


@pytest.fixture(scope="module")
def problem():
    """Two peaks at +-1 that a Gaussian cannot have, the same for every theta."""
    rng = np.random.default_rng(0)
    t = rng.normal(size=(ROWS, DIM))
    w = rng.choice([-1.0, 1.0], (ROWS, 1)) + 0.3 * rng.normal(size=(ROWS, 1))
    joint = JointSpace.of(Prior.normal([0.0], [1.0]), fit_theta_space(np.array([[-1.0], [1.0]])))
    shapes = jax.eval_shape(lambda: Mlp(jr.key(0), DIM, 2, width=1, depth=1))
    one = ConditionalGaussian(
        jnp.zeros(1),
        jnp.zeros((DIM, 1)),
        jnp.eye(1),
        NeuralCorrection(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)),
    )
    bases = jax.tree.map(lambda leaf: jnp.stack([leaf] * MEMBERS), one)
    arrays = jnp.asarray(t, jnp.float32), jnp.asarray(w, jnp.float32)
    return joint, bases, Rows(*arrays, make_splits(jr.key(0), ROWS, members=MEMBERS))


def fit(problem, settings=None, *, seed=0, sees_theta=True, **how):
    settings = training() if settings is None else settings
    return fit_energies(jr.key(seed), *problem, settings=settings, sees_theta=sees_theta, **how)


@contextmanager
def compilations():
    """Collect the names of programs that are compiled meanwhile."""
    compiled = []

    def listen(event, _, *, fun_name="", **__):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture(scope="module")
def first(problem):
    """The first fit with these settings, and what it compiled."""
    with compilations() as compiled:
        return fit(problem), compiled


@pytest.fixture(scope="module")
def fitted(first):
    return first[0]


def same(one, other):
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def is_finite(tree):
    leaves = [leaf for leaf in jax.tree.leaves(tree) if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    return all(np.isfinite(leaf).all() for leaf in leaves)


def test_what_was_compiled_before_is_not_compiled_again(problem, first):
    """Bases of the same shapes and other numbers will do; other shapes will not."""
    joint, bases, *rows = problem
    programs = {"jit(_chunk)", "jit(validate)"}
    with compilations() as compiled:
        settings = training(width=9, iterations=80)
        compile_energies(joint, jax.tree.map(jnp.zeros_like, bases), *rows, settings=settings)
        assert programs <= set(compiled)
        compiled.clear()
        fit(problem, settings)
    assert not programs & set(compiled)
    assert programs <= set(first[1])  # a fit of another width compiles its own


def test_training_raises_the_held_out_likelihood(fitted):
    assert fitted.gain > 0.1
    assert fitted.gain == pytest.approx(max(record["gain"] for record in fitted.history))
    np.testing.assert_allclose(fitted.validation.rows.mean(1), fitted.validation.gain, atol=1e-5)
    assert [record["chunk"] for record in fitted.history] == list(range(len(fitted.history)))
    assert all(record["sees_theta"] and record["recoveries"] == 0 for record in fitted.history)


def test_a_fit_depends_on_its_key_only(problem, fitted):
    again = fit(problem)
    assert same(fitted.energies, again.energies)
    assert fitted.history == again.history
    assert not same(fitted.energies, fit(problem, seed=1).energies)


def test_an_energy_blind_to_theta_stays_blind(problem, fitted):
    blind = fit(problem, sees_theta=False)
    np.testing.assert_array_equal(blind.energies.net.weights[0][:, :DIM], np.zeros((MEMBERS, DIM, 8)))
    assert (np.abs(blind.energies.net.weights[0][:, DIM:]) > 0).all()
    assert (np.abs(fitted.energies.net.weights[0][:, :DIM]) > 0).all()
    assert blind.gain > 0.1


def test_training_stops_when_nothing_is_left_to_learn(problem):
    joint, bases, rows = problem
    gaussian = jnp.asarray(np.random.default_rng(1).normal(size=rows.w.shape), jnp.float32)
    result = fit((joint, bases, rows._replace(w=gaussian)))
    assert result.outcome is Outcome.CONVERGED
    assert len(result.history) < 10
    assert result.gain < 0.02


def test_training_far_below_its_aim_is_given_up_once_it_stops_improving(problem):
    settings = training(iterations=600, chunk=30)
    alone = fit(problem, settings)
    given_up = fit(problem, settings, aim=100.0)
    within_reach = fit(problem, settings, aim=alone.gain)
    assert CHUNKS_BEFORE_GIVING_UP <= len(given_up.history) < len(alone.history)
    assert given_up.outcome is Outcome.CONVERGED
    assert given_up.history == alone.history[: len(given_up.history)]
    assert within_reach.history == alone.history


def test_warm_smc_that_begins_with_a_trained_energy_weighs_its_first_particles_by_it(problem, fitted):
    """They are draws of the base: taken for those of the model, they would pull the energy back to nothing."""
    settings = replace(training(), particles=WarmSmc(n=2000, moves=1), iterations=20, chunk=20, learning_rate=1e-6)
    result = fit(problem, settings, start=WarmStart(fitted.energies, None))
    of_base = replace(settings, particles=BaseParticles(n=2000))
    assert result.history[0]["gap"] == pytest.approx(
        fit(problem, of_base, start=WarmStart(fitted.energies, None)).history[0]["gap"], abs=0.05
    )
    assert result.history[0]["ess"] < 0.99


@pytest.mark.parametrize("bound", [20.0, None])
def test_absurd_steps_leave_something_finite(problem, bound):
    result = fit(problem, training(learning_rate=1e3, bound=bound))
    assert is_finite(result.energies)
    assert is_finite(result.particles)
    assert result.outcome is Outcome.RECOVERED
    assert result.history[-1]["recoveries"] > 0
    assert np.isfinite(result.gain)
    assert result.validation is None or result.gain > 0  # the base is kept unless something is better


def test_nan_in_the_data_keeps_the_base(problem):
    joint, bases, rows = problem
    result = fit((joint, bases, rows._replace(w=rows.w.at[:200].set(jnp.nan))))
    assert result.outcome is Outcome.RECOVERED
    assert result.validation is None
    assert result.gain == 0
    assert is_finite(result.energies)
    assert is_finite(result.particles)


def test_each_way_of_going_wrong_is_noticed():
    good = {"gap": 0.1, "acceptance": 0.6, "step_size": 0.1, "ess": 0.5}
    cases = [{}, {"gap": 1e3}, {"gap": np.nan}, {"acceptance": 0.0}, {"acceptance": np.nan}]
    metrics = StepMetrics(*(jnp.array([(good | case)[name] for case in cases]) for name in StepMetrics._fields))
    np.testing.assert_array_equal(_healthy(metrics, np.zeros(5), np.zeros(5)), [True, False, False, False, False])
    fine = StepMetrics(*(jnp.full(3, good[name]) for name in StepMetrics._fields))
    np.testing.assert_array_equal(
        _healthy(fine, np.array([3.0, -8.0, np.nan]), np.array([4.0, 4.0, 4.0])), [True, False, False]
    )


def test_only_the_member_that_diverged_goes_back():
    def state(value, rate):
        energies = jnp.full((2, 3), value)
        return EnergyState(energies, Weights(energies, (), energies), jnp.full((2, 1), value), jnp.full(2, rate))

    after = _roll_back(state(jnp.nan, 1.0), state(5.0, 0.5), jnp.array([True, False]))
    assert np.isnan(after.weights.trained[0]).all()
    np.testing.assert_array_equal(after.weights.trained[1], np.full(3, 5.0))
    np.testing.assert_array_equal(after.particles[1], [5.0])
    np.testing.assert_array_equal(after.rate, [1.0, 0.25])
