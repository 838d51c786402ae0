"""Infer the parameters of an epidemic from eight weekly case counts, with a simulator of your own.

A stochastic SIR model: every day, each susceptible person is infected with probability 1 - exp(-beta I / N) and each
infectious one recovers with probability 1 - exp(-1 / duration); only some of the cases are reported.  Three unknowns:

    R0          people infected by one case when everybody is susceptible; beta = R0 / duration
    duration    mean number of days that a case is infectious
    reported    share of cases that are reported

    python examples/own_simulator.py [--out FOLDER] [--budget 2000] [--draws 4000]

It simulates, fits, draws, checks, predicts, and writes two figures; less than two minutes on two CPU cores.  Look
at the first figure: case counts fix the speed at which an outbreak grows, so R0 and the duration are known much better
together than each by itself.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import unle

PEOPLE, FIRST_CASES, WEEKS = 2000, 10, 8
TRUTH = np.array([2.2, 6.0, 0.4])

prior = unle.Prior.uniform(low=[1.2, 2.0, 0.1], high=[4.0, 12.0, 0.9], names=["R0", "duration", "reported"])


@unle.batched  # the simulator takes many parameter vectors at once: theta is (n, 3)
def simulator(theta, rng):
    """Return the reported cases of each week, (n, 8), as log(1 + cases)."""
    reproduction, duration, reported = theta.T
    susceptible = np.full(len(theta), PEOPLE - FIRST_CASES)
    infectious = np.full(len(theta), FIRST_CASES)
    cases = np.zeros((len(theta), WEEKS))
    for day in range(7 * WEEKS):
        force = reproduction / duration * infectious / PEOPLE
        infected = rng.binomial(susceptible, 1 - np.exp(-force))
        recovered = rng.binomial(infectious, 1 - np.exp(-1 / duration))
        susceptible = susceptible - infected
        infectious = infectious + infected - recovered
        cases[:, day // 7] += rng.binomial(infected, reported)
    # Counts span three decades.  The library would find a log-like scale by itself; here it is the natural one.
    return np.log1p(cases)


def main() -> None:
    parser = argparse.ArgumentParser(description="Infer an epidemic's parameters with AUNLE.")
    parser.add_argument("--out", type=Path, default=Path("runs/own_simulator"), help="folder for the figures")
    parser.add_argument("--budget", type=int, default=2000, help="number of simulations")
    parser.add_argument("--draws", type=int, default=4000, help="number of posterior draws")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()

    # The data that we pretend to have measured.
    x_o = simulator(TRUTH[None], np.random.default_rng(7))[0]
    print("weekly cases:", np.round(np.expm1(x_o)).astype(int))

    simulations = unle.simulate(simulator, prior, options.budget, seed=0)
    print(simulations.summary())

    # Three members instead of four: a little less accurate, and faster.
    posterior = unle.AUNLE(prior, members=3).fit(simulations, seed=1)
    draws = posterior.sample(x_o, options.draws, seed=2)
    print(draws.summary().to_string())
    print(unle.z_uniformity(posterior, draws))

    # Do simulations at posterior draws look like the data?
    thetas = np.asarray(draws)[:: max(1, len(draws) // 500)]
    replicas = simulator(thetas, np.random.default_rng(3))
    print("share of predictions below the data, by week:", np.round((replicas < x_o).mean(axis=0), 2))

    from matplotlib.figure import Figure

    from unle.plot import pairs

    pairs(draws, truth=TRUTH).savefig(options.out / "posterior.png")
    figure = Figure(figsize=(5, 3), layout="constrained")
    axis = figure.add_subplot()
    weeks = np.arange(1, WEEKS + 1)
    for low, high in ((0.025, 0.975), (0.25, 0.75)):
        bounds = np.expm1(np.quantile(replicas, [low, high], axis=0))
        axis.fill_between(weeks, *bounds, alpha=0.3, color="tab:blue", linewidth=0)
    axis.plot(weeks, np.expm1(x_o), "ko", label="data")
    axis.set(xlabel="week", ylabel="reported cases", title="Posterior predictions: 50 % and 95 %")
    axis.legend()
    figure.savefig(options.out / "predictions.png")
    posterior.save(options.out / "posterior")
    print(f"{time.perf_counter() - start:.0f} s; figures and the fitted posterior are in {options.out}")


if __name__ == "__main__":
    main()
