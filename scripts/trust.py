"""Can the checks be trusted?  Each on a model made right and on models made wrong, over many seeds.

    python scripts/trust.py --seeds 100

Posteriors are exact by construction (a normal mean with a normal prior, or two modes by a sign that the data do not
show), so that nothing is fitted and a wrong model is wrong in one known way.  The table says how often each check
called the right model good and each wrong one bad, or at least not good.
"""

import argparse
import time
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unle.diagnose import (
    Calibration,
    Check,
    calibrate_around,
    certificate,
    coverage,
    ensemble_agreement,
    grid_agreement,
    information,
    inner_mixing,
    learned_normaliser,
    local_c2st,
    lost_rounds,
    outlier,
    posterior_sbc,
    predictive,
    sampler_health,
    sbc,
    tail_rank,
    tarp,
    training_health,
    validity_calibration,
    z_uniformity,
)
from unle.diagnose.calibration import nearest_rows
from unle.diagnose.calibration_checks import NEAREST
from unle.diagnose.data_chains import compare_ends
from unle.diagnose.likelihoods import log_likelihood_pairs, log_likelihood_table
from unle.diagnose.normaliser import normaliser
from unle.diagnose.predictive_checks import Replicas
from unle.models import AbstractEnergy, Consensus, EnergyModel, Ensemble, FixedMeasure, TractableLikelihood
from unle.posterior import Draws, Posterior
from unle.space import Prior, XSpace, fit_theta_space, fit_x_space
from unle.train.validity_fit import group_calibration

NOISE = 0.5  # of the data; the prior is standard normal in both parameters
POSTERIORS, DRAWS = 300, 500
VARIANCE = 1 / (1 + 1 / NOISE**2)
SHRINK = VARIANCE / NOISE**2  # posterior mean = SHRINK x


def posterior(x: np.ndarray, kind: str) -> tuple[np.ndarray, float]:
    """Return mean and sd that a model of this kind claims."""
    sd = np.sqrt(VARIANCE)
    if kind == "the prior":  # nothing was learned
        return 0.0 * x, 1.0
    scale = {"too narrow": 0.6, "too wide": 1.6}.get(kind, 1.0)
    return SHRINK * x + (sd if kind == "shifted" else 0.0), scale * sd


def claimed(x: np.ndarray, kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n times from the claimed posterior of every row of x."""
    mean, sd = posterior(x, kind)
    draws = mean[:, None] + sd * rng.normal(size=(len(x), n, x.shape[1]))
    if kind.startswith("two modes"):  # theta_1 is known up to its sign
        draws[..., 0] = np.abs(draws[..., 0]) * rng.choice([-1, 1], size=draws.shape[:2])
    if kind == "a mode lost":
        draws[..., 0] = np.abs(draws[..., 0])
    return draws


def log_density(theta: np.ndarray, x: np.ndarray, kind: str) -> np.ndarray:
    """Return the claimed log-density; the folded one for two modes."""
    mean, sd = posterior(x, kind)
    first = -0.5 * ((theta - mean) / sd) ** 2
    if kind in ("two modes", "a mode lost"):
        mirrored = -0.5 * ((theta + mean) / sd) ** 2
        first[..., 0] = np.logaddexp(first[..., 0], mirrored[..., 0])
    if kind == "a mode lost":
        first[..., 0] = np.where(theta[..., 0] > 0, first[..., 0], -1e3 + 0 * theta[..., 0])
    return first.sum(axis=-1)


def calibration(seed: int, kind: str) -> Calibration:
    """Return posteriors with known truths."""
    rng = np.random.default_rng([seed, 1])
    theta = rng.normal(size=(POSTERIORS, 2))
    x = theta + NOISE * rng.normal(size=theta.shape)
    if kind in ("two modes", "a mode lost"):
        theta[:, 0] *= rng.choice([-1, 1], POSTERIORS)
    draws = claimed(x, kind, DRAWS, rng)
    heights, height = log_density(draws, x[:, None], kind), log_density(theta, x, kind)
    return Calibration.of_draws(theta, x, draws, heights=heights, true_height=height, seed=seed)


def local(seed: int, kind: str) -> Check:
    """Run the local test at one observation."""
    x_o = np.array([0.8, -0.5])
    draws = claimed(x_o[None], kind, 1000, np.random.default_rng([seed, 2]))[0]
    return local_c2st(calibration(seed, kind), draws, x_o, seed=seed)


def pairs_of(draws: np.ndarray, rng: np.random.Generator, n: int = 250) -> Replicas:
    """Simulate twice at n of the draws."""
    index = np.linspace(0, len(draws) - 1, n).astype(int)
    theta = draws[index]
    x = theta[:, None, None] + NOISE * rng.normal(size=(n, 2, 1, theta.shape[1]))
    return Replicas(theta, index, x, np.ones((n, 2), bool))


def replicated(seed: int, kind: str) -> Check:
    """Simulate at draws of the posterior and compare with the observation."""
    rng = np.random.default_rng([seed, 3])
    theta = rng.normal(size=4)
    x_o = theta + NOISE * rng.normal(size=4)
    if kind == "x_o outside":
        x_o[0] = 5.0 + 0.5 * rng.normal()
        draws = claimed(x_o[None], "right", 500, rng)[0]
        draws[:, 0] = np.clip(draws[:, 0], -1.5, 1.5)  # a prior with walls, which cannot explain it
    else:
        draws = claimed(x_o[None], "right", 500, rng)[0]
        draws += 5 * np.sqrt(VARIANCE) * (kind == "shifted far")
        draws += (draws - draws.mean(axis=0)) * {"four times too wide": 3.0, "seven times too wide": 6.0}.get(kind, 0.0)
    pairs = pairs_of(draws, rng)
    return predictive(pairs.x.reshape(-1, 1, 4), x_o, pairs=pairs)


class Normal(TractableLikelihood):
    """x = theta + noise with another sd perhaps, and a factor of theta that should not be there."""

    sd: Float[Array, ""]
    slope: Float[Array, ""]

    def prepare(self, x):
        """Return x."""
        return x

    def log_likelihood(self, theta, w):
        """Return the log-density, times exp(slope theta_1)."""
        return -0.5 * jnp.sum(((w - theta) / self.sd) ** 2) - len(w) * jnp.log(self.sd) + self.slope * theta[0]


class WrongNear(Normal):
    """The factor of theta is there only for data like x_o."""

    x_o: Float[Array, " dim"]
    space: XSpace

    def log_likelihood(self, theta, w):
        """Return the log-density, times exp(slope theta_1) near x_o."""
        near = jnp.exp(-0.5 * jnp.sum(((w - self.x_o) / NOISE) ** 2))
        return super().log_likelihood(theta, w) + (near - 1) * self.slope * theta[0]

    def space_of_x(self):
        """Return the coordinates in which data are compared."""
        return self.space


# sd of the learned noise over that of the true one, and the slope of the factor
LEARNED = {
    "too narrow": (0.6, 0.0),
    "too wide": (1.6, 0.0),
    "Z left out": (1.0, 2.0),
    "wrong near x_o": (1.0, 3.0),
}


def learned(seed: int, kind: str, stream: int) -> tuple[TractableLikelihood, Draws, Replicas]:
    """Return a likelihood, its posterior at one observation in four chains, and simulations there."""
    rng = np.random.default_rng([seed, stream])
    x_o = rng.normal(size=2) + NOISE * rng.normal(size=2)
    scale, slope = LEARNED.get(kind, (1.0, 0.0))
    sd = scale * NOISE
    if kind == "x_o lost":
        x_o = np.array([4.0, -4.0])  # the rounds went where x_o is not: the draws below are of another one
    variance = 1 / (1 + 1 / sd**2)
    mean = variance * ((0.0 if kind == "x_o lost" else 1.0) * x_o / sd**2 + slope * np.array([1.0, 0.0]))
    values = mean + np.sqrt(variance) * (rng.normal(size=(4, 500, 2)) + 5.0 * (kind == "shifted far"))
    draws = Draws(values, ("a", "b"), x_o[None], seed)
    likelihood = Normal(jnp.asarray(sd, jnp.float32), jnp.asarray(slope, jnp.float32))
    return likelihood, draws, pairs_of(np.asarray(draws), rng)


def around(seed: int, kind: str) -> Check:
    """Calibrate around one observation."""
    likelihood, draws, pairs = learned(seed, kind, 15)
    prior = Prior.normal([0.0, 0.0], [1.0, 1.0])
    found, shared = calibrate_around(prior, likelihood, draws, pairs, ess=2000.0, seed=seed)
    return posterior_sbc(found, effective=shared)


def around_nearest(seed: int, kind: str) -> Check:
    """Calibrate at the simulations nearest to an observation, near which alone the likelihood may be wrong."""
    likelihood, draws, _ = learned(seed, kind, 21)
    theta = np.asarray(draws)
    rng = np.random.default_rng([seed, 22])
    x = theta[:, None, None] + NOISE * rng.normal(size=(len(theta), 1, 1, 2))
    space = fit_x_space(x[:, 0, 0])
    some = np.sort(nearest_rows(space, x[:, 0], draws.x_o))
    near = Replicas(theta[some], some, x[some], np.ones((len(some), 1), bool))
    if kind == "wrong near x_o":
        likelihood = WrongNear(likelihood.sd, likelihood.slope, jnp.asarray(draws.x_o[0]), space)
    prior = Prior.normal([0.0, 0.0], [1.0, 1.0])
    found, shared = calibrate_around(prior, likelihood, draws, near, ess=2000.0, seed=seed)
    return posterior_sbc(found, effective=shared, kind=NEAREST)


def ranked(seed: int, kind: str) -> Check:
    """Rank the likelihood of the observation."""
    likelihood, draws, pairs = learned(seed, kind, 16)
    of_x_o = log_likelihood_table(likelihood, pairs.theta, draws.x_o[None])[0]
    return tail_rank(of_x_o, log_likelihood_pairs(likelihood, pairs.theta, pairs.x[:, 0]))


def informed(seed: int, kind: str) -> Check:
    """Measure how much a held-out row says about theta, over 200 rows."""
    rng = np.random.default_rng([seed, 17])
    theta = rng.normal(size=200)
    x = (0.0 if kind == "nothing learned" else 1.0) * theta + NOISE * rng.normal(size=200)
    guess = x if kind == "right" else rng.normal(size=200)  # of a model that learned noise
    logs = -0.5 * ((guess[:, None] - theta) / 1.5) ** 2
    gains = np.diag(logs) - np.log(np.mean(np.exp(logs), axis=1))
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    return information([{"stage": "information", "nats": gains.mean(), "error": error}])


def certified(seed: int, kind: str) -> Check:
    """Write what a fit says about its normaliser."""
    rng = np.random.default_rng([seed, 18])
    gap = {"mass out of reach": 1.0, "some mass out of reach": 0.4}.get(kind, 0.0) + 0.05 * rng.normal()
    k = {"weights without a mean": 1.2, "heavy weights": 0.85}.get(kind, 0.3)
    record = {"log_z_gap": gap, "log_z_error": 0.05, "pareto_k": k, "outweigh": 0.2 if kind == "data outweigh" else 0.0}
    return certificate([{"stage": "certificate", **record}])


def in_rounds(seed: int, kind: str) -> Check:
    """Write the records of rounds."""
    lost = [{"stage": "lost", "reason": "x_o is far from its simulations", "recovered": kind == "lost and found"}]
    return lost_rounds([{"stage": "round", "number": seed}, *([] if kind == "right" else lost)])


def inside(seed: int, kind: str) -> Check:
    """Place the observation among the simulations, or outside."""
    rng = np.random.default_rng([seed, 4])
    factor = np.linalg.cholesky(0.8 * np.ones((4, 4)) + 0.2 * np.eye(4))
    x, x_o = rng.normal(size=(1000, 4)) @ factor.T, rng.normal(size=4) @ factor.T
    if kind == "x_o outside":
        x_o = np.array([6.0, 6.0, 6.0, 6.0])
    if kind == "off the correlation":
        x_o = np.array([2.0, -2.0, 2.0, -2.0])
    return outlier(x, x_o)


def sampled(seed: int, kind: str) -> Check:
    """Make four chains that agree, or are stuck."""
    rng = np.random.default_rng([seed, 5])
    values = rng.normal(size=(4, 1000, 2))
    if kind == "chains stuck":
        values = 0.3 * values + 3 * rng.normal(size=(4, 1, 2))
    if kind == "a mode lost":  # by one chain of four
        values[..., 0] = np.abs(values[..., 0]) + 2
        values[1:, :, 0] *= rng.choice([-1, 1], size=(3, 1000))
    if kind == "few effective draws":
        for t in range(1, 1000):
            values[:, t] = 0.99 * values[:, t - 1] + np.sqrt(1 - 0.99**2) * values[:, t]
    return sampler_health(Draws(values, ("a", "b"), np.zeros((1, 2)), seed, info={"acceptance": 0.4}))


def trained(seed: int, kind: str) -> Check:
    """Write the records of a training."""
    rng = np.random.default_rng([seed, 6])
    chunks = np.arange(20)
    gain, gap = 1 - np.exp(-chunks / 4) + 0.02 * rng.normal(size=20), 0.05 * rng.normal(size=20)
    recoveries, outcome, share = 0 * chunks, "CONVERGED", 0.8
    if kind == "right, and overfitted later":  # the best chunk is kept
        gain, gap = gain - 0.3 * np.maximum(chunks - 12, 0), gap + np.maximum(chunks - 12, 0)
    if kind == "particles left behind":
        gap = gap + np.linspace(0, 8, 20)
    if kind == "diverged at times":
        recoveries, outcome = np.minimum(chunks, 12), "RECOVERED"
    if kind == "stopped too early":
        gain, outcome = 0.3 * chunks + 0.02 * rng.normal(size=20), "BUDGET_SPENT"
    if kind == "weights collapsed":
        share = 0.001
    records = [
        {"stage": "training", "sees_theta": True, "chunk": int(i), "gain": gain[i], "gap": gap[i], "ess": share}
        | {"recoveries": int(recoveries[i])}
        for i in chunks
    ]
    return training_health([*records, {"stage": "fitted", "energy": "full", "outcome": outcome, "gain": gain.max()}])


def descended(seed: int, kind: str) -> Check:
    """Write the records of a plain descent: a loss that settles, or still falls when the steps run out."""
    rng = np.random.default_rng([seed, 13])
    chunks = np.arange(20)
    loss = np.exp(-chunks / {"right": 3, "stopped too early": 20}[kind]) + 0.01 * rng.normal(size=20)
    held_out = np.minimum.accumulate(loss + 0.01 * rng.normal(size=20))
    records = [{"step": 100 * (i + 1), "steps": 2000, "loss": loss[i], "held_out": held_out[i]} for i in chunks]
    return training_health([{"stage": "descent", **record} for record in records])


class Bilinear(AbstractEnergy):
    """E = -(a . t) r + b . t over r ~ N(0, 1), so that log Z(t) = (a . t)^2 / 2 - b . t is known."""

    slope: Float[Array, " dim"]
    offset: Float[Array, " dim"]

    def __call__(self, t: Float[Array, " dim"], r: Float[Array, " data"]) -> Float[Array, ""]:
        """Return the energy."""
        return -(self.slope @ t) * r[0] + self.offset @ t


SPACES = (
    fit_theta_space(np.random.default_rng(0).normal(size=(500, 2))),
    fit_x_space(np.random.default_rng(1).normal(size=(500, 1))),
)


def uniform(seed: int, kind: str) -> Check:
    """Estimate a normaliser whose logarithm varies by 0.05 nats over the posterior, or by 0.3 or 0.8."""
    spread = {"right": 0.0, "Z depends a little": 0.3, "Z depends on theta": 0.8}[kind]
    energy = Bilinear(jnp.array([[0.27, 0.0]], jnp.float32), jnp.array([[0.0, spread]], jnp.float32))
    base = eqx.filter_vmap(FixedMeasure)(jnp.zeros((1, 1)), jnp.ones(1))
    likelihood = Ensemble(*SPACES, EnergyModel(base, energy), jnp.zeros(1))
    prior = Prior.normal([0.0, 0.0], [1.0, 1.0])
    draws = np.random.default_rng([seed, 14]).normal(size=(500, 2))
    return normaliser(z_uniformity(Posterior(prior, likelihood), draws, seed=seed))


def geometric_mean(seed: int, kind: str) -> Check:
    """Estimate the same of a geometric mean of two members, of which one may have a factor of theta."""
    spread = {"right": 0.0, "Z of one member depends on theta": 1.6}[kind]
    energy = Bilinear(jnp.zeros((2, 2), jnp.float32), jnp.array([[0.0, spread], [0.0, 0.0]], jnp.float32))
    base = eqx.filter_vmap(FixedMeasure)(jnp.zeros((2, 1)), jnp.ones(2))
    likelihood = Consensus(Ensemble(*SPACES, EnergyModel(base, energy), jnp.zeros(2)))
    prior = Prior.normal([0.0, 0.0], [1.0, 1.0])
    draws = np.random.default_rng([seed, 19]).normal(size=(500, 2))
    return normaliser(z_uniformity(Posterior(prior, likelihood), draws, seed=seed))


def drifted(seed: int, kind: str) -> Check:
    """Compare ends of chains with data."""
    rng = np.random.default_rng([seed, 7])
    starts, others, ends = rng.normal(size=(3, 300, 4))
    if kind == "chains drift":
        ends = 1.5 * ends + 0.4
    if kind == "chains stuck":
        ends = starts + 1e-3 * ends
    return compare_ends(starts, ends, others, steps=400, seed=seed)


def on_grid(seed: int, kind: str) -> Check:
    """Compare draws with a density of two modes."""
    rng = np.random.default_rng([seed, 8])
    axis = np.linspace(-4, 4, 201)
    a, b = np.meshgrid(axis, axis, indexing="ij")
    density = np.exp(-0.5 * ((a - 2) ** 2 + b**2) / 0.16) + np.exp(-0.5 * ((a + 2) ** 2 + b**2) / 0.16)
    side = np.where(rng.random(2000) < {"a mode lost": 1.0, "a mode too heavy": 0.75}.get(kind, 0.5), 2.0, -2.0)
    scale = {"too narrow": 0.28, "too wide": 0.56}.get(kind, 0.4)
    draws = np.stack([side, np.zeros(2000)], axis=1) + scale * rng.normal(size=(2000, 2))
    return grid_agreement([axis, axis], density / (density.sum() * 0.04**2), draws, ess=2000, seed=seed)


def ensemble(seed: int, kind: str) -> Check:
    """Compare five members, of which some may disagree."""
    rng = np.random.default_rng([seed, 9])
    centres = 0.2 * rng.normal(size=5) + (3.0 * np.arange(5) if kind == "members disagree" else 0.0)
    draws = rng.choice(centres, 2000) + rng.normal(size=2000)
    return ensemble_agreement(-0.5 * (draws[:, None] - centres) ** 2, draws[:, None], ("theta",))


def normalised(seed: int, kind: str) -> Check:
    """Compare a learned log Z with noisy estimates at 100 points, as the fit of a normaliser does."""
    rng = np.random.default_rng([seed, 10])
    noise, n = 0.1, 100
    size = {"right": 0.05, "too little training": 0.4, "wrong": 1.0}[kind]
    differences = size * rng.normal(size=n) + noise * rng.normal(size=n)
    record = {"error": np.abs(differences).max(), "error_sd": differences.std(ddof=1), "noise_sd": noise}
    return learned_normaliser([{"stage": "normalised", **record}])


def auxiliary(seed: int, kind: str) -> Check:
    """Move 2000 auxiliary draws that have arrived (an AR(1) chain in equilibrium), or are still on their way."""
    rng = np.random.default_rng([seed, 11])
    n, memory = 2000, 0.5
    before = rng.normal(size=n) - {"right": 0.0, "on their way": 0.5, "hardly moved": 3.0}[kind]
    after = memory * before + np.sqrt(1 - memory**2) * rng.normal(size=n)
    change = after - before
    health = {"drift": change.mean(), "drift_error": change.std() / np.sqrt(n), "trusted": 1.0, "acceptance": 0.6}
    return inner_mixing({f"inner_{name}": float(value) for name, value in health.items()})


def failures(seed: int, kind: str) -> Check:
    """Predict 1000 failures with the right probabilities, or with others."""
    rng = np.random.default_rng([seed, 12])
    logit = 1.5 * rng.normal(size=1000) + 0.5
    valid = rng.random(1000) < 1 / (1 + np.exp(-logit))
    claimed = {"right": logit, "too sure": 2 * logit, "odds off by a factor 3": logit + np.log(3)}[kind]
    error, noise = group_calibration(1 / (1 + np.exp(-claimed)), valid)
    record = {"rate": valid.mean(), "calibration_error": error, "calibration_noise": noise}
    return validity_calibration([{"stage": "validity", **record}])


def calibrated(check: Callable) -> Callable[[int, str], Check]:
    """Return the calibration check as a function of seed and kind."""
    return lambda seed, kind: check(calibration(seed, kind))


RIGHT, WRONG = ("right", "two modes"), ("too narrow", "too wide", "shifted", "a mode lost")
# check -> (how it is made, right models, wrong models)
CASES: dict[str, tuple[Callable[[int, str], Check], tuple[str, ...], tuple[str, ...]]] = {
    "sbc": (calibrated(sbc), ("right", "two modes"), ("too narrow", "too wide", "shifted", "a mode lost")),
    "coverage": (calibrated(coverage), ("right", "two modes"), ("too narrow", "too wide", "shifted", "a mode lost")),
    "tarp": (
        calibrated(tarp),
        ("right", "two modes"),
        ("too narrow", "too wide", "shifted", "a mode lost", "the prior"),
    ),
    "local_c2st": (local, RIGHT, (*WRONG, "the prior")),
    "predictive": (
        replicated,
        ("right",),
        ("shifted far", "x_o outside", "four times too wide", "seven times too wide"),
    ),
    "tail_rank": (ranked, ("right",), ("x_o lost", "shifted far")),
    "posterior_sbc": (around, ("right",), ("too narrow", "too wide", "Z left out")),
    "nearest": (around_nearest, ("right",), ("too narrow", "too wide", "wrong near x_o")),
    "information": (informed, ("right",), ("nothing learned", "learned wrongly")),
    "certificate": (
        certified,
        ("right",),
        ("some mass out of reach", "mass out of reach", "heavy weights", "weights without a mean", "data outweigh"),
    ),
    "rounds": (in_rounds, ("right", "lost and found"), ("lost",)),
    "outlier": (inside, ("right",), ("x_o outside", "off the correlation")),
    "sampler": (sampled, ("right",), ("chains stuck", "a mode lost", "few effective draws")),
    "training": (
        trained,
        ("right", "right, and overfitted later"),
        ("particles left behind", "diverged at times", "stopped too early", "weights collapsed"),
    ),
    "training, flows": (descended, ("right",), ("stopped too early",)),
    "normaliser": (uniform, ("right",), ("Z depends a little", "Z depends on theta")),
    "normaliser, geometric mean": (geometric_mean, ("right",), ("Z of one member depends on theta",)),
    "short_run": (drifted, ("right",), ("chains drift", "chains stuck")),
    "grid": (on_grid, ("right",), ("a mode lost", "a mode too heavy", "too narrow", "too wide")),
    "ensemble_agreement": (ensemble, ("right",), ("members disagree",)),
    "learned_normaliser": (normalised, ("right",), ("too little training", "wrong")),
    "inner_mixing": (auxiliary, ("right",), ("on their way", "hardly moved")),
    "validity": (failures, ("right",), ("too sure", "odds off by a factor 3")),
}


def tally(name: str, seeds: range) -> list[tuple[str, str, dict[str, int], float]]:
    """Return (kind, what it is, verdicts, seconds per check) of every model of one check."""
    make, right, wrong = CASES[name]
    rows = []
    for kind in (*right, *wrong):
        start = time.perf_counter()
        verdicts = [make(seed, kind).verdict for seed in seeds]
        counts = {word: verdicts.count(word) for word in ("good", "doubtful", "bad")}
        rows.append((kind, "right" if kind in right else "wrong", counts, (time.perf_counter() - start) / len(seeds)))
    return rows


def told_apart(kind: str, counts: dict[str, int]) -> int:
    """Return in how many seeds a right model was called good, or a wrong one not good."""
    return counts["good"] if kind == "right" else counts["doubtful"] + counts["bad"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed, to do many in pieces")
    parser.add_argument("--only", nargs="*", choices=list(CASES))
    arguments = parser.parse_args()
    print("| check | model | is | good | doubtful | bad | told apart | seconds each |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.only or CASES:
        for kind, truth, counts, seconds in tally(name, range(arguments.first, arguments.first + arguments.seeds)):
            told = told_apart(truth, counts)
            cells = [name, kind, truth, *map(str, counts.values()), f"{told}/{arguments.seeds}", f"{seconds:.2f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
