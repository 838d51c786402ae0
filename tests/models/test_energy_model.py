"""Laws of every energy, and what a new one must not know yet."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.compiling import on_device
from unle.models import Mlp, MlpEnergy, NoEnergy

DIM, DATA, BOUND = 2, 3, 2.5
RNG = np.random.default_rng(0)
T, R = (jnp.asarray(RNG.normal(size=(50, dim)), jnp.float32) for dim in (DIM, DATA))
NOISE = np.random.default_rng(1).normal(size=1000)


@functools.cache
def initial(*, sees_theta):
    @jax.jit
    def arrays():
        return MlpEnergy.initial(jr.key(2), DIM, DATA, width=8, depth=2, bound=None, sees_theta=sees_theta).net

    return arrays()


def new(bound, *, sees_theta=False):
    return MlpEnergy(initial(sees_theta=sees_theta), bound)


def trained(bound):
    """Weights as large as no training leaves them."""
    noisy = lambda leaf: leaf + jnp.asarray(NOISE[: leaf.size].reshape(leaf.shape), leaf.dtype)  # noqa: E731
    return MlpEnergy(jax.tree.map(noisy, initial(sees_theta=True)), bound)


# name -> constructor; a new kind of energy is one more line
ENERGIES = {
    "new": lambda: new(BOUND),
    "bounded": lambda: trained(BOUND),
    "unbounded": lambda: trained(None),
    "none": NoEnergy,
}


@eqx.filter_jit
def evaluate(energy, t, r):
    """Return values and slopes row by row, compiled once per kind of energy."""
    return jax.vmap(jax.value_and_grad(energy, argnums=(0, 1)))(t, r)


def values(energy, t, r):
    return np.asarray(evaluate(energy, t, r)[0])


@pytest.mark.parametrize("name", ENERGIES)
def test_values_and_slopes_are_finite_far_out(name):
    numbers, slopes = evaluate(ENERGIES[name](), 1e4 * T, 1e4 * R)
    assert numbers.shape == (50,)
    assert np.isfinite(numbers).all()
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_the_bound_holds_and_changes_nothing_near_zero():
    free, bounded = trained(None), trained(BOUND)
    largest = np.abs(values(bounded, 100 * T, 100 * R)).max()
    assert 0.99 * BOUND < largest <= BOUND
    assert np.abs(values(free, 100 * T, 100 * R)).max() > 10 * BOUND
    np.testing.assert_allclose(values(bounded, T, R), BOUND * np.tanh(values(free, T, R) / BOUND), rtol=1e-5)
    np.testing.assert_allclose(values(new(BOUND), T, R), values(new(None), T, R), atol=1e-3)


def test_a_new_energy_is_nearly_constant():
    for sees_theta in (False, True):
        assert 0 < values(new(BOUND, sees_theta=sees_theta), T, R).std() < 0.2


def test_an_energy_that_does_not_see_theta_has_no_weight_on_it():
    blind, seeing = new(BOUND), new(BOUND, sees_theta=True)
    np.testing.assert_array_equal(values(blind, T, R), values(blind, 100 * T[::-1], R))
    assert np.abs(values(seeing, T, R) - values(seeing, 100 * T[::-1], R)).max() > 0.1
    np.testing.assert_array_equal(blind.net.weights[0][DIM:], seeing.net.weights[0][DIM:])
    slopes = eqx.filter_jit(eqx.filter_grad(lambda energy: jnp.sum(jax.vmap(energy)(T, R))))(blind)
    assert np.abs(slopes.net.weights[0][:DIM]).min() > 0  # nothing but training keeps it blind


def test_no_energy_is_zero():
    np.testing.assert_array_equal(values(NoEnergy(), T, R), np.zeros(50))


def test_a_network_keeps_the_scale_of_its_input():
    @eqx.filter_jit
    def outputs(rows, scale):
        return jax.vmap(Mlp(jr.key(4), 100, 100, width=100, depth=2, output_scale=scale))(rows)

    rows = jnp.asarray(RNG.normal(size=(200, 100)), jnp.float32)
    assert 0.05 < outputs(rows, 1.0).std() < 2
    np.testing.assert_array_equal(outputs(rows, 0.0), np.zeros((200, 100)))


def test_a_network_has_the_layers_asked_for():
    net = jax.eval_shape(lambda: Mlp(jr.key(4), 2, 3, width=5, depth=2))
    assert [w.shape for w in net.weights] == [(2, 5), (5, 5), (5, 3)]
    assert [b.shape for b in net.biases] == [(5,), (5,), (3,)]


def test_stacked_energies_are_those_of_an_ensemble():
    sizes = {"members": 3, "width": 8, "depth": 2, "bound": 5.0}
    one, other, blind = (
        MlpEnergy.stacked(jr.key(seed), DIM, DATA, sees_theta=sees, **sizes)
        for seed, sees in ((0, True), (1, True), (0, False))
    )
    apart = jax.eval_shape(lambda: MlpEnergy.initial(jr.key(0), DIM, DATA, width=8, depth=2, bound=5.0))
    assert jax.tree.map(lambda leaf: leaf.shape[1:], one) == jax.tree.map(lambda leaf: leaf.shape, apart)
    first = np.asarray(one.net.weights[0])
    assert (first[0] != first[1]).all()  # members differ
    assert (first != np.asarray(other.net.weights[0])).all()  # and so do keys
    hidden = np.asarray(one.net.weights[1])
    assert abs(hidden.std() * np.sqrt(8) - 1) < 0.3  # unit scale from layer to layer
    assert (np.asarray(blind.net.weights[0])[:, :DIM] == 0).all()
    assert (np.asarray(blind.net.weights[0])[:, DIM:] == first[:, DIM:]).all()


def test_an_energy_fades_out_beyond_the_reach_of_its_base():
    """In full up to |v|^2 = reach, half of it 8 further on, nothing from 16 on; the network does not see |v|^2."""
    net = MlpEnergy.initial(jr.key(2), DIM, DATA, width=8, depth=2, bound=None).net
    whole, fading = MlpEnergy(net, 20.0), MlpEnergy(net, 20.0, jnp.asarray(9.0))
    at = eqx.filter_jit(lambda energy, r: energy(jnp.ones(DIM), r))
    full = float(at(whole, jnp.ones(DATA)))
    for distance, share in ((0.0, 1.0), (9.0, 1.0), (17.0, 0.5), (25.0, 0.0), (1e6, 0.0)):
        seen = on_device(np.append(np.ones(DATA), distance))
        assert float(at(fading, seen)) == pytest.approx(share * full, abs=1e-6)
    slope = eqx.filter_jit(eqx.filter_grad(at))(fading, on_device(np.append(np.ones(DATA), 17.0)))
    assert float(slope.reach) == 0  # a setting: nothing trains it
