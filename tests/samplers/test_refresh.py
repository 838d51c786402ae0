"""Global moves: fresh draws of the reference, accepted so that the target stays."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from unle.samplers import refresh

CHAINS, ROUNDS = 20_000, 40


def log_tilt(x):
    """Turn N(0, 1) into the skewed density proportional to N(x; 0, 1) exp(x - x^2 / 2) for x > 0."""
    return jnp.where(x[0] > 0, x[0] - 0.5 * x[0] ** 2, -jnp.inf)


@jax.jit
def many_rounds(key, positions):
    def one(positions, key):
        key_draw, key_accept = jr.split(key)
        return refresh(key_accept, positions, jr.normal(key_draw, (CHAINS,))[:, None], log_tilt)

    positions, accepted = jax.lax.scan(one, positions, jr.split(key, ROUNDS))
    return positions[:, 0], accepted


def exact_moments():
    """By quadrature: mean and mean square of the target, and the share of proposals it accepts."""
    x = np.linspace(0, 8, 4001)
    target = np.exp(x - x**2)
    return (x * target).sum() / target.sum(), (x**2 * target).sum() / target.sum()


def test_chains_come_to_the_target(strict_ranks):
    """Even from where the tilt is not defined: those chains take any way back."""
    positions, accepted = many_rounds(jr.key(0), jnp.full((CHAINS, 1), -1.0))
    assert (positions > 0).mean() > 1 - 0.5**ROUNDS - 1e-3
    assert 0.45 < accepted[0] < 0.55  # half of the proposals are positive
    positions = np.asarray(positions, float)
    for power, exact in zip((1, 2), exact_moments(), strict=True):
        values = positions**power
        error = values.std() / np.sqrt(CHAINS)
        assert abs(values.mean() - exact) < 4 * error
        assert abs((values + 0.1).mean() - exact) > 8 * error  # the test can tell


def test_bad_proposals_are_refused_and_good_ones_replace_whole_rows():
    positions = jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]])
    proposals = jnp.array([[-1.0, 7.0], [jnp.nan, 7.0], [3.0, 7.0], [1.0, 7.0]])
    # impossible, not a number, equally good, much better
    tilt = lambda x: jnp.where(x[0] < 0, -jnp.inf, -1e3 * (x[0] - 1.0))  # noqa: E731
    after, share = refresh(jr.key(0), positions, proposals, tilt)
    np.testing.assert_array_equal(after, [[1.0, 1.0], [2.0, 2.0], [3.0, 7.0], [1.0, 7.0]])
    assert share == 0.5


def test_a_mode_that_chains_have_not_found_is_found():
    """Two modes of weight 1/4 and 3/4, far apart; every chain begins in the lighter one."""
    tilt = lambda x: jnp.where(jnp.abs(x[0]) < 1, -jnp.inf, jnp.where(x[0] > 0, jnp.log(3.0), 0.0))  # noqa: E731

    @jax.jit
    def run(key):
        def one(positions, key):
            key_draw, key_accept = jr.split(key)
            return refresh(key_accept, positions, jr.normal(key_draw, (CHAINS,))[:, None], tilt)

        return jax.lax.scan(one, jnp.full((CHAINS, 1), -2.0), jr.split(key, ROUNDS))[0]

    heavy = float((run(jr.key(1)) > 0).mean())
    assert abs(heavy - 0.75) < 4 * np.sqrt(0.75 * 0.25 / CHAINS)
