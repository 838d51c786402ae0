"""Laws of every base density: coordinates, change of variables, normalisation, draws."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from unle.models import (
    Autoregressive,
    Chained,
    ConditionalGaussian,
    FixedMeasure,
    GaussianProcess,
    Kernel,
    Mlp,
    NeuralCorrection,
    NoCorrection,
    Repeated,
    TwoViews,
    in_two_views,
    length_seen,
)
from unle.space.marginals import Marginals
from unle.space.standardise import Standardiser

DIM, DATA, DRAWS = 3, 2, 20_000
INTERCEPT = np.array([0.4, -0.3])
SLOPE = np.array([[0.5, 0.1], [-0.2, 0.7], [0.0, 0.3]])
WHITENER = np.array([[1.6, 0.0], [-0.7, 0.9]])
RNG = np.random.default_rng(0)
T, V = (jnp.asarray(RNG.normal(size=(5, dim)), jnp.float32) for dim in (DIM, DATA))


def gaussian(output_scale):
    # Weights from numpy: a generator compiled for each small matrix would take most of the time of these tests.
    shapes = jax.eval_shape(lambda: Mlp(jr.key(0), DIM, NeuralCorrection.outputs(DATA), width=4, depth=1))
    rng = np.random.default_rng(1)
    net = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), shapes)
    net = eqx.tree_at(lambda n: (n.weights[-1], n.biases[-1]), net, replace_fn=lambda leaf: 0.25 * output_scale * leaf)
    return ConditionalGaussian(
        *(jnp.asarray(a, jnp.float32) for a in (INTERCEPT, SLOPE, WHITENER)), NeuralCorrection(net)
    )


def process(chained):
    rng = np.random.default_rng(2)
    random = lambda *shape: jnp.asarray(rng.uniform(0.1, 0.4, size=shape), jnp.float32)  # noqa: E731
    rotation = jnp.asarray(np.linalg.qr(rng.normal(size=(DATA, DATA)))[0], jnp.float32)
    kernel, whitener = Kernel(jnp.ones(DIM), random(6, DIM), random(6, 4)), jnp.asarray([[1.1, 0.0], [0.2, 0.9]])
    parts = rotation, random(4, DATA), random(4, DATA), random(DATA), random(DATA), whitener
    base, correction = gaussian(1.0), GaussianProcess(kernel, *parts)
    return eqx.tree_at(lambda b: b.correction, base, Chained(correction, base.correction) if chained else correction)


def autoregressive(standardiser=None):
    rng = np.random.default_rng(3)
    inputs, outputs = Autoregressive.sizes(DIM)
    shapes = jax.eval_shape(lambda: Mlp(jr.key(0), inputs, outputs, width=8, depth=1))
    net = jax.tree.map(lambda leaf: jnp.asarray(0.2 * rng.normal(size=leaf.shape), leaf.dtype), shapes)
    linear = (jnp.asarray(a, jnp.float32) for a in (INTERCEPT, SLOPE, [0.8, 1.3]))
    return Autoregressive(*linear, net, jnp.ones(()), standardiser)


def bent_standardiser():
    marginals = Marginals(jnp.array([2, 0]), jnp.zeros(2), jnp.ones(2), jnp.ones(2), jnp.ones(2))  # asinh, identity
    return Standardiser(marginals, jnp.array([0.3, -0.2]), jnp.array([0.7, 1.1]))


# name -> constructor of a base of data of length 2; a new kind of base is one more line
BASES = {
    "fixed measure": lambda: FixedMeasure(jnp.zeros(DATA), jnp.asarray(1.7)),
    "linear Gaussian": lambda: gaussian(0.0),
    "conditional Gaussian": lambda: gaussian(1.0),
    "Gaussian process": lambda: process(chained=False),
    "network on a process": lambda: process(chained=True),
    "two views": lambda: TwoViews(gaussian(1.0)),
    "autoregressive": autoregressive,
    "autoregressive, transforms undone": lambda: autoregressive(bent_standardiser()),
}
GAUSSIANS = ["linear Gaussian", "conditional Gaussian", "Gaussian process", "network on a process"]


@eqx.filter_jit
def evaluate(base):
    """Evaluate all that the laws are about, compiled once per kind of base."""
    rows = lambda function, *values: jax.vmap(function)(*values)  # noqa: E731
    w = rows(base.unwhiten, T, V)
    jacobian = rows(jax.jacfwd(base.whiten, argnums=1), T, w)
    draws = base.draws_whitened(jr.key(4), DRAWS)
    grid = jnp.linspace(-12.0, 12.0, 481)
    points = jnp.stack(jnp.meshgrid(grid, grid), -1).reshape(-1, DATA)
    density = rows(lambda point: jnp.exp(base.log_density(T[0], point)), points)
    return {
        "w": w,
        "centre": rows(base.unwhiten, T, jnp.zeros_like(V)),
        "root": rows(jax.jacfwd(base.unwhiten, argnums=1), T, V),
        "whitened": rows(base.whiten, T, w),
        "features": rows(base.features, T, w),
        "features_whitened": rows(base.features_whitened, T, V),
        "log_density": rows(base.log_density, T, w),
        "by_jacobian": rows(base.log_density_whitened, V) + jnp.linalg.slogdet(jacobian)[1],
        "integral": jnp.sum(density) * (grid[1] - grid[0]) ** 2,
        "draws": draws,
        "slopes": [rows(jax.grad(base.log_density_whitened), moved) for moved in (draws, 1.1 * draws, draws + 0.1)],
    }


@cache
def seen_of(name):
    return evaluate(BASES[name]())


@pytest.fixture(params=BASES)
def seen(request):
    return seen_of(request.param)


def test_whitening_is_inverted(seen):
    np.testing.assert_allclose(seen["whitened"], V, atol=1e-5)


def test_features_need_no_detour(seen):
    np.testing.assert_allclose(seen["features_whitened"], seen["features"], atol=1e-5)


def test_density_is_that_of_the_coordinates_times_the_jacobian(seen):
    np.testing.assert_allclose(seen["log_density"], seen["by_jacobian"], atol=1e-4)


def test_density_integrates_to_one(seen):
    assert abs(seen["integral"] - 1) < 1e-3


def stein_scores(v, slopes):
    """Return z-scores of E[d_j log q(v)] = 0 and E[v_i d_j log q(v)] = -delta_ij, which hold for draws of q."""
    v, slopes = np.asarray(v, float), np.asarray(slopes, float)
    products = v[:, :, None] * slopes[:, None, :] + np.eye(DATA)
    values = np.concatenate([slopes, products.reshape(DRAWS, -1)], axis=1)
    return np.abs(values.mean(0) / (values.std(0) / np.sqrt(DRAWS)))


def test_draws_have_the_density(seen):
    draws, (right, wide, shifted) = seen["draws"], seen["slopes"]
    assert stein_scores(draws, right).max() < 4  # six comparisons, false alarms 4e-4
    assert stein_scores(1.1 * draws, wide).max() > 8  # draws of another density are found out
    assert stein_scores(draws + 0.1, shifted).max() > 8


@pytest.mark.parametrize("name", GAUSSIANS)
def test_density_is_the_multivariate_normal_of_scipy(name):
    seen = seen_of(name)
    parts = (np.asarray(seen[part], float) for part in ("w", "centre", "root"))
    exact = [multivariate_normal.logpdf(w, centre, root @ root.T) for w, centre, root in zip(*parts, strict=True)]
    np.testing.assert_allclose(seen["log_density"], exact, atol=1e-4)


def test_a_zero_network_is_the_linear_regression():
    seen = seen_of("linear Gaussian")
    root, means = np.linalg.inv(WHITENER), INTERCEPT + np.asarray(T, float) @ SLOPE
    exact = [multivariate_normal.logpdf(w, m, root @ root.T) for w, m in zip(seen["w"], means, strict=True)]
    np.testing.assert_allclose(seen["log_density"], exact, atol=1e-4)
    other = np.asarray(seen_of("conditional Gaussian")["log_density"])
    assert np.abs(other - exact).max() > 0.1  # a network does make a difference


def test_a_network_that_ran_away_still_gives_finite_numbers():
    base = eqx.tree_at(lambda b: b.correction.net.biases[-1], gaussian(1.0), jnp.full(5, 1e4))
    value, slope = eqx.filter_jit(eqx.filter_value_and_grad(lambda base: base.log_density(T[0], V[0])))(base)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def test_two_views_are_both_residuals_and_their_distance():
    base = gaussian(1.0)
    r, v = base.features(T[0], V[0]), base.whiten(T[0], V[0])
    expected = jnp.concatenate([r, v, jnp.sum(v**2)[None]])
    np.testing.assert_array_equal(TwoViews(base).features(T[0], V[0]), expected)
    assert not np.allclose(r, v)


@pytest.mark.parametrize(
    ("base", "seen"),
    [
        (gaussian(1.0), 2 * DATA + 1),
        (eqx.tree_at(lambda b: b.correction, gaussian(1.0), NoCorrection()), DATA + 1),  # r is v
        (BASES["fixed measure"](), DATA),  # it is no base whose distances mean anything
        (Repeated(gaussian(1.0), ((0, 2), (1, 3))), 4 * DATA + 1),
        (Repeated(eqx.tree_at(lambda b: b.correction, gaussian(1.0), NoCorrection()), ((0, 2), (1, 3))), 2 * DATA + 1),
    ],
)
def test_a_second_view_is_given_where_it_differs(base, seen):
    wide = in_two_views(base)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), wide)
    data = 2 * DATA if isinstance(base, Repeated) else DATA
    assert length_seen(stacked, DIM, data) == seen
    assert wide.features(T[0], jnp.ones(data)).shape == (seen,)
