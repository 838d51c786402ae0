"""Posteriors under noise with tails: how far off are they, and what do the members' densities integrate to?

theta ~ U(-3, 3)^d, x = theta + noise, x_o = 0: coordinates are independent, so the exact posterior is a product of
one-dimensional ones on a grid.

    python scripts/tails.py --seeds 0-9 --sizes 1000,10000 --out tails.csv
"""

import argparse
import csv
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import unle

GRID = np.linspace(-3, 3, 6001)


def contaminated(e):
    """Return the log-density of N(0, .3^2), with one in ten from N(0, 3^2)."""
    return np.logaddexp(np.log(0.9) + stats.norm.logpdf(e, scale=0.3), np.log(0.1) + stats.norm.logpdf(e, scale=3.0))


def two_valued(e):
    """Return the log-density of plus or minus two and N(0, .3^2)."""
    return np.logaddexp(stats.norm.logpdf(e, 2, 0.3), stats.norm.logpdf(e, -2, 0.3)) - np.log(2)


NOISES = {
    "t3": (lambda rng, shape: 0.3 * rng.standard_t(3, shape), stats.t(3, scale=0.3).logpdf),
    "laplace": (lambda rng, shape: 0.35 * rng.laplace(size=shape), stats.laplace(scale=0.35).logpdf),
    "cauchy": (lambda rng, shape: 0.3 * rng.standard_cauchy(shape), stats.cauchy(scale=0.3).logpdf),
    "contaminated": (
        lambda rng, shape: np.where(rng.random(shape) < 0.1, 3.0, 0.3) * rng.normal(size=shape),
        contaminated,
    ),
    "two_valued": (lambda rng, shape: rng.choice([-2.0, 2.0], shape) + 0.3 * rng.normal(size=shape), two_valued),
    "normal": (lambda rng, shape: 0.5 * rng.normal(size=shape), stats.norm(scale=0.5).logpdf),
}


def one_run(kind: str, d: int, n: int, seed: int) -> dict:
    """Fit, draw at x_o = 0, and compare with the exact posterior."""
    draw, log_density = NOISES[kind]
    rng = np.random.default_rng([seed, n, d])
    theta = rng.uniform(-3, 3, (n, d))
    x = theta + draw(rng, (n, d))
    records: dict[str, dict] = {}
    start = time.perf_counter()
    prior = unle.Prior.uniform(low=[-3.0] * d, high=[3.0] * d)
    posterior = unle.AUNLE(prior).fit((theta, x), seed=seed, on_metrics=lambda **r: records.update({r["stage"]: r}))
    draws = np.asarray(posterior.sample([0.0] * d, 10_000, seed=2), float)
    seconds = time.perf_counter() - start
    log_p = log_density(-GRID)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ GRID
    sd = np.sqrt(p @ (GRID - mean) ** 2)
    # The region of highest density of all coordinates together, by exact draws.
    exact = rng.choice(GRID, (200_000, d), p=p)
    heights = np.interp(exact, GRID, np.log(p + 1e-300)).sum(axis=1)
    level = np.quantile(heights, 1e-4)
    outside = np.mean(np.interp(draws, GRID, np.log(p + 1e-300)).sum(axis=1) < level)
    ratio = draws.std(axis=0) / sd
    fitted = records["fitted"]
    return {
        "noise": kind, "d": d, "n": n, "seed": seed,
        "base": "noise" if fitted["noise"] else "Gaussian", "energy": fitted["energy"],
        "gain": round(fitted["gain"], 4), "mean_off": round(float(np.max(np.abs(draws.mean(axis=0) - mean)) / sd), 3),
        "sd_low": round(float(ratio.min()), 3), "sd_high": round(float(ratio.max()), 3),
        "outside": round(float(outside), 5),
        "integral": round(largest_integral(posterior.likelihood, d), 3) if d <= 2 else "",
        "seconds": round(seconds, 1),
    }  # fmt: skip


def largest_integral(likelihood, d: int) -> float:
    """Integrate every member's density of the standardised data on a grid, at three parameters."""
    axis = np.sinh(np.linspace(-6, 6, 4001 if d == 1 else 801))  # fine in the middle, out to 200
    step = np.gradient(axis)
    mesh = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), -1).reshape(-1, d)
    weight = np.prod(np.stack(np.meshgrid(*[step] * d, indexing="ij"), -1).reshape(-1, d), axis=1)
    places = [np.zeros(d), np.full(d, 2.5), np.full(d, -2.9)]
    return max(float((np.exp(_members(likelihood, mesh, at)) * weight[:, None]).sum(axis=0).max()) for at in places)


def _members(likelihood, w: np.ndarray, theta: np.ndarray) -> np.ndarray:
    w, theta = jnp.asarray(w, jnp.float32), jnp.asarray(theta, jnp.float32)
    return np.asarray(_densities(likelihood, w, theta), float)


@eqx.filter_jit
def _densities(likelihood, w, theta):
    return jax.lax.map(lambda row: likelihood.member_log_likelihoods(theta, row), w, batch_size=20_000)


def main() -> None:
    """Run what the command line asks for; rows that the file has already are not made again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--dims", default="1,2,4")
    parser.add_argument("--noises", default="t3,laplace,cauchy,contaminated")
    parser.add_argument("--out", type=Path, default=Path("tails.csv"))
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    begun, done = time.perf_counter(), set()
    if options.out.exists():
        with options.out.open() as file:
            done = {(r["noise"], r["d"], r["n"], r["seed"]) for r in csv.DictReader(file)}
    for d in map(int, options.dims.split(",")):
        for n in map(int, options.sizes.split(",")):
            for seed in range(int(first), int(last or first) + 1):
                for kind in options.noises.split(","):
                    if (kind, str(d), str(n), str(seed)) in done or time.perf_counter() - begun > options.seconds:
                        continue
                    row = one_run(kind, d, n, seed)
                    print(*row.values(), flush=True)
                    new = not options.out.exists()
                    with options.out.open("a", newline="") as file:
                        writer = csv.DictWriter(file, row.keys())
                        if new:
                            writer.writeheader()
                        writer.writerow(row)


if __name__ == "__main__":
    main()
