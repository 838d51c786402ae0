"""Chains against exact answers: z-scores in Monte-Carlo standard errors, and an ESS that must be large enough.

The target is a product of four things that samplers get wrong: a skewed coordinate, two strongly correlated
ones, and one confined to an interval (through the probit map, with its Jacobian).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.special import ndtr
from jax.scipy.stats import norm

from unle.samplers import AbstractKernel, Hmc, KernelInfo, Mala, Nuts, RandomWalk, SharedStepSize, run_chains

Z = 4.0  # false alarms: 6e-5 per comparison, and there are 6 in each test
CORRELATION, RATE = 0.9, 3.0

# kernel, steps per kept draw
KERNELS = {
    "mala": (Mala(), 8),
    "hmc": (Hmc(leapfrogs=4), 2),
    "random_walk": (RandomWalk(), 12),
    "nuts": (Nuts(max_doublings=4), 1),
}


def log_density(x):
    gumbel = -x[0] - jnp.exp(-x[0])
    pair = -0.5 * (x[1] ** 2 - 2 * CORRELATION * x[1] * x[2] + x[2] ** 2) / (1 - CORRELATION**2)
    confined = -RATE * ndtr(x[3]) + norm.logpdf(x[3])  # exp(-3 theta) on [0, 1], theta = Phi(u)
    return gumbel + pair + confined


def statistics(x):
    """What is compared: coordinates, the skewed one's square, the distance of the correlated ones."""
    return jnp.array([x[0], x[0] ** 2, x[1], x[2], (x[1] - x[2]) ** 2, ndtr(x[3])])


EULER = 0.5772156649
EXACT = np.array([EULER, EULER**2 + np.pi**2 / 6, 0.0, 0.0, 2 - 2 * CORRELATION, 1 / RATE - 1 / np.expm1(RATE)])


def z_scores(draws, exact):
    """Return z and ESS of the means of draws (chain, draw, statistic); the chains are independent."""
    error = draws.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(len(draws))
    return (draws.mean(axis=(0, 1)) - exact) / error, draws.var(axis=(0, 1)) / error**2


def r_hat(draws):
    """Return R-hat of draws (chain, draw, statistic): the spread of all draws against that within chains."""
    within = draws.var(axis=1).mean(axis=0)
    return np.sqrt((within + draws.mean(axis=1).var(axis=0)) / within)


def sample(kernel, thin, draws=100, chains=100):
    @jax.jit
    def run(key, positions, step_state):
        steps = draws * thin
        run = run_chains(key, positions, log_density, kernel=kernel, steps=steps, step_state=step_state, keep=draws)
        return run, jax.vmap(jax.vmap(statistics))(run.draws)

    # Not wider: a Langevin chain far out in a tail as light as exp(-exp(-x)) overshoots and is stuck there.
    start = jr.normal(jr.key(0), (chains, 4))
    warm, _ = run(jr.key(1), start, SharedStepSize().init(chains))
    kept, values = run(jr.key(2), warm.positions, warm.step_state)
    return np.asarray(values, dtype=float), kept


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_leaves_its_target_invariant(name):
    kernel, thin = KERNELS[name]
    draws, run = sample(kernel, thin)
    z, n_effective = z_scores(draws, EXACT)
    assert (n_effective > 400).all(), n_effective
    assert (abs(z) < Z).all(), z
    assert (run.moved > 0).all()
    assert (r_hat(draws) < 1.05).all()


class Unadjusted(AbstractKernel):
    """MALA without its accept step: the companion that has to fail."""

    target_acceptance: float = eqx.field(default=0.574, static=True)

    def init(self, position, log_density):
        return Mala().init(position, log_density)

    def step(self, key, state, log_density, step_size):
        noise = jr.normal(key, state.position.shape)
        position = state.position + step_size * state.logdensity_grad + jnp.sqrt(2 * step_size) * noise
        return self.init(position, log_density), KernelInfo(jnp.asarray(0.574), jnp.asarray(True))


def test_a_kernel_without_its_accept_step_is_caught():
    draws, _ = sample(Unadjusted(), 8)
    z, _ = z_scores(draws, EXACT)
    assert abs(z).max() > 2 * Z


def test_chains_stuck_apart_have_a_bad_r_hat_and_interleaving_would_hide_it():
    starts = 30.0 * jnp.arange(4.0)[:, None]

    def comb(x):
        """Modes thirty standard deviations apart."""
        return jax.nn.logsumexp(-0.5 * (x[0] - starts[:, 0]) ** 2)

    run = run_chains(jr.key(0), starts, comb, kernel=RandomWalk(), steps=300, keep=100)
    draws = np.asarray(run.draws, dtype=float)
    assert r_hat(draws) > 2
    interleaved = draws.swapaxes(0, 1).reshape(4, 100, 1)  # a reshape where a transpose belongs
    assert r_hat(interleaved) < 1.1


@pytest.mark.parametrize("dim", [2, 20])
def test_a_shared_step_size_meets_narrow_targets(dim):
    """Width 0.02, chains that start fifty widths away, a step size hundreds of times too long."""
    width, controller = 0.02, SharedStepSize()

    @jax.jit
    def run(key, positions, step_state):
        narrow = lambda x: -0.5 * jnp.sum((x / width) ** 2)  # noqa: E731
        return run_chains(key, positions, narrow, steps=400, step_state=step_state)

    warm = run(jr.key(0), jr.normal(jr.key(1), (200, dim)), controller.init(200))
    after = run(jr.key(2), warm.positions, warm.step_state)
    assert abs(after.acceptance - Mala().target_acceptance) < 0.03
    assert (after.moved > 0.2).all(), "a chain is stuck"
    np.testing.assert_allclose(np.asarray(after.positions).std() / width, 1.0, atol=4 / np.sqrt(2 * 200 * dim))
    assert controller.value(after.step_state) < 2 * width**2
