"""Did the sampler arrive?  R-hat, effective sample sizes, and the tempering path.

R-hat compares chains: those of tempered SMC are independent runs (islands), so that disagreement on the weight of a
mode shows.  The effective sample sizes say how many independent draws the means (bulk) and the interval ends (tail) are
worth.  There is no p-value here.  400 effective draws are what the reference asks for.  It also asks for an R-hat below
1.01; we say doubtful from 1.05 on, where a tenth of the variance is between chains: what is lost before that shows in
the effective draws.

Reference: Vehtari, Gelman, Simpson, Carpenter and Burkner, "Rank-normalization, folding, and localization: an improved
R-hat", 2021.
"""

import numpy as np

from unle.diagnose.record import Check, Verdict, worst
from unle.posterior import Draws

TITLE = "Health of the sampler"
QUESTION = "Do independent runs of the sampler agree?"
R_HAT = (1.05, 1.2)  # doubtful and bad from here on
ESS = (400.0, 100.0)  # doubtful and bad below
ACCEPTANCE = (0.05, 0.005)
EVIDENCE_SPREAD = (1.0, 3.0)  # nats between islands: factors of 3 and 20 in the weight of what they found


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
        "r_hat": _above(numbers["r_hat"], R_HAT),
        "ess": _below(min(numbers["ess_bulk"], numbers["ess_tail"]), ESS),
    }
    acceptance = float(draws.info.get("acceptance", np.nan))
    if np.isfinite(acceptance):
        numbers["acceptance"] = acceptance
        verdicts["acceptance"] = _below(acceptance, ACCEPTANCE)
    arrays = {"r_hat": r_hat, "ess_bulk": bulk, "ess_tail": tail}
    if draws.info.get("temperatures"):
        evidence = np.asarray(draws.info["log_evidence_by_chain"], float)
        numbers |= {"temperatures": len(draws.info["temperatures"][0]), "evidence_spread": float(np.ptp(evidence))}
        verdicts["evidence"] = _above(numbers["evidence_spread"], EVIDENCE_SPREAD)
        arrays |= {
            "temperatures": np.array(draws.info["temperatures"][0]),
            "ess_path": np.array(draws.info["ess"][0]),
        }
    verdict = worst(list(verdicts.values()))
    return Check("sampler", TITLE, QUESTION, verdict, numbers, _advice(verdicts), arrays, draws.names)


def _above(value: float, thresholds: tuple[float, float]) -> Verdict:
    return "good" if value < thresholds[0] else "doubtful" if value < thresholds[1] else "bad"


def _below(value: float, thresholds: tuple[float, float]) -> Verdict:
    return "good" if value >= thresholds[0] else "doubtful" if value >= thresholds[1] else "bad"


def _advice(verdicts: dict[str, Verdict]) -> str:
    if all(verdict == "good" for verdict in verdicts.values()):
        return "Independent runs agree, and there are enough effective draws."
    if verdicts["r_hat"] != "good" or verdicts.get("evidence", "good") != "good":
        return "Independent runs disagree: sample with more particles, sampler=unle.TemperedSmc(particles=8000)."
    if verdicts["ess"] != "good":
        return "There are few effective draws: ask for more draws."
    return "Hardly any move is accepted: the posterior may be extremely thin; look at the pair plot."
