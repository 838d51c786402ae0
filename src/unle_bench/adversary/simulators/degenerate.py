"""Data that say nothing, everything, the same again, or always the same."""

import numpy as np
from jaxtyping import Float

from unle_bench.adversary.exact import ByFactors
from unle_bench.adversary.priors import cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density

NOISE = 0.3
ALMOST_NONE = 1e-3
CONSTANT = 7.0


def copied(theta: Float[np.ndarray, "n dim"], rng: np.random.Generator) -> Float[np.ndarray, "n four"]:
    """Return two readings with a constant and a copy of the first between them."""
    x = theta + NOISE * rng.normal(size=theta.shape)
    return np.stack([x[:, 0], np.full(len(x), CONSTANT), x[:, 0], x[:, 1]], axis=1)


SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "uninformative",
        "Data that do not depend on theta: the posterior is the prior.",
        cube(2),
        lambda theta, rng: rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: np.zeros_like(t)),
    ),
    Adversary(
        "almost_exact",
        "Almost no noise: a posterior a thousand times narrower than the prior.",
        cube(2),
        lambda theta, rng: theta + ALMOST_NONE * rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t, ALMOST_NONE)),
    ),
    Adversary(
        "copied",
        "A coordinate of x that is constant, and one that is a copy.",
        cube(2),
        copied,
        ByFactors(lambda t, i, x: log_normal_density(x[3 * i] - t, NOISE)),
    ),
)
