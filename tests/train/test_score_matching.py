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
from unle.models import FixedMeasure, TiltedModel
from unle.models.energy import AbstractEnergy
from unle.train import Descent, ScoreMatching, descend, fit_score_matching, make_splits
from unle.train.score_matching import exact_loss, matched, sliced_loss

N = 400
FAST = Descent(iterations=600, batch=360, learning_rate=0.05, weight_decay=0.0, average=0.9, patience=100)


class Quadratic(AbstractEnergy):
    """E = a/2 |w - b t|^2, a = exp(log_precision): the energy whose score matching can be done by hand."""

    log_precision: Float[Array, ""]
    slope: Float[Array, ""]

    def __call__(self, t, r):
        return 0.5 * jnp.exp(self.log_precision) * jnp.sum(jnp.square(r - self.slope * t))


@pytest.fixture(scope="module")
def pairs():
    t = jr.normal(jr.key(0), (N, 1))
    return t, 2.0 * t + 0.5 * jr.normal(jr.key(1), (N, 1))


def base(scale):
    return FixedMeasure(jnp.zeros(1), jnp.asarray(scale))


def fit(loss, pairs, settings=None):
    """Fit slope and precision of a quadratic energy on a measure so wide that it does not matter."""
    one = Quadratic(jnp.zeros(()), jnp.zeros(()))
    trained, static = eqx.partition(one, eqx.is_array)
    stack = lambda tree: jax.tree.map(lambda leaf: leaf[None], tree)  # noqa: E731
    fixed = (static, stack(base(1e3)), settings or ScoreMatching())
    splits = make_splits(jr.key(2), N, members=1)
    outcome = descend(jr.key(3), loss, stack(trained), fixed, *pairs, splits, settings=FAST)
    return float(outcome.trained.slope[0]), float(jnp.exp(outcome.trained.log_precision[0]))


def by_hand(pairs):
    """Return the minimiser of mean(-a + a^2 (w - b t)^2 / 2) over all rows."""
    t, w = (np.asarray(part, float)[:, 0] for part in pairs)
    slope = (t @ w) / (t @ t)
    return slope, 1 / np.mean((w - slope * t) ** 2)


@pytest.mark.parametrize(("loss", "slices"), [(exact_loss, None), (sliced_loss, 2)], ids=["exact", "sliced"])
def test_a_gaussian_is_found(loss, slices, pairs):
    slope, precision = fit(loss, pairs, ScoreMatching(slices=slices))
    exact_slope, exact_precision = by_hand(pairs)
    # A tenth of the rows is held out, so the fit sees others than the algebra: within three standard errors.
    assert slope == pytest.approx(exact_slope, abs=3 * 0.5 / np.sqrt(N))
    assert precision == pytest.approx(exact_precision, rel=3 * np.sqrt(2 / N))


def no_curvature(key, trained, fixed, t, w):
    """The loss without its first term, which is all that keeps a density from becoming flat."""
    static, base, _ = fixed
    model = TiltedModel(base, eqx.combine(trained, static))
    return jnp.mean(jax.vmap(lambda t, w: matched(model, t, w, jnp.zeros((1, 1))))(t, w))


def test_without_the_curvature_the_density_goes_flat(pairs):
    _, precision = fit(no_curvature, pairs)
    assert precision < 0.1


def test_slices_in_all_signs_add_up_to_the_trace():
    t, w = jnp.array([0.3]), jnp.array([0.5, -0.2, 1.1])
    settings = ScoreMatching(width=8, depth=2, descent=Descent(iterations=1, chunk=1))
    rows = (jnp.tile(t, (40, 1)), jnp.tile(w, (40, 1)) + jr.normal(jr.key(1), (40, 3)))
    bases = FixedMeasure(jnp.zeros((1, 3)), jnp.full(1, 10.0))
    models, _ = fit_score_matching(jr.key(0), bases, *rows, make_splits(jr.key(2), 40, members=1), settings=settings)
    model = jax.tree.map(lambda leaf: leaf[0], models)
    signs = jnp.array(list(itertools.product([-1.0, 1.0], repeat=3)))
    sliced = jnp.mean(jnp.stack([matched(model, t, w, u[None]) for u in signs]))
    np.testing.assert_allclose(sliced, matched(model, t, w, jnp.eye(3)), rtol=1e-4)
    hessian = jax.hessian(lambda w: model.log_density(t, w))(w)
    score = jax.grad(lambda w: model.log_density(t, w))(w)
    np.testing.assert_allclose(sliced, jnp.trace(hessian) + 0.5 * score @ score, rtol=1e-4)


def always_nan(key, trained, fixed, t, w):
    return jnp.sum(trained) * jnp.nan


def test_a_loss_that_is_never_finite_is_an_error(pairs):
    splits = make_splits(jr.key(2), N, members=1)
    with pytest.raises(FitError, match="never finite"):
        descend(jr.key(0), always_nan, jnp.zeros(1), None, *pairs, splits, settings=Descent(iterations=50))


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="slices >= 1"):
        ScoreMatching(slices=0)
    with pytest.raises(InputError, match="positive iterations"):
        Descent(iterations=0)
