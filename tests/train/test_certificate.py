"""A certificate tells a normaliser that holds from one with a hole, and knowledge of theta from none."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from unle.models import AbstractEnergy, ConditionalGaussian, EnergyModel, NoCorrection, NoEnergy
from unle.train import certify
from unle.train.validation import pareto_k

N = 400
HELD_OUT = np.arange(N).reshape(2, -1)


class Steep(AbstractEnergy):
    """E = a (r^2 - 1) / 2 within a distance, and deeper and deeper beyond it, as outliers pull an energy down."""

    a: Float[Array, ""]
    hole: Float[Array, ""]

    def __call__(self, t, r):
        beyond = jnp.maximum(jnp.abs(r[0]) - 4.0, 0.0)
        return 0.5 * self.a * (r[0] ** 2 - 1) - self.hole * beyond


def stacked(energy, slope):
    base = ConditionalGaussian(jnp.zeros(1), jnp.full((1, 1), slope), jnp.eye(1), NoCorrection())
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), EnergyModel(base, energy))


def certificate(a=0.5, hole=0.0, *, slope=2.0, tails=0.0, log_z=None):
    """Certify E over N(slope t, 1), with data of the model itself, and some of them at plus minus 8."""
    key_t, key_w = jr.split(jr.key(0))
    t = jr.normal(key_t, (N, 1))
    r = jr.normal(key_w, (N, 1)) / np.sqrt(1 + a)
    r = jnp.where((jnp.arange(N) < tails * N)[:, None], 8.0 * jnp.sign(r), r)
    exact = 0.5 * a - 0.5 * np.log(1 + a)  # log Z without a hole
    value = jnp.full(2, exact if log_z is None else log_z)
    rows = np.random.default_rng(0).permutation(N).reshape(2, -1)
    return certify(stacked(Steep(jnp.asarray(a), jnp.asarray(hole)), slope), value, t, slope * t + r, rows)


def test_a_right_normaliser_is_relied_on():
    found = certificate()
    assert abs(found.log_z_gap) < 4 * found.log_z_error < 0.1
    assert found.reliable
    assert found.doubt == ""


def test_a_wrong_constant_is_seen():
    found = certificate(log_z=0.5)
    assert found.log_z_gap == pytest.approx(-0.5 + 0.25 - 0.5 * np.log(1.5), abs=4 * found.log_z_error)
    assert not found.reliable
    assert "differ" in found.doubt


def test_a_hole_where_draws_of_the_base_never_go_is_seen():
    """Beyond four standard deviations the energy falls by 40 nats for each: the density there integrates to e^800."""
    found = certificate(hole=40.0)
    assert not found.reliable


def test_data_where_no_draw_goes_are_counted():
    found = certificate(a=-0.5, tails=0.1)
    assert found.outweigh == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 200))
    assert not found.reliable
    assert "no draw of the base goes" in found.doubt


def test_information_about_theta():
    """x = slope t + noise of variance 1 / 1.5: at most 1/2 log(1 + 1.5 slope^2) nats, and 65 parameters to compare."""
    knows, ignores = certificate(slope=2.0), certificate(slope=0.0)
    assert knows.information == pytest.approx(0.5 * np.log(7), abs=4 * knows.information_error)
    assert knows.knows_theta
    assert abs(ignores.information) < 1e-5
    assert not ignores.knows_theta


def test_weights_of_which_a_few_are_everything_have_the_heaviest_tail():
    assert pareto_k(np.where(np.arange(8192) < 3, 0.0, -800.0)) == np.inf


def test_nan_is_no_certificate():
    found = certificate(a=float("nan"))
    assert not found.reliable
    assert not found.knows_theta


def test_a_base_alone_needs_none():
    found = certify(stacked(NoEnergy(), 2.0), jnp.zeros(2), *[jr.normal(jr.key(i), (N, 1)) for i in (0, 1)], HELD_OUT)
    assert abs(found.log_z_gap) < 4 * found.log_z_error
