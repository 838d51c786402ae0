r"""Local classifier test: is the posterior right at *this* observation?

Calibration averages over the prior.  Here a classifier learns to tell pairs (theta*, x*) of the simulator from pairs
(theta_q, x*) with theta_q drawn from the learned posterior, as a function of theta *and* x, and is then asked about x_o
alone: t = mean over draws theta_q at x_o of (P(simulator | theta_q, x_o) - 1/2)^2.  If the posterior at x_o is right
the classifier is undecided there.  How large t may be by chance is found by swapping theta* and theta_q in random
pairs, which changes nothing if they have one distribution, and training again.

To see much with few simulations the classifier gets theta relative to the learned posterior at the same x,
z = (theta - mean_q(x)) / sd_q(x), and is a logistic regression on z, its products, and their products with the leading
coordinates of x: too narrow a posterior shows in z^2, a shift in z, and both may depend on x.  A mode that was lost
makes the simulator rarer where the posterior is, which shows in the constant.  A few hundred pairs show large errors
only.

Reference: Linhart, Gramfort and Rodrigues, "L-C2ST: local diagnostics for posterior approximations in simulation-based
inference", 2023.
"""

import numpy as np
from jaxtyping import Float

from unle.diagnose.calibration import FEWEST_EFFECTIVE, Calibration
from unle.diagnose.calibration_checks import rank_pca
from unle.diagnose.p_values import tail_probability
from unle.diagnose.record import Check, CheckKind, at_most, verdict_of
from unle.errors import InputError

LOCAL_C2ST = CheckKind(
    "local_c2st",
    "Local classifier test at x_o",
    "Is the posterior right at this observation, not just on average?",
)
FEWEST_OBSERVATIONS = 100  # pairs
LARGEST_Z = 3.0  # further out than this many standard deviations counts as this far: limits the influence of outliers
MOST_WITH_PRODUCTS = 8  # parameters whose products are looked at; with more, only their squares
INVERSE_RIDGE = 1.0  # inverse strength of the ridge


def local_c2st(
    calibration: Calibration,
    draws: Float[np.ndarray, "draw dim"],
    x_o: Float[np.ndarray, " dim_x"],
    *,
    permutations: int = 200,
    seed: int = 0,
) -> Check:
    """Test the posterior at one observation.

    Args:
        calibration: posteriors with known truths, a few hundred at least; the more, the more local.
        draws: of the learned posterior at x_o.
        x_o: the observation, one data vector.
        permutations: trainings with swapped pairs behind the p-value.
        seed: fixes the result.

    Returns:
        A `Check`.  Array `probability`: what the classifier says at up to 500 draws of x_o; `null`: t by chance.
    """
    if len(calibration) < FEWEST_OBSERVATIONS:
        raise InputError(
            f"expected at least {FEWEST_OBSERVATIONS} simulated observations; got {len(calibration)}; try 300."
        )
    rng = np.random.default_rng([seed, 303])
    mean, sd = calibration.moments()
    weights = calibration.weights[:, :-1]
    chosen = np.array([rng.choice(len(row), p=row / row.sum()) if row.sum() > 0 else 0 for row in weights])
    fakes = calibration.draws[np.arange(len(calibration)), chosen]
    pairs = np.stack([_relative(calibration.truth, mean, sd), _relative(fakes, mean, sd)])  # (2, n, dim)

    draws = np.asarray(draws, float)
    some = draws[np.linspace(0, len(draws) - 1, min(len(draws), 500)).astype(int)]
    at_x_o = _relative(some, draws.mean(axis=0), np.maximum(draws.std(axis=0), 1e-12))
    x, x_here = rank_pca(calibration.x, np.asarray(x_o, float)[None])
    features = np.stack([_features(z, x) for z in pairs])
    features_at_x_o = _features(at_x_o, np.broadcast_to(x_here, (len(some), x.shape[1])))
    scale = features.std(axis=(0, 1)) + 1e-12
    features, features_at_x_o = features / scale, features_at_x_o / scale

    def probability_after(swap: np.ndarray) -> np.ndarray:
        pooled = np.where(swap[None, :, None], features[::-1], features).reshape(-1, features.shape[-1])
        return _fit_and_predict(pooled, features_at_x_o)

    probability = probability_after(np.zeros(len(x), bool))
    statistic = float(np.mean((probability - 0.5) ** 2))
    null = np.array([np.mean((probability_after(rng.random(len(x)) < 0.5) - 0.5) ** 2) for _ in range(permutations)])
    p_value = tail_probability(null, statistic)
    weak = calibration.in_sample or calibration.effective < FEWEST_EFFECTIVE
    verdict = at_most(verdict_of(p_value), "doubtful") if weak else verdict_of(p_value)
    quiet = verdict_of(p_value) == "good"
    if quiet and weak:
        advice = "No deviation was seen, on simulations of the fit itself or with few draws: a weak reassurance."
    elif quiet:
        advice = "Nothing to see near x_o; with few simulations the test sees large errors only."
    else:
        advice = "The posterior is wrong near x_o: simulate more there, or fit again with more simulations."
    numbers = {"p": p_value, "statistic": statistic, "expected": float(null.mean()), "pairs": len(x)}
    arrays = {"probability": probability, "null": null, "theta": some}
    return LOCAL_C2ST.result(verdict, numbers, advice, arrays, calibration.names)


def _relative(theta: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return np.clip((theta - mean) / sd, -LARGEST_Z, LARGEST_Z)


def _features(z: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n f"]:
    dim = z.shape[1]
    which = [(i, j) for i in range(dim) for j in range(i + 1) if i == j or dim <= MOST_WITH_PRODUCTS]
    products = np.stack([z[:, i] * z[:, j] for i, j in which], axis=1)
    own = np.concatenate([z, products - 1.0 * np.array([i == j for i, j in which])], axis=1)
    local = (z[:, :, None] * x[:, None]).reshape(len(z), -1), ((z**2 - 1)[:, :, None] * x[:, None]).reshape(len(z), -1)
    return np.concatenate([own, *local], axis=1)


def _fit_and_predict(pooled: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Train on the first half (simulator) against the second (posterior); return P(simulator) at other points."""
    from sklearn.linear_model import LogisticRegression

    labels = np.repeat([1, 0], len(pooled) // 2)
    model = LogisticRegression(C=INVERSE_RIDGE, solver="newton-cholesky").fit(pooled, labels)
    return model.predict_proba(points)[:, 1]
