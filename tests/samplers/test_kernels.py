"""Laws of the kernels, run over a registry: a new kernel adds one line."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle.samplers import Hmc, KernelInfo, Mala, Nuts, RandomWalk

KERNELS = {
    "mala": (Mala(), 0.1),
    "hmc": (Hmc(leapfrogs=3), 0.3),
    "random_walk": (RandomWalk(), 0.5),
    "nuts": (Nuts(max_doublings=4), 0.3),
}


def log_density(x):
    """A skewed density inside the half-space x_0 > 0; outside, one kind of trouble after another."""
    value = jnp.log(x[0]) - x[0] - 0.5 * jnp.sum((x[1:] - 1.0) ** 2)
    trouble = jnp.where(x[1] > 0, jnp.nan, jnp.where(x[1] > -1, jnp.inf, -jnp.inf))
    return jnp.where(x[0] > 0, value, trouble)


@pytest.fixture(scope="module", params=KERNELS)
def law(request):
    """One kernel with its compiled `many`: init, then one step, over a batch of chains."""
    kernel, step_size = KERNELS[request.param]

    def one(key, position):
        state = kernel.init(position, log_density)
        return state, kernel.step(key, state, log_density, step_size)

    return one, jax.jit(jax.vmap(one))


INSIDE = jnp.array([[0.5, 1.0], [2.0, -0.3], [4.0, 2.0], [1.0, 1.0]] * 16)
OUTSIDE = jnp.array([[-0.05, 0.5], [-0.05, -0.5], [-0.05, -1.5], [-0.05, 3.0]] * 16)


def test_state_and_info_contract(law):
    _, many = law
    before, (after, info) = many(jr.split(jr.key(0), 64), INSIDE)
    assert isinstance(info, KernelInfo)
    np.testing.assert_allclose(before.logdensity, jax.vmap(log_density)(INSIDE), rtol=1e-5)
    np.testing.assert_allclose(after.logdensity, jax.vmap(log_density)(after.position), rtol=1e-4, atol=1e-5)
    assert ((info.acceptance >= 0) & (info.acceptance <= 1)).all()
    np.testing.assert_array_equal(info.moved, (after.position != before.position).any(axis=1))
    assert 0 < info.moved.mean()


def test_deterministic_given_the_key(law):
    _, many = law
    keys = jr.split(jr.key(1), 64)
    first, second, other = many(keys, INSIDE), many(keys, INSIDE), many(jr.split(jr.key(2), 64), INSIDE)
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert (first[1][0].position != other[1][0].position).any()


def test_vmapped_equals_single(law):
    one, many = law
    keys = jr.split(jr.key(3), 64)
    batch, single = many(keys, INSIDE), jax.jit(one)(keys[2], INSIDE[2])
    jax.tree.map(lambda b, s: np.testing.assert_allclose(b[2], s, rtol=1e-4, atol=1e-5), batch, single)


def test_never_enters_where_the_density_is_not_finite(law):
    _, many = law
    edge = jnp.array([[0.02, 0.5], [0.02, -0.5], [0.02, -1.5], [0.02, 3.0]] * 16)
    _, (after, _) = many(jr.split(jr.key(4), 64), edge)
    assert (after.position[:, 0] > 0).all()
    assert jnp.isfinite(after.logdensity).all()


def test_a_chain_that_starts_outside_the_support_leaves_it(law):
    _, many = law
    position = OUTSIDE
    for key in jr.split(jr.key(5), 20):
        before, (after, _) = many(jr.split(key, 64), position)
        outside = np.asarray(position)[:, 0] <= 0
        assert not np.isfinite(np.asarray(before.logdensity)[outside]).any()
        position = after.position
    assert (position[:, 0] > 0).all()


def test_wrong_counts_are_refused():
    with pytest.raises(InputError, match="leapfrogs"):
        Hmc(leapfrogs=0)
    with pytest.raises(InputError, match="max_doublings"):
        Nuts(max_doublings=0)
