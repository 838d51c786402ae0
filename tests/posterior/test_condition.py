"""Some parameters fixed, the others drawn: compared with exact conditional posteriors."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from numpyro.distributions import transforms

from unle.errors import InputError
from unle.posterior import Draws, Posterior, TemperedSmc, WarmChains
from unle.samplers import Sweep
from unle.space import Prior, condition_prior

NAMES = ("a", "b", "c")
COVARIANCE = np.array([[1.0, 0.6, -0.3], [0.6, 0.8, 0.1], [-0.3, 0.1, 0.5]])
ROOT = np.linalg.cholesky(COVARIANCE)
MEAN = np.array([0.5, -0.2, 0.3])
X_O = np.array([1.0, 0.4, -0.5])
FIXED = 0.1  # the value of b
GRID = 161
SAMPLER = TemperedSmc(islands=2, particles=4000, sweep=Sweep(walks=6, langevin=0))  # quickly compiled

UNCORRELATED = Prior.normal(MEAN, np.sqrt(np.diag(COVARIANCE)), NAMES)
PRIORS = {
    "box": Prior.uniform([-0.5, -1.0, -1.5], [1.5, 1.0, 0.5], NAMES),
    "positive and unbounded": Prior(
        [dist.LogNormal(0.0, 0.5), dist.Normal(0.0, 1.0), dist.StudentT(3.0, 0.0, 1.0)], NAMES
    ),
    "correlated": Prior(dist.MultivariateNormal(MEAN, COVARIANCE), NAMES),
    "correlated and transformed": Prior(
        dist.TransformedDistribution(
            dist.Normal(jnp.zeros(3), 1.0).to_event(1),
            [transforms.LowerCholeskyAffine(jnp.asarray(MEAN), jnp.asarray(ROOT)), transforms.ExpTransform()],
        ),
        NAMES,
    ),
}


@pytest.fixture(scope="module")
def model(linear_gaussian):
    matrix = np.array([[1.0, -0.8, 0.0], [0.0, 1.0, -0.8], [0.6, 0.0, -1.0]])
    return type(linear_gaussian)(matrix, np.zeros(3), 0.6 * np.eye(3), np.zeros(3), np.ones(3))


@pytest.fixture(scope="module")
def likelihood(model):
    return model.fitted(np.random.default_rng(0))[1]


def exact(prior, model, *, of_b=FIXED):
    """Return means and standard deviations of a and c given b, from a fine grid; b is integrated over if None."""
    low, high = prior.limits(0.9999)
    axes = [np.linspace(low[i], high[i], GRID) for i in (0, 2)]
    a, c = (part.ravel() for part in np.meshgrid(*axes, indexing="ij"))
    weights = np.zeros(len(a))
    for b in [of_b] if of_b is not None else np.linspace(low[1], high[1], 41):
        theta = np.stack([a, np.full(len(a), b), c], axis=1)
        misfit = (theta @ model.matrix.T - X_O) / 0.6
        weights += np.exp(np.asarray(prior.log_prob(theta), float) - 0.5 * np.sum(misfit**2, axis=1))
    weights /= weights.sum()
    means = np.array([weights @ a, weights @ c])
    return means, np.sqrt([weights @ (a - means[0]) ** 2, weights @ (c - means[1]) ** 2])


def errors(draws, means, sds):
    """Return the largest deviation of means and standard deviations, in standard errors of the draws."""
    values, ess = np.asarray(draws, float), np.asarray(draws.summary()["ess_bulk"])
    off_mean = (values.mean(axis=0) - means) / (sds / np.sqrt(ess))
    off_sd = (values.std(axis=0) / sds - 1) / np.sqrt(1 / ess)  # wider than normal tails need
    return max(np.abs(off_mean).max(), np.abs(off_sd).max())


@pytest.mark.parametrize("kind", PRIORS)
def test_conditional_draws_are_those_of_the_exact_conditional_posterior(kind, model, likelihood):
    prior = PRIORS[kind]
    posterior = Posterior(prior, likelihood, SAMPLER)
    draws = posterior.sample(X_O, 8000, seed=1, condition={"b": FIXED})
    assert draws.names == ("a", "c")
    assert draws.shape == (8000, 2)
    means, sds = exact(prior, model)
    assert errors(draws, means, sds) < 4.5
    # Wrong twins: the marginal posterior, and the condition at another value.
    assert errors(draws, *exact(prior, model, of_b=None)) > 6
    assert errors(draws, *exact(prior, model, of_b=FIXED + 0.4)) > 6
    if kind == "correlated":  # another: the prior with its correlation left out
        assert errors(draws, *exact(UNCORRELATED, model)) > 6


def test_several_observations_and_several_conditions(likelihood, tmp_path):
    posterior = Posterior(
        PRIORS["correlated"], likelihood, TemperedSmc(islands=2, particles=200, sweep=Sweep(walks=1, langevin=0))
    )
    many = posterior.sample_many([X_O, X_O + 1], 200, condition={"a": 0.2, "c": np.float32(0.1)})
    assert [one.names for one in many] == [("b",), ("b",)]
    assert not np.array_equal(many[0], many[1])
    assert Draws.load(many[0].save(tmp_path / "draws.nc")).info["condition"] == pytest.approx({"a": 0.2, "c": 0.1})
    np.testing.assert_array_equal(
        posterior.sample(X_O, 200, condition={}), posterior.sample(X_O, 200)
    )  # nothing is fixed


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        ({"beta": 0.4}, "expected a condition on the parameters a, b, c; got 'beta'"),
        ({"a": 1.8}, r"expected a value of a inside the prior, -0.5 to 1.5, in `condition`; got 1.8"),
        ({"a": "large"}, "expected a number for a in `condition`; got 'large'"),
        ({"a": float("nan")}, "expected a number for a"),
        ({"a": 0, "b": 0, "c": 0}, "at least one parameter that is not fixed; .*; try posterior.log_prob"),
    ],
)
def test_conditions_that_cannot_be_met(likelihood, condition, sentence):
    with pytest.raises(InputError, match=sentence):
        Posterior(PRIORS["box"], likelihood).sample(X_O, 100, condition=condition)


def test_samplers_with_starts_are_refused(likelihood):
    posterior = Posterior(PRIORS["box"], likelihood, WarmChains(chains=4, starts=jnp.zeros((4, 3))))
    with pytest.raises(InputError, match="expected a sampler without `starts` next to `condition`"):
        posterior.sample(X_O, 100, condition={"a": 0.1})


def test_coordinates_cover_the_bounds_of_the_free_parameters():
    prior = condition_prior(PRIORS["box"], {"b": FIXED})
    for u, ends in ((-30.0, [-0.5, -1.5]), (30.0, [1.5, 0.5])):
        theta = np.asarray(prior.constrain(jnp.full(2, u)))
        np.testing.assert_allclose(theta[[0, 2]], ends)
        assert theta[1] == np.float32(FIXED)
