"""A base of repeated measurements is the product of its parts."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.models import ConditionalGaussian, Mlp, NeuralCorrection, Repeated
from unle.store.model_files import load_module, save_module

TOGETHER, APART = ((0, 1), (2, 3), (4, 5)), ((0, 3), (1, 4), (2, 5))


def single(key=0):
    """Return a Gaussian of two numbers, given one parameter, that a network bends."""
    net = Mlp(jr.key(key), 1, NeuralCorrection.outputs(2), width=8, depth=1, output_scale=0.5)
    whitener = jnp.array([[2.0, 0.0], [0.5, 3.0]])
    return ConditionalGaussian(jnp.array([0.1, -0.3]), jnp.array([[0.5, 1.0]]), whitener, NeuralCorrection(net))


def compiled(base):
    """Return the functions of a base as compiled ones: one operation at a time, each would be a program of its own."""
    names = ("log_density", "whiten", "unwhiten", "features", "features_whitened", "log_density_whitened")
    return SimpleNamespace(**{name: eqx.filter_jit(getattr(base, name)) for name in names})


@pytest.mark.parametrize("blocks", [TOGETHER, APART])
def test_density_and_coordinates_are_those_of_the_parts(blocks):
    one, base = compiled(single()), compiled(Repeated(single(), blocks))
    t, w = jnp.array([0.7]), jr.normal(jr.key(1), (6,))
    parts = [w[jnp.array(block)] for block in blocks]
    assert float(base.log_density(t, w)) == pytest.approx(sum(float(one.log_density(t, part)) for part in parts), 1e-5)
    v, r = base.whiten(t, w), base.features(t, w)
    for block, part in zip(blocks, parts, strict=True):
        np.testing.assert_allclose(v[jnp.array(block)], one.whiten(t, part), rtol=1e-5)
        np.testing.assert_allclose(r[jnp.array(block)], one.features(t, part), rtol=1e-5)
    np.testing.assert_allclose(base.unwhiten(t, v), w, atol=1e-5)
    np.testing.assert_allclose(base.features_whitened(t, v), r, atol=1e-5)
    # log q0(w | t) = log q0(v) + log |det dv/dw|
    jacobian = jax.jit(jax.jacobian(lambda w: base.whiten(t, w)))(w)
    expected = base.log_density_whitened(v) + jnp.linalg.slogdet(jacobian)[1]
    assert float(base.log_density(t, w)) == pytest.approx(float(expected), abs=1e-4)


def test_draws_are_independent_standard_normals():
    v = np.asarray(Repeated(single(), APART).draws_whitened(jr.key(0), 20_000))
    assert v.shape == (20_000, 6)
    np.testing.assert_allclose(np.cov(v.T), np.eye(6), atol=0.04)  # four standard errors of a variance


def test_members_are_stacked_and_saved(tmp_path):
    each = [single(key) for key in range(3)]
    members = Repeated(jax.tree.map(lambda *leaves: jnp.stack(leaves), *each), TOGETHER)
    t, w = jnp.array([0.4]), jnp.arange(6.0)
    log_density = eqx.filter_jit(lambda base: base.log_density(t, w))
    values = eqx.filter_vmap(log_density)(members)
    np.testing.assert_allclose(values, [float(log_density(Repeated(one, TOGETHER))) for one in each], rtol=1e-5)
    assert len(set(np.asarray(values).tolist())) == 3
    assert members.repeats == 3
    save_module(tmp_path / "base", members)
    assert eqx.tree_equal(load_module(tmp_path / "base"), members)
