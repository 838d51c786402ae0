"""Did the auxiliary chains of the exchange algorithm reach the model?

Exchange is exact if its auxiliary data are draws of the model at the proposed parameters. They are led there from the
base in a few temperatures, and then moved on. If they had arrived, moving on changes the tilt (minus the energy) by
nothing on average: a mean change of several standard errors, the *drift*, says that they had not. A drift that is
significant but small against a nat does no harm: the acceptance ratio is off by about so much.
"""

import math
from collections.abc import Mapping
from typing import Any

from scipy.stats import norm

from unle.diagnose.record import Check, NotApplicable, Verdict, verdict_of, worst

TITLE = "Auxiliary chains of exchange"
QUESTION = "Do the auxiliary draws follow the model?"
MATERIAL = 0.05  # nats
TRUSTED = (0.95, 0.8)  # share of draws that the inner sampler vouches for: doubtful and bad below


def inner_mixing(info: Mapping[str, Any]) -> Check:
    """Check the auxiliary draws of an exchange run.

    Args:
        info: of the draws, `Draws.info`.

    Raises:
        NotApplicable: the draws are not by exchange.
    """
    if "inner_drift" not in info:
        raise NotApplicable("the draws were not made by the exchange algorithm.")
    drift, error = float(info["inner_drift"]), float(info["inner_drift_error"])
    trusted, acceptance = float(info["inner_trusted"]), float(info["inner_acceptance"])
    if not all(map(math.isfinite, (drift, error, trusted))):
        p_value, verdict = 0.0, "bad"
    else:
        p_value = float(2 * norm.sf(abs(drift) / error)) if error > 0 else 1.0 if drift == 0 else 0.0
        by_drift: Verdict = verdict_of(p_value) if abs(drift) > MATERIAL else "good"
        by_trust: Verdict = "good" if trusted >= TRUSTED[0] else "doubtful" if trusted >= TRUSTED[1] else "bad"
        verdict = worst([by_drift, by_trust])
    advice = (
        "Auxiliary draws have arrived where they should."
        if verdict == "good"
        else "Give auxiliary draws more temperatures or moves: ByExchange(Exchange(inner=TemperedInner(...)))."
    )
    numbers = {"drift": drift, "error": error, "p_value": p_value, "trusted": trusted, "acceptance": acceptance}
    return Check("inner_mixing", TITLE, QUESTION, verdict, numbers, advice)
