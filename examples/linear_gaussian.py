"""A complete method in one file: a Gaussian likelihood whose mean is a linear function of theta, by least squares.

    w | t  ~  N(b + A' t, S),        t and w the standardised theta and x (see docs/glossary.md)

A method needs two things: a likelihood, which says how well one theta explains one x, and `fit`, which makes it from
simulations.  Prior, sampling, checks and files come from the library.  The last line registers it for the benchmark.

    python examples/linear_gaussian.py
    unle bench --with examples/linear_gaussian.py --tasks two_moons --methods linear_gaussian,nle
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

import unle
from unle.methods import AbstractMethod, standardised_pairs
from unle.models import TractableLikelihood
from unle.posterior import AbstractPosteriorSampler
from unle.space import ThetaSpace, XSpace
from unle.store.storable_classes import storable
from unle_bench.methods import Amortised


@storable  # files may hold this class; not needed for one within `unle.models`
class LinearGaussian(TractableLikelihood):
    """N(b + A' t, S), for one theta and one x; the library vectorises.

    Args:
        theta_space: theta to t.
        x_space: x to w.
        intercept: b.
        slope: A.
        whitener: inverse of the lower triangular factor of S.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    intercept: Float[Array, " data"]
    slope: Float[Array, "dim data"]
    whitener: Float[Array, "data data"]

    def space_of_x(self):
        """Return the standardisation of x, which the checks ask for."""
        return self.x_space

    def prepare(self, x):
        """Return w: work on x alone is done once, not for every theta."""
        return self.x_space.forward(x)

    def log_likelihood(self, theta, w):
        """Return the log-density up to a constant: S does not depend on theta, so its determinant may be left out."""
        v = self.whitener @ (w - self.intercept - self.theta_space.forward(theta) @ self.slope)
        return -0.5 * v @ v


class LinearGaussianNLE(AbstractMethod):
    """Fit a `LinearGaussian` to prior simulations.

    Args:
        prior: of theta.
        sampler: how the posterior is sampled.
    """

    prior: unle.Prior
    sampler: AbstractPosteriorSampler = unle.TemperedSmc()

    def fit(self, simulations, *, seed: int = 0, on_metrics=lambda **record: None) -> unle.Posterior:
        """Return the posterior, for any observation.

        Args:
            simulations: from `unle.simulate`, or a pair (theta, x).
            seed: fixes the fit.
            on_metrics: called with keyword arguments: what is worth a line in the run's record.
        """
        key_rows, key_validity = jr.split(jr.key(seed))
        pairs = standardised_pairs(key_rows, simulations, self.prior, members=1)  # checked, sorted, valid rows only
        t, w = np.asarray(pairs.rows.t, float), np.asarray(pairs.rows.w, float)
        inputs = np.column_stack([np.ones(len(t)), t])
        coefficients, *_ = np.linalg.lstsq(inputs, w)
        residuals = w - inputs @ coefficients
        factor = np.linalg.cholesky(residuals.T @ residuals / len(w))
        arrays = (coefficients[0], coefficients[1:], np.linalg.inv(factor))
        likelihood = LinearGaussian(pairs.theta_space, pairs.x_space, *(jnp.asarray(a, jnp.float32) for a in arrays))
        on_metrics(stage="fitted", residual_sd=float(residuals.std()))
        # With failed simulations, the likelihood of an observation has the factor P(valid | theta).
        return unle.Posterior(self.prior, pairs.given_valid(key_validity, likelihood, on_metrics), self.sampler)


METHODS = {"linear_gaussian": Amortised(lambda task: LinearGaussianNLE(task.prior))}


def main():
    task = unle.task("gaussian_linear_uniform")
    simulations = unle.simulate(task.simulator, task.prior, 1_000, seed=0)
    draws = np.asarray(
        LinearGaussianNLE(task.prior).fit(simulations, seed=1).sample(task.observation(1), 4_000, seed=2)
    )
    exact = task.reference(task.observation(1), 4_000)
    print("mean   ", np.round(draws.mean(axis=0)[:3], 2), " exact ", np.round(exact.mean(axis=0)[:3], 2))
    print("sd     ", np.round(draws.std(axis=0)[:3], 2), " exact ", np.round(exact.std(axis=0)[:3], 2))


if __name__ == "__main__":
    main()
