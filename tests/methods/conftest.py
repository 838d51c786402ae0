"""One small method for many tests, and how far its draws may be from an exact posterior.

Programs are compiled for settings and for the number of rows: tests that share both compile once.
"""

from functools import partial

import numpy as np
import pytest

from unle.methods import AUNLE, region_fit, rounds, training_pairs
from unle.posterior import TemperedSmc
from unle.samplers import Sweep
from unle.space import Prior
from unle.train import DataParticles, EnergyTraining, GaussianTraining, ValidityTraining, fit_validity

QUANTILE = 3.3  # standard errors; a normal number is beyond them once in a thousand times
PER_DRAW = 4  # draws that count as one independent: particles have ancestors in common


class Agreement:
    """Whether the moments of draws are those of an exact posterior of one parameter, within computed errors.

    A location is learned from `rows` simulations with a standard error of `sqrt(leverage / rows)` posterior standard
    deviations: the prediction error of a regression where the observation lies.  A width is learned with a relative
    error of `1 / sqrt(2 rows)`.  Both are added to the Monte Carlo error of the draws.

    Attributes:
        mean: exact.
        sd: exact.
        rows: simulations that the fit saw.
        leverage: coefficients of the regression that matter at the observation: 1 + z^2 for a straight line.
        learned: share of the width that is learned from the rows; the prior's is known.
        allowance: what a trained network adds, measured, as a share of sd.
    """

    def __init__(self, mean, sd, *, rows, leverage=1.0, learned=1.0, allowance=0.0):
        self.mean, self.sd = float(mean), float(sd)
        self.rows, self.leverage, self.learned, self.allowance = rows, leverage, learned, allowance

    def errors(self, draws):
        """Return by how much mean and sd are off, each over what it may be off: good below 1."""
        draws = np.asarray(draws, float).ravel()
        return self.errors_of(draws.mean(), draws.std(), PER_DRAW / len(draws))

    def errors_of(self, mean, sd, monte_carlo=0.0):
        """Return the same for moments that were computed; `monte_carlo` is the squared error of their mean."""
        off = QUANTILE * np.sqrt(monte_carlo + self.leverage / self.rows) + self.allowance
        off_sd = QUANTILE * np.sqrt((monte_carlo + self.learned / self.rows) / 2) + self.allowance
        return abs(mean - self.mean) / self.sd / off, abs(sd / self.sd - 1) / off_sd

    def holds(self, draws):
        """Return whether both are within their errors."""
        return max(self.errors(draws)) < 1


@pytest.fixture(scope="session")
def agreement():
    return Agreement


@pytest.fixture(scope="session")
def small_aunle():
    """AUNLE for one parameter and one number of data; 600 rows are what its programs are compiled for."""
    return AUNLE(
        Prior.normal([0.0], [1.0], names=["a"]),
        base=GaussianTraining(width=8, depth=1, iterations=200, batch=128, chunk=50),
        training=EnergyTraining(
            DataParticles(n=512, pool=8192), width=24, depth=2, iterations=800, batch=128, chunk=50, patience=6
        ),
        members=2,
        sampler=TemperedSmc(islands=2, particles=1000, sweep=Sweep(walks=6, langevin=0), settle=1),
    )


@pytest.fixture(autouse=True, scope="module")
def _quick_parts():
    """Networks of P(valid) and samplers of proposals that suit one or two parameters."""
    settings = ValidityTraining(members=4, width=32, depth=2, iterations=1500, patience=5)
    with pytest.MonkeyPatch.context() as patch:
        for module in (region_fit, training_pairs):
            patch.setattr(module, "fit_validity", partial(fit_validity, settings=settings))
        patch.setattr(rounds, "TemperedSmc", lambda: TemperedSmc(2, 1000, Sweep(walks=6, langevin=0)))
        yield
