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
from unle.store.modules import load_module, save_module

DESIGNS = {"maf": Maf(layers=2, width=8, depth=1), "spline": SplineFlow(layers=2, width=8, depth=1, knots=4)}
T = jnp.array([0.7])


def wild(design, dim):
    """Return a flow far from the identity."""
    flow = design.initial(jr.key(0), 1, dim)
    keys = jr.split(jr.key(1), len(flow.parameters))
    shaken = tuple(
        p + 0.5 * jr.normal(k, (p.size,)).reshape(p.shape) for k, p in zip(keys, flow.parameters, strict=True)
    )
    return eqx.tree_at(lambda f: f.parameters, flow, shaken)


@pytest.fixture(scope="module", params=DESIGNS)
def flow(request):
    return wild(DESIGNS[request.param], 2)


@eqx.filter_jit
def log_densities(flow, t, w):
    return jax.vmap(lambda w: flow.log_density(t, w))(w)


def mass(flow, t):
    """Return the integral of the density over a fine grid."""
    axis = np.linspace(-12, 12, 601)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    return (
        np.exp(np.asarray(log_densities(flow, t, jnp.asarray(grid, jnp.float32)), float)).sum()
        * (axis[1] - axis[0]) ** 2
    )


def test_the_density_integrates_to_one(flow):
    assert mass(flow, T) == pytest.approx(1.0, abs=2e-3)


def test_a_density_without_its_determinant_does_not(flow):
    class Broken(eqx.Module):
        flow: flows.Flow

        def log_density(self, t, w):
            return self.flow.log_density_whitened(self.flow.whiten(t, w))

    assert abs(mass(Broken(flow), T) - 1.0) > 0.05


def test_whitening_is_undone_and_gives_the_density(flow):
    w = jnp.array([0.4, -0.9])

    @eqx.filter_jit
    def there_and_back(flow):
        v = flow.whiten(T, w)
        jacobian = jax.jacobian(lambda w: flow.whiten(T, w))(w)
        return flow.unwhiten(T, v), flow.log_density_whitened(v) + jnp.linalg.slogdet(jacobian)[1]

    back, by_jacobian = there_and_back(flow)
    np.testing.assert_allclose(back, w, atol=1e-4)
    np.testing.assert_allclose(log_densities(flow, T, w[None])[0], by_jacobian, rtol=1e-4)


def test_a_new_flow_is_nearly_standard_normal():
    flow = Maf(width=8).initial(jr.key(0), 1, 1)
    w = jnp.linspace(-2, 2, 5)[:, None]
    normal = -0.5 * w[:, 0] ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(log_densities(flow, T, w), normal, atol=0.1)


def test_a_flow_comes_back_from_a_file(flow, tmp_path):
    save_module(tmp_path / "flow", flow)
    again = load_module(tmp_path / "flow")
    assert eqx.tree_equal(flow, again)
    w = jnp.array([[0.4, -0.9]])
    np.testing.assert_array_equal(log_densities(again, T, w), log_densities(flow, T, w))


def test_the_first_use_may_be_inside_a_jit(flow):
    w = jnp.array([[0.4, -0.9]])
    known = log_densities(flow, T, w)
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
