"""The table of a posterior: what was learned about each parameter, and how far to trust the sampler."""

from typing import Any

import numpy as np

from unle.cli.console import show_table
from unle.posterior import Draws

HIGH_R_HAT = 1.05  # above, independent runs of the sampler disagree visibly


def summarise(draws: Draws) -> dict[str, dict[str, float]]:
    """Return mean, sd, 95 % interval, R-hat and effective sample size of every parameter.

    The interval holds the central 95 % of the draws.
    """
    values = np.asarray(draws, dtype=float)
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    diagnostics = draws.summary()
    return {
        name: {
            "mean": float(values[:, i].mean()),
            "sd": float(values[:, i].std(ddof=1)),
            "low": float(low[i]),
            "high": float(high[i]),
            "r_hat": float(diagnostics.loc[name, "r_hat"]),
            "ess": float(diagnostics.loc[name, "ess_bulk"]),
        }
        for i, name in enumerate(draws.names)
    }


def show_summary(draws: Draws, summary: dict[str, dict[str, float]]) -> None:
    """Print the table."""
    rows = [
        [
            name,
            *(f"{row[key]:.4g}" for key in ("mean", "sd", "low", "high")),
            f"{row['r_hat']:.3f}",
            f"{row['ess']:.0f}",
        ]
        for name, row in summary.items()
    ]
    columns = ["parameter", "mean", "sd", "2.5 %", "97.5 %", "R-hat", "ESS"]
    show_table(f"Posterior, {len(draws):,} draws", columns, rows)


def complaints(summary: dict[str, dict[str, Any]]) -> list[str]:
    """Return a sentence for every parameter on whose posterior the sampler's independent runs disagree."""
    return [
        f"R-hat of {name} is {row['r_hat']:.2f}: independent runs of the sampler disagree; try more draws."
        for name, row in summary.items()
        if row["r_hat"] > HIGH_R_HAT
    ]
