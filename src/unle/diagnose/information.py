r"""Did the fit learn anything about the parameters?

On rows that the fit held back, the learned likelihood of x at its own theta is compared with that at the thetas of
other rows,

    I = mean_i [ log q(x_i | theta_i) - log mean_j q(x_i | theta_j) ],

an estimate, from below if q is wrong, of how many nats a simulation says about theta.  At zero q might as well not look
at theta: the posterior is the prior, which passes every check of calibration.  The fit writes I and its standard error.

It cannot tell data that say nothing from a fit that did not learn what they say.  Most of what was learned being right
is another matter, too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import norm

from unle.diagnose.record import Check, NotApplicable, Verdict

TITLE = "Information about the parameters"
QUESTION = "Does the learned likelihood depend on the parameters at all?"
ERRORS = 2.0  # standard errors above zero that are asked for: chance alone reaches them once in 44 fits


def information(records: Sequence[Mapping[str, Any]]) -> Check:
    """Check that the held-out likelihood is better than one that ignores theta.

    Args:
        records: the metrics of the fit; the last one of stage "information" counts.

    Raises:
        NotApplicable: the fit wrote no such record.
    """
    told = [record for record in records if record.get("stage") == "information"]
    if not told:
        raise NotApplicable("the fit did not measure it.")
    nats, error = float(told[-1]["nats"]), float(told[-1]["error"])
    learned = math.isfinite(nats) and math.isfinite(error) and nats >= ERRORS * error and nats > 0
    verdict: Verdict = "good" if learned else "bad"
    advice = (
        f"A simulation says {nats:.2g} nats about the parameters."
        if learned
        else "The fit is no better than ignoring theta: the data carry no information about the parameters, or it was "
        "not learned; the posterior is the prior."
    )
    p_value = float(norm.sf(nats / error)) if error > 0 else float(not learned)
    return Check("information", TITLE, QUESTION, verdict, {"nats": nats, "standard_error": error, "p": p_value}, advice)
