"""Contract and bookkeeping of the tempered sampler. Whether its samples are right: tests/statistical."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle.samplers import Sweep, tempered_smc
from unle.samplers.sweep import LANGEVIN_STEP, evaluate, unevaluated

SMALL = Sweep(walks=2, langevin=2)
PRIOR = jr.normal(jr.key(99), (64, 2))
MAX_TEMPERATURES = 25


def log_prior(u):
    return -0.5 * jnp.sum(u**2 + jnp.log(2 * jnp.pi))


def log_likelihood(u, x, width):
    """Outside the half-plane u_0 > -1 there is nothing."""
    return jnp.where(u[0] > -1, -0.5 * jnp.sum((x - u) ** 2) / width**2, -jnp.inf)


@eqx.debug.assert_max_traces(max_traces=2)  # once alone, once under vmap, whatever the values
def posterior(key, x, width):
    return tempered_smc(
        key,
        PRIOR,
        log_prior,
        lambda u: log_likelihood(u, x, width),
        sweep=SMALL,
        settle=1,
        keep=3,
        max_temperatures=MAX_TEMPERATURES,
    )


compiled = jax.jit(lambda key, x, width: posterior(key, x, jnp.asarray(width)))
X = jnp.array([0.5, -0.5])


def test_shapes_path_and_cache():
    run = jax.tree.map(np.asarray, compiled(jr.key(0), X, 0.05))
    count = int(run.n_temperatures)
    assert run.draws.shape == (64, 3, 2)
    np.testing.assert_array_equal(run.draws[:, -1], run.particles.positions)
    assert (run.draws[:, 0] != run.draws[:, 1]).any()
    temperature = run.path.temperature[:count]
    assert count > 2
    assert temperature[-1] == 1
    assert (np.diff(temperature) > 0).all()
    assert (temperature[0], run.path.ess[0]) == (0, 1)  # the reference itself, of which the particles are draws
    np.testing.assert_allclose(run.path.ess[2 : count - 1], 0.6, atol=0.02)  # some of the draws are dead at first
    assert run.path.ess[count - 1] >= 0.6
    for column in run.path:
        assert np.isfinite(column[:count]).all()
        assert np.isnan(column[count:]).all()
    fresh = evaluate(jnp.asarray(run.particles.positions), log_prior, lambda u: log_likelihood(u, X, 0.05))
    np.testing.assert_allclose(run.particles.log_reference, fresh.log_reference, rtol=1e-5)
    np.testing.assert_allclose(run.particles.log_tilt, fresh.log_tilt, rtol=1e-4, atol=1e-4)
    assert (run.draws[..., 0] > -1).all()


def test_new_values_do_not_retrace_and_the_key_decides():
    first, again = compiled(jr.key(0), X, 0.05), compiled(jr.key(0), X, 0.05)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    other = compiled(jr.key(1), X + 0.1, 0.07)
    assert (other.draws != first.draws).any()


def test_many_posteriors_side_by_side():
    """Each gets its own number of temperatures; up to rounding, it is what the run alone would be."""
    keys, xs, widths = jr.split(jr.key(2), 3), jnp.stack([X, -0.1 * X, 3 * X]), jnp.array([0.01, 0.3, 1.0])
    many = jax.jit(jax.vmap(posterior))(keys, xs, widths)
    assert len(set(many.n_temperatures.tolist())) == 3
    for index in range(3):
        alone = compiled(keys[index], xs[index], float(widths[index]))
        assert many.n_temperatures[index] == alone.n_temperatures
        np.testing.assert_allclose(many.path.temperature[index], alone.path.temperature, rtol=0.3)
        np.testing.assert_allclose(many.log_evidence[index], alone.log_evidence, atol=1.0)


def test_no_more_temperatures_than_allowed():
    run = compiled(jr.key(0), X, 1e-7)
    assert run.n_temperatures == MAX_TEMPERATURES
    assert run.path.temperature[-1] == 1
    assert jnp.isfinite(run.draws).all()


def test_a_likelihood_that_is_nowhere_finite_says_so():
    run = compiled(jr.key(0), X * jnp.nan, 1.0)
    assert run.log_evidence == -jnp.inf
    assert jnp.isfinite(run.draws).all()


@pytest.mark.parametrize("sweep", [Sweep(walks=2, langevin=0), Sweep(walks=0, langevin=2)])
def test_draws_of_the_reference_where_the_likelihood_is_zero_count_as_zero(sweep):
    run = tempered_smc(jr.key(0), PRIOR, log_prior, lambda u: jnp.where(u[0] > 0, jnp.log(2.0), -jnp.inf), sweep=sweep)
    alive = np.mean(np.asarray(PRIOR)[:, 0] > 0)
    assert 0.3 < alive < 0.7
    np.testing.assert_allclose(run.log_evidence, np.log(2 * alive), rtol=1e-5)
    assert (run.draws[..., 0] > 0).all()
    np.testing.assert_allclose(run.particles.log_tilt, np.log(2.0), rtol=1e-6)


def test_without_gradient_moves_the_gradient_is_never_asked_for(strict_keys):
    @jax.custom_jvp
    def opaque(u):
        return -jnp.sum(jnp.abs(u))

    @opaque.defjvp
    def _(primals, tangents):
        raise AssertionError("differentiated")

    run = tempered_smc(jr.key(0), PRIOR, log_prior, opaque, sweep=Sweep(walks=1, langevin=0))
    assert jnp.isnan(run.path.langevin_acceptance).all()
    with pytest.raises(AssertionError, match="differentiated"):
        tempered_smc(jr.key(0), PRIOR, log_prior, opaque, sweep=Sweep(walks=0, langevin=1))


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_at_temperature_zero_particles_are_evaluated_once(temperature):
    calls = []

    def counted(u):
        jax.debug.callback(lambda: calls.append(1))  # once for all particles
        return -jnp.sum(u**2)

    sweep = Sweep(walks=4, langevin=0)
    numbers = jr.uniform(jr.key(0), (sweep.numbers_needed(*PRIOR.shape),), minval=-0.99, maxval=0.99)
    state = LANGEVIN_STEP.init(PRIOR.shape[0])
    start = unevaluated(PRIOR)
    moved, _, _ = sweep(numbers, start, log_prior, counted, temperature=jnp.asarray(temperature), step_state=state)
    jax.effects_barrier()
    assert len(calls) == (4 if temperature else 1)
    np.testing.assert_allclose(moved.log_tilt, -jnp.sum(moved.positions**2, axis=1), rtol=1e-5)
    assert bool((moved.positions == PRIOR).all()) == (temperature == 0)


@pytest.mark.parametrize("wrong", [{"ess_target": 1.0}, {"keep": 0}, {"max_sweeps": 0}, {"max_temperatures": 1}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        tempered_smc(jr.key(0), PRIOR, log_prior, log_prior, **wrong)
    with pytest.raises(InputError, match="at least one move"):
        Sweep(walks=0, langevin=0)
