r"""Did the sampler draw from what was learned, and would another seed have said the same?  Four checks.

*sampler.*  R-hat compares chains: those of tempered SMC are independent runs (islands), so that disagreement on the
weight of a mode shows.  The effective sample sizes say how many independent draws the means (bulk) and the interval
ends (tail) are worth.  There is no p-value here.  400 effective draws are what the reference asks for.  It also asks
for an R-hat below 1.01; we say doubtful from 1.05 on, where a tenth of the variance is between chains: what is lost
before that shows in the effective draws.

*grid*, for one or two parameters.  The posterior density on a fine grid is summed over coarse cells and compared with
the share of draws in each, by total variation.  How much of it is chance is found by drawing as many cells as there are
effective draws from the grid itself.  It sees what a sampler lost: a mode, a tail, the weight between modes.

*inner_mixing.*  The exchange algorithm is exact if its auxiliary data are draws of the model at the proposed
parameters.  They are led there from the base in a few temperatures, and then moved on.  If they had arrived, moving on
changes the tilt (minus the energy) by nothing on average: a mean change of several standard errors, the *drift*, says
that they had not.  A drift that is significant but small against a nat does no harm: the acceptance ratio is off by
about so much.  Chains that are stuck everywhere alike are not seen.

*ensemble_agreement.*  The posterior of all members together is drawn, of their mixture or of their geometric mean q;
weights q_k(x_o | theta) / q(x_o | theta) turn its draws into those of member k alone. The total variation between the
two, 1/2 E|w_k - 1|, is the share of the posterior on which they disagree: 0 if they are equal, 1 if they have nothing
in common. Members differ by their seed and by the rows they were trained on, so this is what another seed or another
thousand simulations might have said. The mixture is as wide as their disagreement, hence honest about it; more
simulations would narrow it. Errors that all members share are not seen.

Reference: Vehtari, Gelman, Simpson, Carpenter and Burkner, "Rank-normalization, folding, and localization: an improved
R-hat", 2021.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from unle.diagnose.p_values import tail_probability
from unle.diagnose.record import Check, CheckKind, NotApplicable, Verdict, grade, grade_low, verdict_of, worst
from unle.errors import InputError
from unle.posterior import Draws, Posterior

SAMPLER = CheckKind("sampler", "Health of the sampler", "Do independent runs of the sampler agree?")
R_HAT = (1.05, 1.2)  # doubtful and bad from here on
ESS = (400.0, 100.0)  # doubtful and bad below
ACCEPTANCE = (0.05, 0.005)
EVIDENCE_SPREAD = (1.0, 3.0)  # nats between islands: factors of 3 and 20 in the weight of what they found

GRID = CheckKind("grid", "Draws against the density", "Did the sampler find all of the posterior?")
POINTS = 301  # per axis
CELLS = 20  # per axis
CHUNK = 10_000  # points of the grid evaluated at once
NULLS = 300  # simulated distances by chance
MATERIAL_DISTANCE = 0.1  # total variation that matters, beyond what chance gives

INNER_MIXING = CheckKind("inner_mixing", "Auxiliary chains of exchange", "Do the auxiliary draws follow the model?")
MATERIAL_DRIFT = 0.05  # nats
TRUSTED = (0.95, 0.8)  # share of draws that the inner sampler vouches for: doubtful and bad below
ENSEMBLE_AGREEMENT = CheckKind(
    "ensemble_agreement",
    "Agreement of the ensemble",
    "Would another seed, or other simulations, have said the same?",
)
DISAGREEMENT = (0.35, 0.65)  # doubtful and bad from here on: the mean share of the posterior that is in dispute


def sampler_health(draws: Draws) -> Check:
    """Check the draws of one posterior.

    Args:
        draws: from `Posterior.sample`; several chains.

    Returns:
        A `Check`; arrays `r_hat`, `ess_bulk`, `ess_tail` by parameter, and `temperatures` and `ess_path` of the first
        island if the draws come from tempered SMC.
    """
    table = draws.summary()
    r_hat, bulk, tail = (
        np.array([float(table.loc[name, column]) for name in draws.names])
        for column in ("r_hat", "ess_bulk", "ess_tail")
    )
    # Chains that do not move at all have no R-hat; that is as bad as can be.
    r_hat, bulk, tail = np.nan_to_num(r_hat, nan=np.inf), np.nan_to_num(bulk), np.nan_to_num(tail)
    numbers = {"r_hat": float(r_hat.max()), "ess_bulk": float(bulk.min()), "ess_tail": float(tail.min())}
    verdicts: dict[str, Verdict] = {
        "r_hat": grade(numbers["r_hat"], R_HAT),
        "ess": grade_low(min(numbers["ess_bulk"], numbers["ess_tail"]), ESS),
    }
    acceptance = float(draws.info.get("acceptance", np.nan))
    if np.isfinite(acceptance):
        numbers["acceptance"] = acceptance
        verdicts["acceptance"] = grade_low(acceptance, ACCEPTANCE)
    arrays = {"r_hat": r_hat, "ess_bulk": bulk, "ess_tail": tail}
    if draws.info.get("temperatures"):
        evidence = np.asarray(draws.info["log_evidence_by_chain"], float)
        numbers |= {"temperatures": len(draws.info["temperatures"][0]), "evidence_spread": float(np.ptp(evidence))}
        verdicts["evidence"] = grade(numbers["evidence_spread"], EVIDENCE_SPREAD)
        arrays |= {
            "temperatures": np.array(draws.info["temperatures"][0]),
            "ess_path": np.array(draws.info["ess"][0]),
        }
    verdict = worst(list(verdicts.values()))
    return SAMPLER.result(verdict, numbers, _advice(verdicts), arrays, draws.names)


def _advice(verdicts: dict[str, Verdict]) -> str:
    if all(verdict == "good" for verdict in verdicts.values()):
        return "Independent runs agree, and there are enough effective draws."
    if verdicts["r_hat"] != "good" or verdicts.get("evidence", "good") != "good":
        return "Independent runs disagree: sample with more particles, sampler=unle.TemperedSmc(particles=8000)."
    if verdicts["ess"] != "good":
        return "There are few effective draws: ask for more draws."
    return "Hardly any move is accepted: the posterior may be extremely thin; look at the pair plot."


def density_grid(posterior: Posterior, draws: Draws) -> tuple[list[np.ndarray], np.ndarray]:
    """Return axes over the draws, or over a bounded prior, and the posterior normalised over their grid."""
    low, high = posterior.prior.bounds
    values = np.asarray(draws, float)
    if values.shape[1] > 2:
        raise InputError(f"expected one or two parameters; got {values.shape[1]}.")
    room = 0.25 * np.ptp(values, axis=0) + 1e-9
    start = np.where(np.isfinite(low), low, values.min(axis=0) - room)
    stop = np.where(np.isfinite(high), high, values.max(axis=0) + room)
    axes = [np.linspace(a, b, POINTS) for a, b in zip(start, stop, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, values.shape[1])
    surplus = np.repeat(points[-1:], -len(points) % CHUNK, axis=0)  # chunks of one shape: one compilation
    chunks = np.concatenate([points, surplus]).reshape(-1, CHUNK, values.shape[1])
    logs = np.concatenate([np.asarray(posterior.log_prob(chunk, draws.x_o), float) for chunk in chunks])[: len(points)]
    density = np.exp(logs - logs.max()).reshape([POINTS] * values.shape[1])
    return axes, density / (density.sum() * np.prod([axis[1] - axis[0] for axis in axes]))


def grid_agreement(
    axes: list[Float[np.ndarray, " k"]],  # of the grid, one or two
    density: np.ndarray,  # on it, with one axis each
    draws: Float[np.ndarray, "n dim"],  # of the same posterior
    *,
    ess: float | int,  # how many independent draws they are worth
    seed: int = 0,  # of the draws of cells behind the p-value
) -> Check:
    """Compare draws with a density on a grid."""
    draws = np.asarray(draws, float)
    steps = [axis[1] - axis[0] for axis in axes]
    low = np.array([axis[0] - step / 2 for axis, step in zip(axes, steps, strict=True)])
    high = np.array([axis[-1] + step / 2 for axis, step in zip(axes, steps, strict=True)])
    edges = [_edges(axis, step, draws[:, i]) for i, (axis, step) in enumerate(zip(axes, steps, strict=True))]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    mass, _ = np.histogramdd(points, bins=edges, weights=density.ravel())
    mass = mass.ravel() / mass.sum()
    counts, _ = np.histogramdd(np.clip(draws, low, high), bins=edges)
    share = counts.ravel() / len(draws)
    size = max(int(min(ess, len(draws))), 20)
    null = np.random.default_rng([seed, 505]).multinomial(size, mass, size=NULLS) / size
    distances = 0.5 * np.abs(null - mass).sum(axis=1)
    distance = float(0.5 * np.abs(share - mass).sum())
    p_value = tail_probability(distances, distance)
    beyond = distance - float(distances.mean())
    verdict = verdict_of(p_value)
    if beyond < MATERIAL_DISTANCE / 2:  # a difference too small to matter is none, however sure
        verdict = "good"
    elif verdict == "bad" and beyond < MATERIAL_DISTANCE:
        verdict = "doubtful"
    advice = (
        "The draws follow the density."
        if verdict == "good"
        else "The draws and their density differ: sample with more particles, and look at the pair plot."
    )
    numbers = {"p": p_value, "total_variation": distance, "expected": float(distances.mean()), "ess": float(size)}
    arrays = {f"axis_{i}": axis for i, axis in enumerate(axes)} | {"density": density, "draws": draws[:2000]}
    return GRID.result(verdict, numbers, advice, arrays)


def _edges(axis: np.ndarray, step: float, column: np.ndarray) -> np.ndarray:
    """Return cells of about equal content, whose edges lie halfway between points of the grid."""
    cuts = np.quantile(column, np.linspace(0, 1, CELLS + 1)[1:-1])
    cut_points = np.unique(np.clip(np.round((cuts - axis[0]) / step - 0.5).astype(int), 0, len(axis) - 2))
    return np.concatenate([[axis[0] - step], axis[0] + (cut_points + 0.5) * step, [axis[-1] + step]])


def inner_mixing(info: Mapping[str, Any]) -> Check:
    """Check the auxiliary draws of an exchange run by `Draws.info`."""
    if "inner_drift" not in info:
        raise NotApplicable("the draws were not made by the exchange algorithm.")
    drift, error = float(info["inner_drift"]), float(info["inner_drift_error"])
    trusted, acceptance = float(info["inner_trusted"]), float(info["inner_acceptance"])
    if not all(map(math.isfinite, (drift, error, trusted))):
        p_value, verdict = 0.0, "bad"
    else:
        p_value = float(2 * norm.sf(abs(drift) / error)) if error > 0 else 1.0 if drift == 0 else 0.0
        by_drift: Verdict = verdict_of(p_value) if abs(drift) > MATERIAL_DRIFT else "good"
        verdict = worst([by_drift, grade_low(trusted, TRUSTED)])
    advice = (
        "Auxiliary draws have arrived where they should."
        if verdict == "good"
        else "Give auxiliary draws more temperatures or moves: ByExchange(Exchange(inner=TemperedInner(...)))."
    )
    numbers = {"drift": drift, "error": error, "p_value": p_value, "trusted": trusted, "acceptance": acceptance}
    return INNER_MIXING.result(verdict, numbers, advice)


def ensemble_agreement(
    member_logs: Float[np.ndarray, "draw member"],
    draws: Float[np.ndarray, "draw dim"],
    names: tuple[str, ...] = (),
    *,
    geometric: bool = False,
) -> Check:
    """Compare members at one observation.

    Args:
        member_logs: log-likelihood of x_o under every member at draws of the posterior of all of them.
        draws: these draws.
        names: of the parameters.
        geometric: whether the draws are of the members' geometric mean, rather than of their mixture.

    Returns:
        A `Check`; array `means`, the posterior mean of every member in standard deviations of the draws.
    """
    logs = np.asarray(member_logs, float)
    together = logs.mean(axis=1, keepdims=True) if geometric else np.logaddexp.reduce(logs, axis=1, keepdims=True)
    ratio = logs - together
    weights = np.exp(ratio - ratio.max(axis=0))
    weights = weights / np.maximum(weights.mean(axis=0), 1e-300)  # each member has a posterior of its own
    disagreement = 0.5 * np.mean(np.abs(weights - 1), axis=0)
    draws = np.asarray(draws, float)
    means = weights.T @ draws / len(draws)
    shift = (means - draws.mean(axis=0)) / np.maximum(draws.std(axis=0), 1e-12)
    typical, largest = float(disagreement.mean()), float(disagreement.max())
    verdict = grade(typical, DISAGREEMENT)
    advice = (
        "The members agree: another seed would have said much the same. What all of them miss does not show here."
        if verdict == "good"
        else "The members disagree at x_o: there are too few simulations like it; simulate more."
    )
    numbers = {
        "disagreement": typical,
        "largest_disagreement": largest,
        "largest_shift_in_sd": float(np.abs(shift).max()),
        "members": logs.shape[1],
    }
    return ENSEMBLE_AGREEMENT.result(verdict, numbers, advice, {"means": shift}, names)
