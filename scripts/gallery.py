"""Make the pictures of the documentation: good and bad examples, from models that need no fit.

python scripts/gallery.py
"""

import argparse
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image

from unle import plot
from unle.diagnose import conditional, rounds
from unle.space import Prior
from unle_bench.paper.pyloric_figures import pyloric

sys.path.insert(0, str(Path(__file__).parent))
import trust  # noqa: E402  # the models made right and wrong

OUT = Path(__file__).parents[1] / "docs" / "images"


def beside(name: str, figures: list, dpi: int = 90) -> None:
    """Write figures next to each other."""
    pictures = []
    for figure in figures:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=dpi)
        pictures.append(Image.open(buffer).convert("RGB"))
    sheet = Image.new("RGB", (sum(p.width for p in pictures), max(p.height for p in pictures)), "white")
    left = 0
    for picture in pictures:
        sheet.paste(picture, (left, 0))
        left += picture.width
    sheet.quantize(64).save(OUT / f"{name}.png", optimize=True)


class Ring:
    """A posterior of three parameters that make up for each other; stands in for a fitted one."""

    prior = Prior.uniform(low=[-2.0] * 3, high=[2.0] * 3, names=["gain", "decay", "offset"])

    def log_prob(self, theta, x_o):
        """Return the log-density."""
        theta = np.asarray(theta)
        return -0.5 * ((theta.sum(axis=1) / 0.2) ** 2 + ((theta[:, 0] - theta[:, 1] ** 2) / 0.5) ** 2)


def chol(draws: np.ndarray) -> np.ndarray:
    """Return what gives white draws the covariance of the first four parameters, and a little more spread."""
    return np.linalg.cholesky(np.cov(draws[:, :4].T)).T / np.sqrt(np.var(draws[:, 4:8], axis=0))[:, None]


def main() -> None:
    """Write all pictures."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    OUT.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    kinds = ("right", "too narrow", "shifted")
    figures = []
    for kind in kinds:
        figure = plot.rank_curves(trust.sbc(trust.calibration(0, kind)))
        figure.axes[0].set_title(kind, fontsize=10)
        figures.append(figure)
    beside("calibration", figures, 70)
    beside("cloud", [plot.outlier_distances(trust.inside(0, kind)) for kind in ("right", "x_o outside")])
    beside("predictive", [plot.predictive(trust.replicated(0, kind)) for kind in ("right", "x_o outside")], 70)
    mixing = rng.normal(size=(31, 31)) / 5 + np.eye(31)
    draws = rng.normal(size=(10_000, 31)) @ mixing.T
    beside("pairs31", [plot.pairs(draws, [f"parameter_{i + 1}" for i in range(31)], truth=np.zeros(31))], 100)
    names = ["gain", "decay", "offset", "noise"]
    beside("pairs", [plot.pairs(1.2 * draws[:, :4] + 0.3, names, reference=draws[:, 4:8] @ chol(draws), truth=4 * [0])])
    series = np.cumsum(rng.normal(size=(2000, 40)), axis=1)
    near = series[:1] + 0.25 * series[1:500]
    beside("observation", [plot.observation(series[0], simulations=series, replicas=near)])
    some = draws[:, :5]
    beside("marginals", [plot.marginals(some, prior=4 * rng.normal(size=(4000, 5)), mode=np.zeros(5))])
    beside("conditional", [plot.conditional_pairs(conditional(Ring(), np.zeros(1), np.zeros(3)))])  # pyright: ignore
    number = np.repeat(np.arange(5), 200)
    theta = rng.normal(size=(1000, 3)) * np.exp(-0.5 * number)[:, None]
    valid = rng.random(1000) < 0.6 + 0.08 * number
    rows = SimpleNamespace(round=number, theta=theta, x=theta + 0.2 * rng.normal(size=(1000, 3)), valid=valid)
    beside("slices", [plot.likelihood_slices(Ring(), np.zeros(1), np.zeros(3))])
    coverages = [plot.coverage_curve(trust.coverage(trust.calibration(0, kind))) for kind in ("right", "too narrow")]
    beside("coverage", [*coverages, plot.rank_histograms(trust.sbc(trust.calibration(0, "too narrow")))], 70)
    beside("grid", [plot.density_and_draws(trust.on_grid(0, kind)) for kind in ("right", "a mode lost")], 70)
    beside("sampler", [plot.sampler_path(trust.sampled(0, kind)) for kind in ("right", "a mode lost")], 70)
    kinds = ("right", "right, and overfitted later", "particles left behind")
    beside("training", [plot.training_path(trust.trained(0, kind)) for kind in kinds], 60)
    beside("members", [plot.member_means(trust.ensemble(0, kind)) for kind in ("right", "members disagree")], 70)
    beside("time", [plot.run_time({"simulate": 12.0, "fit": 61.0, "sample": 8.0, "check": 25.0})])
    beside("pyloric", [pyloric().drawn[0].figure])
    beside("rounds", [plot.rounds(rounds(rows, np.zeros((1, 3))))])


if __name__ == "__main__":
    main()
