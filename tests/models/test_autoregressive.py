"""What is particular to autoregressive bases: quantiles far out, and a past that is the past."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.special import ndtri_exp

from unle.models import Autoregressive, Mlp
from unle.models.autoregressive import _lower_quantile

DIM, POINTS = 2, 9


def base(*, sees_past):
    net = Mlp(jr.key(0), *Autoregressive.sizes(DIM), width=8, depth=2, output_scale=0.5)
    rng = np.random.default_rng(0)
    linear = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((POINTS,), (DIM, POINTS)))
    return Autoregressive(*linear, jnp.linspace(0.5, 2.0, POINTS), net, jnp.asarray(float(sees_past)))


def test_quantiles_are_those_of_scipy_and_have_their_slope():
    log_p = np.array([np.log(0.5), -0.7, -3.0, -50.0, -199.0, -201.0, -1e3, -1e5, -5e7])
    value, slope = jax.vmap(jax.value_and_grad(_lower_quantile))(jnp.asarray(log_p, jnp.float32))
    np.testing.assert_allclose(value, ndtri_exp(log_p), rtol=2e-5, atol=1e-6)
    step = 1e-6 * np.abs(log_p)
    np.testing.assert_allclose(slope, (ndtri_exp(log_p) - ndtri_exp(log_p - step)) / step, rtol=1e-3)


def test_a_value_changes_nothing_before_it():
    r = jr.normal(jr.key(1), (POINTS,))
    jacobian = eqx.filter_jit(lambda one, r: jax.jacfwd(lambda r: one.whiten(jnp.zeros(DIM), r))(r))
    for sees_past in (False, True):
        slopes = np.asarray(jacobian(base(sees_past=sees_past), r))
        assert (slopes[np.triu_indices(POINTS, 1)] == 0).all()
        assert (np.diagonal(slopes) > 0).all()
        assert (slopes[np.tril_indices(POINTS, -1)] != 0).any()


def test_the_network_sees_the_past_only_if_it_may():
    r = jr.normal(jr.key(1), (POINTS,))
    mixture = eqx.filter_jit(lambda one, r: one.mixture(jnp.zeros(DIM), r, jnp.asarray(5)))
    weights = [
        [mixture(base(sees_past=sees), past).log_weights for past in (r, r.at[3].add(1.0))] for sees in (False, True)
    ]
    np.testing.assert_array_equal(*weights[0])
    assert not np.allclose(*weights[1])


def test_far_data_have_a_finite_density_with_a_finite_slope():
    one = base(sees_past=True)
    far = jnp.zeros(POINTS).at[4].set(1e4)
    slope = eqx.filter_jit(jax.grad(lambda t: one.log_density(t, far) + jnp.sum(one.whiten(t, far))))
    assert np.isfinite(slope(jnp.zeros(DIM))).all()
