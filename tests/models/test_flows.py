"""Flows are normalised, invertible densities, and survive a file."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle.models import Maf, SplineFlow, flows
from unle.store.model_files import load_module, save_module

DESIGNS = {"maf": Maf(layers=2, width=6, depth=1), "spline": SplineFlow(layers=2, width=6, depth=1, knots=4)}
T = jnp.array([0.7])
AXIS = np.linspace(-10, 10, 251)
GRID = jnp.asarray(np.stack(np.meshgrid(AXIS, AXIS), -1).reshape(-1, 2), jnp.float32)


@pytest.fixture(scope="module", params=["maf", pytest.param("spline", marks=pytest.mark.slow)])  # slow to compile
def flow(request):
    return wild(request.param)


def wild(name):
    """Return a flow of two data far from the identity."""
    flow = DESIGNS[name].initial(jr.key(0), 1, 2)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: leaf + jnp.asarray(0.2 * rng.normal(size=leaf.shape), leaf.dtype), flow)


@eqx.filter_jit
def log_densities(flow, t, w):
    """Return log q, and log q without its determinant."""
    whitened = jax.vmap(lambda w: flow.log_density_whitened(flow.whiten(t, w)))(w)
    return jax.vmap(lambda w: flow.log_density(t, w))(w), whitened


def mass(logs):
    return np.exp(np.asarray(logs, float)).sum() * (AXIS[1] - AXIS[0]) ** 2


def test_the_density_integrates_to_one(flow):
    logs, without_determinant = log_densities(flow, T, GRID)
    assert mass(logs) == pytest.approx(1.0, abs=2e-3)
    assert abs(mass(without_determinant) - 1.0) > 0.02  # so the sum over the grid would notice


def test_whitening_is_undone_and_gives_the_density(flow):
    w = jnp.array([0.4, -0.9])

    @eqx.filter_jit
    def there_and_back(flow):
        v = flow.whiten(T, w)
        jacobian = jax.jacobian(lambda w: flow.whiten(T, w))(w)
        return flow.unwhiten(T, v), flow.log_density_whitened(v) + jnp.linalg.slogdet(jacobian)[1]

    back, by_jacobian = there_and_back(flow)
    np.testing.assert_allclose(back, w, atol=1e-4)
    np.testing.assert_allclose(log_densities(flow, T, w[None])[0][0], by_jacobian, rtol=1e-4)


def test_a_new_flow_is_nearly_standard_normal():
    flow = DESIGNS["maf"].initial(jr.key(0), 1, 2)
    w = jnp.array([[-2.0, 0.5], [1.0, 1.0]])
    normal = -0.5 * jnp.sum(w**2, axis=1) - np.log(2 * np.pi)
    np.testing.assert_allclose(log_densities(flow, T, w)[0], normal, atol=0.1)


def test_a_flow_comes_back_from_a_file(flow, tmp_path):
    save_module(tmp_path / "flow", flow)
    again = load_module(tmp_path / "flow")
    assert eqx.tree_equal(flow, again)
    w = jnp.array([[0.4, -0.9]])
    np.testing.assert_array_equal(log_densities(again, T, w)[0], log_densities(flow, T, w)[0])


def test_the_first_use_may_be_inside_a_jit(flow):
    w = jnp.array([[0.4, -0.9]])
    known = log_densities(flow, T, w)[0]
    flows._skeleton.cache_clear()
    fresh = eqx.filter_jit(lambda flow, w: jax.vmap(lambda w: flow.log_density(T, w))(w))(flow, w)
    np.testing.assert_allclose(fresh, known, rtol=1e-5)
    # Nothing of the first program leaked into what the second is made of.
    fresh = eqx.filter_jit(lambda flow, w: jax.vmap(lambda w: flow.log_density(2 * T, w))(w))(
        flow, w
    )  # no leaked tracer
    assert np.isfinite(fresh).all()


def test_what_cannot_be_built_is_said_beforehand(monkeypatch):
    with pytest.raises(InputError, match="at least as wide as the data, 9"):
        Maf(width=8).initial(jr.key(0), 1, 9)
    flows._skeleton.cache_clear()
    monkeypatch.setitem(sys.modules, "flowjax.bijections", None)
    with pytest.raises(InputError, match=r"unle\[bench\]"):
        Maf(width=8).initial(jr.key(0), 1, 2)
