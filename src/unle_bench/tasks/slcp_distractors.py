r"""SLCP hidden among noise: the eight informative data, 92 others that mean nothing, all shuffled.

The noise is a mixture of twenty Student-t laws with two degrees of freedom in 92 dimensions, whose variance is
infinite; its parameters and the order of the hundred data come from one seed.  The posterior is that of `slcp`.
"""

from functools import cache

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle_bench.tasks import slcp
from unle_bench.tasks.task import Task

INFORMATIVE, DISTRACTORS, COMPONENTS = 8, 92, 20
DEGREES = 2.0


@cache
def _noise() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return locations (20, 92) and factors (20, 92, 92) of the noise and the order of x, by the benchmark's seed."""
    generator = np.random.RandomState(42)
    locations = np.stack([15 * generator.normal(size=DISTRACTORS) for _ in range(COMPONENTS)])
    factors = []
    for _ in range(COMPONENTS):
        lower = np.tril(generator.normal(size=(DISTRACTORS, DISTRACTORS)))
        factors.append(3 * (lower + np.diag(np.exp(generator.normal(size=DISTRACTORS)))))
    return locations, np.stack(factors), generator.permutation(INFORMATIVE + DISTRACTORS)


def simulate_rows(theta: Float[np.ndarray, "n 5"], rng: np.random.Generator) -> Float[np.ndarray, "n 100"]:
    """Simulate one x per row of theta."""
    locations, factors, order = _noise()
    n = len(theta)
    component = rng.integers(COMPONENTS, size=n)
    stretch = np.sqrt(DEGREES / rng.chisquare(DEGREES, size=(n, 1))).astype(np.float32)
    normal = stretch * rng.standard_normal((n, DISTRACTORS), dtype=np.float32)
    x = np.empty((n, INFORMATIVE + DISTRACTORS), dtype=np.float32)
    x[:, :INFORMATIVE] = slcp.simulate_rows(theta, rng)
    for k in range(COMPONENTS):
        rows = np.flatnonzero(component == k)
        x[rows, INFORMATIVE:] = (locations[k] + normal[rows] @ factors[k].T.astype(np.float32)).astype(np.float32)
    return x[:, order]


def on_device(key: PRNGKeyArray, theta: Float[Array, " 5"]) -> Float[Array, " 100"]:
    """Simulate one x in JAX."""
    locations, factors, order = _noise()
    key_points, key_component, key_stretch, key_normal = jr.split(key, 4)
    component = jr.randint(key_component, (), 0, COMPONENTS)
    # A chi-squared with two degrees of freedom is exponential with mean two.
    normal = jr.normal(key_normal, (DISTRACTORS,)) / jnp.sqrt(2 * jr.exponential(key_stretch) / DEGREES)
    locations, factors = (jnp.asarray(part, jnp.float32) for part in (locations, factors))
    # All components and then one of them: for many rows a single product, where a factor for each row would be copied.
    noise = (locations + factors @ normal)[component]
    return jnp.concatenate([slcp.on_device(key_points, theta), noise])[order]


def split(x: Float[np.ndarray, " 100"]) -> tuple[Float[np.ndarray, " 8"], Float[np.ndarray, " 92"]]:
    """Return the informative data, in the order of `slcp`, and the distractors."""
    back = np.empty_like(x)
    back[_noise()[2]] = x
    return back[:INFORMATIVE], back[INFORMATIVE:]


def log_likelihood_rows(theta: Float[np.ndarray, "n 5"], x: Float[np.ndarray, " 100"]) -> Float[np.ndarray, " n"]:
    """Return the log density of the informative data; that of the noise does not depend on theta and is left out."""
    return slcp.log_likelihood_rows(theta, split(x)[0])


def draw_posterior(x_o: Float[np.ndarray, " 100"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 5"]:
    """Draw from the posterior given the eight informative data."""
    return slcp.draw_posterior(split(x_o)[0], n, rng)


TASK = Task(
    name="slcp_distractors",
    description="SLCP with its eight data hidden among 92 that mean nothing",
    prior=slcp.TASK.prior,
    names_x=tuple(f"x_{i}" for i in range(1, INFORMATIVE + DISTRACTORS + 1)),
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
)
