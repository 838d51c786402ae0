"""How far draws are from an exact posterior, and when that is called wrong."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.diagnose import c2st_fast
from unle_bench.adversary.exact import Exact

SCORED = 2000  # draws on either side of the classifier
EXACT_SEED = 17
COMPARED = 20_000  # exact draws that marginals are compared with

# What is wrong: differences that change what one would conclude, and that seeds do not explain.
WRONG_C2ST = 0.8
WRONG_SD_RATIO = 2.0
WRONG_OUTSIDE = 0.05

MEASURES = ("c2st", "sd_ratio", "shift", "kolmogorov", "outside")


def measures(exact: Exact, draws: Float[np.ndarray, "n dim"], *, jobs: int | None = None) -> dict[str, float]:
    """Return the errors of draws by name.

    Args:
        exact: the posterior they should come from.
        draws: of a method, finite.
        jobs: cores that the classifier may use; None for all.

    Returns:
        `c2st` on 2,000 against 2,000 draws; `sd_ratio`, the largest ratio of standard deviations, either way;
        `shift`, the largest distance of a mean in exact standard deviations; `kolmogorov`, the largest distance
        between marginal distribution functions; `outside`, the share of draws beyond the exact 99.9 % region of
        highest density.
    """
    draws = np.asarray(draws, float)
    reference = exact.draws(COMPARED, seed=EXACT_SEED)
    some = draws[np.linspace(0, len(draws) - 1, SCORED).round().astype(int)]
    # In units of the reference before single precision: posteriors may be a millionth wide.
    middle, width = reference.mean(axis=0), reference.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # draws may be constant; that is what is measured
        return {
            "c2st": c2st_fast((reference[:SCORED] - middle) / width, (some - middle) / width, jobs=jobs),
            "sd_ratio": _sd_ratio(draws.std(axis=0), exact.sd),
            "shift": float(np.max(np.abs(draws.mean(axis=0) - exact.mean) / exact.sd)),
            "kolmogorov": max(kolmogorov(a, b) for a, b in zip(draws.T, reference.T, strict=True)),
            "outside": float(np.mean(exact.outside(draws))),
        }


def is_wrong(numbers: Mapping[str, Any]) -> bool:
    """Return whether measures are those of a wrong posterior.

    Example:
        >>> is_wrong({"c2st": 0.6, "sd_ratio": 1.2, "outside": 0.002})
        False
        >>> is_wrong({"c2st": 0.6, "sd_ratio": 2.4, "outside": 0.002})
        True
    """
    return numbers["c2st"] > WRONG_C2ST or numbers["sd_ratio"] > WRONG_SD_RATIO or numbers["outside"] > WRONG_OUTSIDE


def kolmogorov(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " m"]) -> float:
    """Return the largest distance between two empirical distribution functions.

    Example:
        >>> kolmogorov(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
        1.0
    """
    first, second = np.sort(first), np.sort(second)
    everywhere = np.concatenate([first, second])
    below = [np.searchsorted(values, everywhere, side="right") / len(values) for values in (first, second)]
    return float(np.max(np.abs(below[0] - below[1])))


def _sd_ratio(found: Float[np.ndarray, " dim"], exact: Float[np.ndarray, " dim"]) -> float:
    with np.errstate(divide="ignore"):
        ratios = found / exact
        return float(np.max(np.maximum(ratios, 1 / ratios)))
