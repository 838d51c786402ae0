"""Two moons: one fit on 1,000 simulations, then the posteriors of four observations, beside the exact ones.

    python examples/two_moons.py [--out FILE]

The figure at the top of the README is made by this script, in one to two minutes on two CPU cores.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import unle


def simulator(theta, rng):
    """Return a noisy point on a crescent whose place depends on two parameters."""
    angle, radius = rng.uniform(-np.pi / 2, np.pi / 2), rng.normal(0.1, 0.01)
    x = radius * np.cos(angle) + 0.25 - abs(theta[0] + theta[1]) / np.sqrt(2)
    return [x, radius * np.sin(angle) + (theta[1] - theta[0]) / np.sqrt(2)]


def main() -> None:
    """Simulate, fit, draw, and write the figure."""
    parser = argparse.ArgumentParser(description="Two moons with AUNLE.")
    parser.add_argument("--out", type=Path, default=Path("runs/two_moons.png"), help="file for the figure")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)

    prior = unle.Prior.uniform(low=[-1, -1], high=[1, 1], names=["theta1", "theta2"])
    simulations = unle.simulate(simulator, prior, 1_000, seed=0)
    posterior = unle.AUNLE(prior).fit(simulations, seed=1)

    observations = [[0.2, 0.0], [0.1, 0.0], [0.0, 0.0], [-0.1, 0.0]]
    exact = unle.task("two_moons")  # the same simulator; its posterior is known
    figure = Figure(figsize=(10.4, 5.6), layout="constrained", facecolor="white")
    axes = figure.subplots(2, 4, sharex=True, sharey=True)
    edges = np.linspace(-0.4, 0.4, 101)
    for column, x_o in zip(axes.T, observations, strict=True):
        draws = np.asarray(posterior.sample(x_o, 20_000, seed=2))
        reference = exact.reference(np.asarray(x_o), 20_000)
        densities = [np.histogram2d(*values.T, bins=edges, density=True)[0].T for values in (reference, draws)]
        for axis, density in zip(column, densities, strict=True):
            axis.pcolormesh(edges, edges, density, cmap="magma", vmax=densities[0].max(), rasterized=True)
            axis.set(aspect="equal", xticks=[-0.3, 0, 0.3], yticks=[-0.3, 0, 0.3])
            axis.tick_params(length=0, labelcolor="#64748b")
            axis.spines[:].set_visible(False)
        column[0].set_title(rf"$x_o = ({x_o[0]:g},\ {x_o[1]:g})$", fontsize=12)
        column[1].set_xlabel(r"$\theta_1$")
    axes[0, 0].set_ylabel("exact\n" + r"$\theta_2$", fontsize=12)
    axes[1, 0].set_ylabel("unle\n" + r"$\theta_2$", fontsize=12)
    figure.savefig(options.out, dpi=130)


if __name__ == "__main__":
    main()
