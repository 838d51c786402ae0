"""Laws that every prior must satisfy, over a registry, and the sentences for what is refused."""

import json
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints, transforms
from scipy import stats

from unle.compiling import keys
from unle.errors import InputError
from unle.space import Prior, unconstrained_draws
from unle.space.bijections import ndtr_below

WEIGHTS = dist.Categorical(jnp.array([0.3, 0.7]))
COVARIANCE = jnp.array([[1.0, 0.4, 0.0], [0.4, 2.0, -0.3], [0.0, -0.3, 0.5]])
CORRELATED = dist.MultivariateNormal(jnp.array([1.0, -2.0, 0.0]), covariance_matrix=COVARIANCE)

# One dimension, with a range of u that holds all but 1e-6 of the mass.
PRIORS_1D = {
    "normal": (lambda: dist.Normal(1.0, 0.5), 12),
    "lognormal": (lambda: dist.LogNormal(-1.0, 0.7), 12),
    "gamma": (lambda: dist.Gamma(0.5, 2.0), 40),
    "half normal": (lambda: dist.HalfNormal(2.0), 20),
    "truncated normal": (lambda: dist.TruncatedNormal(0.5, 1.0, low=-1.0, high=2.0), 12),
    "right-truncated normal": (lambda: dist.TruncatedNormal(0.0, 1.0, high=-1.0), 20),
    "beta with walls": (lambda: dist.Beta(0.5, 0.5), 12),
    "scaled uniform": (lambda: dist.TransformedDistribution(dist.Uniform(0.0, 1.0), SCALE), 12),
    "log-uniform": (lambda: dist.LogUniform(1e-6, 1e3), 12),
    "pareto": (lambda: dist.Pareto(1.0, 3.0), 20),
    "mixture": (lambda: dist.MixtureSameFamily(WEIGHTS, dist.Normal(jnp.array([-2.0, 1.0]), 0.5)), 12),
}
SCALE = transforms.AffineTransform(-1.0, 4.0)
PRIORS = {name: make for name, (make, _) in PRIORS_1D.items()} | {
    "box": lambda: dist.Uniform(jnp.array([-1.0, 10.0]), jnp.array([1.0, 20.0])),
    "multivariate log-normal": lambda: dist.TransformedDistribution(CORRELATED, transforms.ExpTransform()),
    "ordered": lambda: dist.TransformedDistribution(
        dist.Normal(jnp.zeros(3), 1.0).to_event(1), transforms.OrderedTransform()
    ),
    "blocks": lambda: [dist.Uniform(-1.0, 1.0), CORRELATED, dist.LogNormal(jnp.zeros(2), 0.5)],
}
# Compiling takes most of the time here: these only show that their kind of block is understood and described.
MORE = PRIORS | {
    "expanded box": lambda: dist.Uniform(0, 2).expand([3]),
    "multivariate normal": lambda: CORRELATED,
    "student": lambda: dist.StudentT(5.0, 0.0, 1.0),
    "left-truncated normal": lambda: dist.TruncatedNormal(0.0, 1.0, low=1.0),
    "scaled Kumaraswamy": lambda: dist.TransformedDistribution(dist.Kumaraswamy(2.0, 3.0), SCALE),
    "beta": lambda: dist.Beta(jnp.array([2.0, 3.0]), 3.0),
    "mixture of vectors": lambda: dist.MixtureSameFamily(
        WEIGHTS, dist.Normal(jnp.array([[0.0, 0.0], [3.0, 1.0]]), 1.0).to_event(1)
    ),
    "mixture of betas": lambda: dist.MixtureSameFamily(
        WEIGHTS, dist.Beta(jnp.array([2.0, 5.0]), jnp.array([3.0, 1.5]))
    ),
    "mixture of families": lambda: dist.MixtureGeneral(WEIGHTS, [dist.Normal(0.0, 1.0), dist.StudentT(3.0, 1.0, 1.0)]),
}


N = 2_001


@cache
def prior(name):
    return Prior(MORE[name]())


@eqx.filter_jit
def everything(prior, theta, u):
    """All of a prior's one-point functions, in one compilation."""

    def at(theta, u):
        there = prior.constrain(u)
        log_q, gradient = jax.value_and_grad(prior.log_density_unconstrained)(u)
        u_of_theta = prior.unconstrain(theta)
        return {
            "u_of_theta": u_of_theta,
            "round_trip": prior.constrain(u_of_theta),
            "contains": prior.contains(theta),
            "log_p": prior.log_density(theta),
            "there": there,
            "contains_there": prior.contains(there),
            "log_p_there": prior.log_density(there),
            "log_q": log_q,
            "gradient": gradient,
            "jacobian": jax.jacfwd(prior.constrain)(u),
        }

    return jax.vmap(at)(theta, u)


def values_at(p, theta, u):
    return jax.tree.map(np.asarray, everything(p, jnp.asarray(theta), jnp.asarray(u, jnp.float32)))


@cache
def values(name):
    """Draws, and points u along a diagonal that is not symmetric in the coordinates."""
    p = prior(name)
    theta = p.sample(N, seed=1)
    reach = PRIORS_1D[name][1] if name in PRIORS_1D else 12
    u = np.linspace(-reach, reach, N)[:, None] * np.linspace(1, 0.8, p.dim)
    return theta, u, values_at(p, theta, u)


@pytest.mark.parametrize("name", PRIORS)
def test_draws_lie_in_the_support_and_survive_the_round_trip(name):
    theta, _, at = values(name)
    assert at["contains"].all()
    assert np.isfinite(at["log_p"]).all()
    low, high = prior(name).bounds
    assert ((theta >= low) & (theta <= high)).all()
    np.testing.assert_allclose(at["round_trip"], theta, rtol=2e-5, atol=4e-6)


@pytest.mark.parametrize("name", PRIORS)
def test_everything_is_finite_far_out(name):
    _, u, at = values(name)
    assert np.abs(u).max() >= 12
    for quantity in ("there", "log_q", "gradient", "jacobian"):
        assert np.isfinite(at[quantity]).all(), quantity
    assert at["contains_there"].all()


@pytest.mark.parametrize("name", PRIORS)
def test_density_of_u_is_the_change_of_variables(name):
    _, u, at = values(name)
    near = np.abs(u).max(1) <= 3
    log_det = np.linalg.slogdet(at["jacobian"][near].astype(np.float64))[1]
    np.testing.assert_allclose(at["log_q"][near], at["log_p_there"][near] + log_det, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("name", PRIORS_1D)
def test_density_of_u_integrates_to_one_and_is_that_of_the_draws(name):
    _, u, at = values(name)
    mass = np.exp(at["log_q"].astype(np.float64))
    steps = np.diff(u[:, 0]) * (mass[:-1] + mass[1:]) / 2
    assert np.sum(steps) == pytest.approx(1.0, abs=2e-4)
    cdf = np.interp(np.sort(at["u_of_theta"][:, 0]), u[1:, 0], np.cumsum(steps))
    distance = np.max(np.abs(cdf - (np.arange(N) + 0.5) / N))
    assert distance < 1.95 / np.sqrt(N)  # Kolmogorov's 0.1 % point


def test_without_the_log_determinant_the_integral_is_wrong():
    _, u, at = values("lognormal")
    assert abs(np.trapezoid(np.exp(at["log_p_there"].astype(np.float64)), u[:, 0]) - 1) > 0.2


@pytest.mark.parametrize("name", ["box", "log-uniform"])
def test_uniform_is_exactly_standard_normal(name):
    _, u, at = values(name)
    expected = stats.norm.logpdf(u.astype(np.float64)).sum(1)
    np.testing.assert_allclose(at["log_q"], expected, rtol=2e-6)
    np.testing.assert_allclose(at["gradient"], -u, rtol=2e-6)


def test_log_normal_is_exactly_normal():
    _, u, at = values("lognormal")
    np.testing.assert_allclose(at["log_q"], stats.norm.logpdf(u[:, 0], -1.0, 0.7), rtol=2e-6)


def test_walls_are_never_passed():
    p = Prior.uniform([-1.0, 1000.0, 0.0], [3.0, 1001.0, 1e-3])
    low, high = p.bounds
    far = np.array([6.0, 12.0, 50.0, 1e4], np.float32)[:, None] * np.ones(3, np.float32)
    walls = np.stack([low, high])
    at_far = values_at(p, np.tile(walls, (2, 1)), far)
    at_minus_far = values_at(p, np.tile(walls, (2, 1)), -far)
    np.testing.assert_array_equal(at_far["there"], np.tile(high, (4, 1)))
    assert (at_minus_far["there"] >= low).all()
    np.testing.assert_allclose(at_minus_far["there"], np.tile(low, (4, 1)), rtol=1e-6, atol=1e-8)

    assert (np.abs(at_far["u_of_theta"]) < 6).all()
    np.testing.assert_allclose(at_far["round_trip"][:2], walls, rtol=1e-6, atol=1e-6)
    assert np.isfinite(at_far["log_p"]).all()
    beyond = np.stack([np.nextafter(low, -np.inf), np.nextafter(high, np.inf)])
    assert (np.asarray(p.log_prob(beyond)) == -np.inf).all()


def test_infinite_density_on_a_wall_stays_finite():
    theta, u, at = values("beta with walls")
    assert np.isfinite(prior("beta with walls").log_prob([[0.0], [1.0]])).all()
    exact = stats.norm.logpdf(u) - 0.5 * (stats.norm.logsf(u) + stats.norm.logcdf(u)) - np.log(np.pi)
    np.testing.assert_allclose(at["log_q"], exact[:, 0], rtol=1e-5, atol=1e-5)


def test_log_prob_agrees_with_scipy_and_is_minus_infinity_outside():
    p = Prior([dist.Uniform(0.0, 2.0), dist.Gamma(3.0, 2.0)])
    inside = np.array([[1.0, 0.5], [0.1, 4.0]])
    expected = -np.log(2) + stats.gamma.logpdf(inside[:, 1], 3, scale=0.5)
    np.testing.assert_allclose(p.log_prob(inside), expected, rtol=1e-5)
    assert p.log_prob(inside[0]).shape == ()
    outside = np.array([[-0.1, 1.0], [2.1, 1.0], [1.0, -1.0], [1.0, 0.0], [np.nan, 1.0], [1.0, np.inf]])
    assert (np.asarray(p.log_prob(outside)) == -np.inf).all()
    gradients = jax.jit(jax.vmap(jax.grad(p.log_density)))(jnp.asarray(outside[:4], jnp.float32))
    assert np.isfinite(gradients).all()


def test_sample_is_seeded_row_by_row():
    p = prior("lognormal")
    rows = p.sample(20, seed=5)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:7], p.sample(7, seed=5))
    assert not np.isin(p.sample(20, seed=6), rows).any()
    assert len(np.unique(rows)) == rows.size


def test_unconstrained_draws_are_those_of_the_prior_and_each_set_is_its_own():
    prior = Prior.uniform([-1.0, 0.0], [1.0, 10.0])
    u = unconstrained_draws(prior, keys(jr.key(3), 3), 2000)
    np.testing.assert_array_equal(u[:2], unconstrained_draws(prior, keys(jr.key(3), 2), 2000))
    assert not np.array_equal(u[0], u[1])
    assert stats.kstest(np.asarray(u)[0].ravel(), "norm").pvalue > 1e-3  # uniform draws are normal in these coordinates
    assert stats.kstest(1.2 * np.asarray(u)[0].ravel(), "norm").pvalue < 1e-3


def test_many_draws_at_once_are_those_of_the_prior_too():
    p = prior("blocks")
    many = np.asarray(jax.jit(lambda key: p.draws(key, N))(jr.key(1)))
    single = values("blocks")[0]
    assert many.shape == (N, p.dim)
    for i in range(p.dim):
        assert stats.ks_2samp(many[:, i], single[:, i]).pvalue > 1e-4
    assert stats.ks_2samp(many[:, 1], 1.2 * single[:, 1]).pvalue < 1e-4
    r = np.corrcoef(many.T)
    assert abs(r[1, 2] - 0.4 / np.sqrt(2)) < 4 / np.sqrt(N)
    assert abs(r[0, 4]) < 4 / np.sqrt(N)  # every block has random numbers of its own


def test_the_quick_normal_distribution_function_is_precise_to_the_last_digits():
    u = -np.linspace(0.0, 12.0, 100_001).astype(np.float32)
    exact = stats.norm.cdf(u.astype(float))
    # The exponent u^2 / 2 has rounding errors: a few of the last digits of a number of that size.
    allowed = 5e-7 + 2e-7 * u.astype(float) ** 2
    assert (np.abs(np.asarray(ndtr_below(jnp.asarray(u)), float) / exact - 1) < allowed).all()
    assert not (np.abs(np.asarray(ndtr_below(jnp.asarray(u * 1.00001)), float) / exact - 1) < allowed).all()


def test_blocks_keep_their_order_and_correlation():
    p = prior("blocks")
    assert p.dim == 6
    assert p.names == tuple(f"theta_{i}" for i in range(1, 7))
    low, high = p.bounds
    np.testing.assert_array_equal(low, [-1, -np.inf, -np.inf, -np.inf, 0, 0])
    np.testing.assert_array_equal(high, [1, *[np.inf] * 5])
    draws = values("blocks")[0]
    # Correlation of 1 and 2 is 0.4 / sqrt(2); its standard error is (1 - r^2) / sqrt(n); z = 4.
    r = np.corrcoef(draws[:, 1], draws[:, 2])[0, 1]
    assert abs(r - 0.4 / np.sqrt(2)) < 4 * (1 - 0.08) / np.sqrt(N)
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 4 / np.sqrt(N)


def test_bounds_see_through_transforms():
    low, high = prior("scaled uniform").bounds
    assert (low, high) == (-1.0, 3.0)


def test_priors_may_be_parts_of_a_prior():
    prior = Prior({"rate": Prior.lognormal(0.0, 1.0), "place": Prior.uniform([0.0, 0.0], [1.0, 2.0])})
    assert prior.names == ("rate", "place_1", "place_2")
    assert prior.bounds[1].tolist() == [np.inf, 1.0, 2.0]


def test_convenient_constructors():
    assert Prior.uniform(-1, [1, 2], names=["a", "b"]).names == ("a", "b")
    theta = np.array([0.5, 2.0])
    np.testing.assert_allclose(
        Prior.normal([0, 1], 2.0).log_prob(theta), stats.norm.logpdf(theta, [0, 1], 2).sum(), rtol=1e-5
    )
    np.testing.assert_allclose(
        Prior.lognormal(0.3, [0.5, 1.0]).log_prob(theta),
        stats.lognorm.logpdf(theta, [0.5, 1.0], scale=np.exp(0.3)).sum(),
        rtol=1e-5,
    )


def test_a_prior_is_a_pytree_and_is_not_traced_again():
    traces = []

    @eqx.filter_jit
    def log_q(prior, u):
        traces.append(1)
        return prior.log_density_unconstrained(u)

    for width in (1.0, 2.0):
        p = Prior.uniform([0.0, 0.0], [width, width])
        assert float(log_q(p, jnp.array([0.3, -0.2]))) == pytest.approx(stats.norm.logpdf([0.3, -0.2]).sum(), rel=1e-6)
    assert len(traces) == 1


@pytest.mark.usefixtures("strict_ranks")
@pytest.mark.parametrize("name", MORE)
def test_strict_about_ranks(name):
    p = prior(name)
    u = jax.ShapeDtypeStruct((p.dim,), jnp.float32)
    for function in (p.log_density, p.log_density_unconstrained):
        jax.eval_shape(jax.grad(function), u)
    jax.eval_shape(p.draw, jr.key(0))


@pytest.mark.usefixtures("strict_keys")
def test_strict_about_keys():
    draw = Prior([dist.Uniform(0.0, 1.0), dist.Normal(jnp.zeros(2), 1.0)]).draw(jr.key(0))
    assert draw.shape == (3,)


class Homemade(dist.Normal):
    """Not one of numpyro's."""


@pytest.mark.parametrize("name", MORE)
def test_description_survives_json(name):
    p = prior(name)
    again = Prior.from_spec(json.loads(json.dumps(p.spec())))
    assert again.names == p.names
    assert jax.tree.structure(again) == jax.tree.structure(p)
    for ours, theirs in zip(jax.tree.leaves(p), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("distribution", "sentence"),
    [
        (Homemade(0.0, 1.0), "cannot save a prior that holds a Homemade"),
        (
            dist.GaussianCopula(dist.Normal(jnp.ones(2), 1.0), correlation_matrix=jnp.eye(2)),
            "cannot save a prior with GaussianCopula",
        ),
        (
            dist.MixtureGeneral(WEIGHTS, [dist.Normal(0, 1), dist.Normal(1, 1)], support=constraints.real),
            "MixtureGeneral",
        ),
    ],
)
def test_what_cannot_be_described_is_named(distribution, sentence):
    with pytest.raises(InputError, match=sentence):
        Prior(distribution).spec()


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"names": ["a"], "blocks": [{"family": "system", "arguments": {}}]},
        {"names": ["a"], "blocks": [{"family": "biject_to", "arguments": {}}]},
        {"names": ["a"], "blocks": [{"family": "Normal", "arguments": {"centre": 0.0}}]},
        {"names": ["a"], "blocks": [{"transform": "ExpTransform", "arguments": {}}]},
        {"names": ["a"], "blocks": [3.0]},
    ],
)
def test_a_damaged_description_is_refused(spec):
    with pytest.raises(InputError, match="expected the description of a"):
        Prior.from_spec(spec)


REFUSED = {
    "discrete distribution Poisson": lambda: Prior(dist.Poisson(3.0)),
    "discrete distribution CategoricalProbs": lambda: Prior([dist.Normal(0, 1), dist.Categorical(jnp.ones(2) / 2)]),
    "got Delta, which has none": lambda: Prior(dist.Delta(1.0)),
    "got ImproperUniform, which has none": lambda: Prior(dist.ImproperUniform(constraints.real, (), ())),
    "got HurdleGamma, which has none": lambda: Prior(dist.HurdleGamma(0.3, 1.0, 1.0)),
    "got low = 2 and high = 1 in coordinate 1": lambda: Prior.uniform([0, 2], [1, 1]),
    "got low = 1 and high = 1 in coordinate 0": lambda: Prior(dist.Uniform(1.0, 1.0)),
    "expected finite numbers in low": lambda: Prior.uniform([np.nan], [1]),
    "finite parameters of Uniform; got high = inf": lambda: Prior(dist.Uniform(0.0, np.inf)),
    "finite parameters of Normal; got loc = nan": lambda: Prior(dist.Normal(np.nan, 1.0, validate_args=False)),
    "numpyro says: Normal .* invalid scale": lambda: Prior(dist.Normal(0.0, -1.0, validate_args=False)),
    "expected sd > 0": lambda: Prior.normal([0, 0], [1, 0]),
    r"got shapes low \(2,\) and high \(3,\)": lambda: Prior.uniform([0, 0], [1, 1, 1]),
    "expected 2 names, one per parameter; got 1: a": lambda: Prior.uniform([0, 0], [1, 1], names=["a"]),
    "expected distinct names; got a/b, a|b": lambda: Prior.uniform([0, 0], [1, 1], names=["a/b", "a|b"]),
    '"draw", the axes of draws; got draw': lambda: Prior.uniform([0, 0], [1, 1], names=["a", "draw"]),
    "expected distinct names; got a more than once": lambda: Prior.uniform([0, 0], [1, 1], names=["a", "a"]),
    "expected names that are non-empty": lambda: Prior.uniform([0, 0], [1, 1], names=["a", ""]),
    "expected at least one distribution": lambda: Prior([]),
    r"expected at least one parameter; got Normal with draws of shape \(0,\)": lambda: Prior(
        dist.Normal(jnp.zeros(0), 1.0)
    ),
    r"expected draws of shape \(\) or \(k,\); got \(2, 3\)": lambda: Prior(dist.Normal(jnp.zeros((2, 3)), 1.0)),
    r"got \(3, 3\) from LKJ; for a matrix .* partial correlations": lambda: Prior({"r": dist.LKJ(3)}),
    "got loc = 'm'; a parameter of a prior cannot": lambda: Prior({"m": dist.Normal(0, 1), "x": dist.Normal("m", 1)}),
    "got a function; a parameter of a prior cannot": lambda: Prior({"x": lambda mean: dist.Normal(mean, 1.0)}),
    "numbers in scipy.stats.norm; a parameter of": lambda: Prior({"x": stats.norm(stats.norm(0, 1), 1)}),
    "no coordinates of its own dimension": lambda: Prior(dist.Dirichlet(jnp.ones(3))),
    "components share one support": lambda: Prior(
        dist.MixtureGeneral(WEIGHTS, [dist.Uniform(0, 1), dist.Uniform(2, 3)])
    ),
    "expected a distribution of numpyro, scipy.stats or torch; got a float": lambda: Prior(3.0),
    r"expected theta of shape \(1,\) or \(n, 1\); got \(2,\)": lambda: prior("normal").log_prob([1.0, 2.0]),
    "expected a positive number of draws": lambda: prior("normal").sample(0),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused_in_one_sentence(sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        REFUSED[sentence]()
    assert str(caught.value).endswith(".")


def test_a_distribution_without_density_is_refused():
    class Sampler(dist.Distribution):
        support = constraints.real

        def sample(self, key, sample_shape=()):
            return jr.normal(key, sample_shape)

    with pytest.raises(InputError, match="Sampler lacks one of them"):
        Prior(Sampler())


def test_a_draw_does_not_depend_on_how_many_are_made():
    """Rejection samplers round otherwise in loops of other lengths: rows must be drawn in blocks of one length."""
    prior = Prior({"p": dist.Beta(4.0, 6.0), "rate": dist.Gamma(2.0), "x": dist.Normal(0.0, 1.0)})
    longest = prior.sample(3000, seed=3)
    for n in (1, 1000, 1025, 2000):
        assert np.array_equal(prior.sample(n, seed=3), longest[:n])
