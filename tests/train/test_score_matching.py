"""Score matching finds a Gaussian where algebra finds it, exactly and in slices."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from unle.errors import FitError, InputError
from unle.models import AbstractEnergy, EnergyModel, FixedMeasure
from unle.train import Descent, Rows, ScoreMatching, descend, make_splits
from unle.train.score_matching import exact_loss, matched, sliced_loss

N = 400
FAST = Descent(iterations=300, batch=360, learning_rate=0.1, weight_decay=0.0, average=0.9, patience=100)


class Quadratic(AbstractEnergy):
    """E = a/2 |w - b t|^2, a = exp(log_precision): the energy whose score matching can be done by hand."""

    log_precision: Float[Array, ""]
    slope: Float[Array, ""]

    def __call__(self, t, r):
        return 0.5 * jnp.exp(self.log_precision) * jnp.sum(jnp.square(r - self.slope * t))


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    t = rng.normal(size=(N, 1))
    return jnp.asarray(t, jnp.float32), jnp.asarray(2.0 * t + 0.5 * rng.normal(size=(N, 1)), jnp.float32)


BASE = FixedMeasure(jnp.zeros(1), jnp.asarray(1e3))  # so wide that it does not matter
_, STATIC = eqx.partition(Quadratic(jnp.zeros(()), jnp.zeros(())), eqx.is_array)


def by_hand(pairs):
    """Return the minimiser of mean(-a + a^2 (w - b t)^2 / 2) over all rows: b and a."""
    t, w = (np.asarray(part, float)[:, 0] for part in pairs)
    slope = (t @ w) / (t @ t)
    return slope, 1 / np.mean((w - slope * t) ** 2)


def lowest(loss, pairs, settings):
    """Return slope and precision of the lowest loss on a grid."""
    slopes, logs = jnp.linspace(1.8, 2.2, 81), jnp.linspace(-1.0, 3.0, 201)
    fixed = (STATIC, BASE, settings)

    @jax.jit
    def value(slope, log_precision):
        return loss(jr.key(0), Quadratic(log_precision, slope), fixed, *pairs)

    values = np.asarray(jax.vmap(lambda slope: jax.vmap(lambda log: value(slope, log))(logs))(slopes))
    i, j = np.unravel_index(np.argmin(values), values.shape)
    return float(slopes[i]), float(np.exp(logs[j]))


@pytest.mark.parametrize(("loss", "slices"), [(exact_loss, None), (sliced_loss, 2)], ids=["exact", "sliced"])
def test_the_loss_is_lowest_at_the_gaussian_of_the_data(loss, slices, pairs):
    slope, precision = lowest(loss, pairs, ScoreMatching(slices=slices))  # one coordinate: all slices are exact
    exact_slope, exact_precision = by_hand(pairs)
    assert slope == pytest.approx(exact_slope, abs=0.005)  # the step of the grid
    assert precision == pytest.approx(exact_precision, rel=0.02)


def no_curvature(key, trained, fixed, t, w):
    """The loss without its first term, which is all that keeps a density from becoming flat."""
    static, base, _ = fixed
    model = EnergyModel(base, eqx.combine(trained, static))
    return jnp.mean(jax.vmap(lambda t, w: matched(model, t, w, jnp.zeros((1, 1))))(t, w))


def test_without_the_curvature_the_flattest_density_wins(pairs):
    _, precision = lowest(no_curvature, pairs, ScoreMatching())
    assert precision == pytest.approx(np.exp(-1.0), rel=1e-3)  # the end of the grid


@pytest.mark.slow
def test_descent_finds_the_gaussian(pairs):
    start = Quadratic(jnp.zeros(1), jnp.zeros(1))
    bases = jax.tree.map(lambda leaf: leaf[None], BASE)
    splits = make_splits(jr.key(2), N, members=1)
    outcome = descend(
        jr.key(3), exact_loss, start, (STATIC, bases, ScoreMatching()), Rows(*pairs, splits), settings=FAST
    )
    rows = np.asarray(splits.train[0])
    slope, precision = by_hand((pairs[0][rows], pairs[1][rows]))
    # What is kept is the point of the path with the lowest held-out loss: within a standard error of the minimum.
    assert float(outcome.trained.slope[0]) == pytest.approx(slope, abs=2 * 0.5 / np.sqrt(N))
    assert float(jnp.exp(outcome.trained.log_precision[0])) == pytest.approx(precision, rel=2 * np.sqrt(2 / N))


class Cubic(AbstractEnergy):
    """An energy whose Hessian is neither constant nor diagonal."""

    def __call__(self, t, r):
        return jnp.sum(jnp.sin(r)) * t[0] + r[0] * r[1] ** 2 - 0.3 * r[2] * r[0]


def test_slices_in_all_signs_add_up_to_the_trace():
    t, w = jnp.array([0.3]), jnp.array([0.5, -0.2, 1.1])
    model = EnergyModel(FixedMeasure(jnp.zeros(3), jnp.asarray(10.0)), Cubic())
    signs = jnp.array(list(itertools.product([-1.0, 1.0], repeat=3)))

    @jax.jit
    def three_ways():
        sliced = jnp.mean(jax.vmap(lambda u: matched(model, t, w, u[None]))(signs))
        score = jax.grad(lambda w: model.log_density(t, w))(w)
        trace = jnp.trace(jax.hessian(lambda w: model.log_density(t, w))(w))
        return sliced, matched(model, t, w, jnp.eye(3)), trace + 0.5 * score @ score

    sliced, exact, by_hand = three_ways()
    np.testing.assert_allclose(sliced, by_hand, rtol=1e-4)
    np.testing.assert_allclose(exact, by_hand, rtol=1e-4)


def always_nan(key, trained, fixed, t, w):
    return jnp.sum(trained) * jnp.nan


def test_a_loss_that_is_never_finite_is_an_error(pairs):
    splits = make_splits(jr.key(2), N, members=1)
    with pytest.raises(FitError, match="never finite"):
        descend(jr.key(0), always_nan, jnp.zeros(1), None, Rows(*pairs, splits), settings=Descent(iterations=50))


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="slices >= 1"):
        ScoreMatching(slices=0)
    with pytest.raises(InputError, match="positive iterations"):
        Descent(iterations=0)
