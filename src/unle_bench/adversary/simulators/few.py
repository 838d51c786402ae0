"""Too few simulations."""

import numpy as np

from unle_bench.adversary.exact import ByFactors, Conjugate, OnPlane
from unle_bench.adversary.priors import Normals, cube
from unle_bench.adversary.simulator import Adversary
from unle_bench.adversary.simulators.densities import log_normal_density
from unle_bench.adversary.simulators.modes import banana, log_banana

NOISE = 0.3
# Six data from three parameters; any matrix of full rank will do.
MATRIX = np.random.default_rng(3).normal(size=(6, 3))

SIMULATORS: tuple[Adversary, ...] = (
    Adversary(
        "hundred",
        "A hundred simulations of three parameters.",
        cube(3),
        lambda theta, rng: theta + NOISE * rng.normal(size=theta.shape),
        ByFactors(lambda t, i, x: log_normal_density(x[i] - t, NOISE)),
        simulations=100,
    ),
    Adversary(
        "hundred_linear",
        "A hundred simulations, more data than parameters.",
        Normals((1.0, 1.0, 1.0)),
        lambda theta, rng: theta @ MATRIX.T + NOISE * rng.normal(size=(len(theta), len(MATRIX))),
        Conjugate(MATRIX, NOISE),
        simulations=100,
    ),
    Adversary(
        "two_hundred",
        "Two hundred simulations of a curved posterior.",
        cube(2, -2.0, 2.0),
        banana,
        OnPlane(log_banana),
        simulations=200,
    ),
)
