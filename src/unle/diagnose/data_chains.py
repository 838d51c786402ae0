"""Do long chains that start from data stay among the data?

An energy trained against particles can be right where the particles go and wrong elsewhere: chains started at data then
drift off to places that the model likes and the simulator never visits.  Start chains of the learned joint model
p(theta) q(x | theta) at one half of the simulated pairs, run them for long, and compare where they end with the other
half by the energy distance.

A pass counts only as far as the chains moved: the check reports how far that was.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from unle.diagnose.distances import energy_test
from unle.diagnose.likelihoods import without_cells
from unle.diagnose.record import Check, CheckKind, NotApplicable, at_most, verdict_of
from unle.errors import InputError
from unle.models import TractableLikelihood
from unle.posterior import Posterior
from unle.samplers import Mala, SharedStepSize, fit_whitening, run_chains
from unle.space import Prior

SHORT_RUN = CheckKind("short_run", "Long chains from data", "Does the learned model keep data where they are?")
CHAINS = 300
STEPS = 400
FEWEST_PAIRS = 100  # pairs
ENOUGH_MOVED = 0.05  # mean squared way of the chains, as a share of that between two random pairs
MATERIAL = 0.01  # energy distance in whitened coordinates that is worth a word


def short_run(
    posterior: Posterior, theta: Any, x: Any, *, seed: int = 0, chains: int = CHAINS, steps: int = STEPS
) -> Check:
    """Run chains of the joint model from data.

    Args:
        posterior: fitted.
        theta: parameters of simulated pairs.
        x: their data.
        seed: fixes the result.
        chains: at most so many, and as many pairs to compare with.
        steps: of each chain.
    """
    if not isinstance(posterior.likelihood, TractableLikelihood):
        raise NotApplicable("the likelihood has no density for chains to follow.")
    n = min(chains, len(theta) // 2)
    if n < FEWEST_PAIRS // 2:
        raise InputError(f"expected at least {FEWEST_PAIRS} simulated pairs; got {len(theta)}.")
    x = posterior.summarise(np.asarray(x))
    order = np.random.default_rng([seed, 404]).permutation(len(theta))
    joint = _joint(posterior, jnp.asarray(theta, jnp.float32), jnp.asarray(x, jnp.float32))
    starts, others = joint[order[:n]], joint[order[n : 2 * n]]
    points = without_cells(posterior.likelihood)
    ends = np.asarray(_run(jr.key(seed), posterior.prior, points, starts, joint[order], steps), float)
    return compare_ends(np.asarray(starts, float), ends, np.asarray(others, float), steps=steps, seed=seed)


def compare_ends(
    starts: Float[np.ndarray, "n d"],
    ends: Float[np.ndarray, "n d"],
    others: Float[np.ndarray, "m d"],
    *,
    steps: int,
    seed: int = 0,
) -> Check:
    """Compare where chains ended with data that they did not start from."""
    scale = np.concatenate([starts, others]).std(axis=0) + 1e-12
    starts, ends, others = starts / scale, ends / scale, others / scale
    ends = np.where(np.isfinite(ends), ends, 1e3)  # a chain that is lost is far away
    moved = float(np.median(np.mean((ends - starts) ** 2, axis=1)) / 2)
    test = energy_test(ends, others, seed=seed)
    verdict = verdict_of(test.p_value)
    if verdict == "bad" and test.distance < MATERIAL:
        verdict = "doubtful"
    if verdict == "good" and moved < ENOUGH_MOVED:
        verdict = at_most(verdict, "doubtful")
        advice = "The chains hardly moved, so that their staying means little."
    elif verdict == "good":
        advice = "Chains of the learned model stay among the simulations."
    else:
        advice = "Chains drift away from the simulations: the model has mass where there are no data; simulate more."
    numbers = {"p": test.p_value, "energy_distance": test.distance, "moved": moved, "steps": steps}
    return SHORT_RUN.result(verdict, numbers, advice, {"ends": ends * scale, "others": others * scale})


@eqx.filter_jit
def _joint(posterior: Posterior, theta: Array, x: Array) -> Float[Array, "n position"]:
    u = jax.vmap(posterior.prior.unconstrain)(theta)
    return jnp.concatenate([u, jax.vmap(posterior.likelihood.coordinates)(x)], axis=1)


@eqx.filter_jit
def _run(
    key, prior: Prior, likelihood: TractableLikelihood, starts: Array, everything: Array, steps: int
) -> Float[Array, "n position"]:
    dim = prior.dim
    whitening = fit_whitening(everything)

    def log_density(z):
        position = whitening.colour(z)
        u, w = position[:dim], position[dim:]
        return prior.log_density_unconstrained(u) + likelihood.log_likelihood(prior.constrain(u), w)

    run = run_chains(
        key,
        jax.vmap(whitening.whiten)(starts),
        log_density,
        steps=steps,
        kernel=Mala(),
        step_size=SharedStepSize(),
    )
    return jax.vmap(whitening.colour)(run.positions)
