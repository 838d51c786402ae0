r"""Is x_o as likely under the learned model as data that belong to its posterior?

Draw theta_j from the posterior and simulate x_j at each.  If likelihood and posterior are right, then (theta_j, x_o)
has the distribution of (theta_j, x_j), and

    A = mean_j log q(x_o | theta_j)

is nothing special among the log q(x_j | theta_j).  A small rank says that the observation is lost: the posterior went
to a place where the learned likelihood, such as it is there, does not expect data like x_o, or it is much wider than
x_o allows, so that most of its draws do not fit.  The mean varies less than its terms, which `tail_probability_of_mean`
takes into account.  A normaliser Z(theta) that was left out is the same in both, and does no harm.

It does not see a wrong shape, nor a posterior that is too narrow around a good fit.
"""

import numpy as np
from jaxtyping import Float

from unle.diagnose.record import Check, verdict_of
from unle.diagnose.tails import tail_probability_of_mean
from unle.errors import InputError

TITLE = "Likelihood of x_o among that of its replicas"
QUESTION = "Does the learned likelihood fit the observation as well as simulations at the inferred parameters?"
FEWEST = 25


def tail_rank(of_x_o: Float[np.ndarray, " n"], of_replicas: Float[np.ndarray, " m"]) -> Check:
    """Compare log-likelihoods.

    Args:
        of_x_o: log q(x_o | theta_j) at posterior draws.
        of_replicas: log q(x_j | theta_j) of a simulation at each.

    Returns:
        A `Check`; arrays `of_replicas` and `of_x_o`, the latter as its mean.
    """
    of_replicas = np.asarray(of_replicas, float)
    of_replicas = np.where(np.isnan(of_replicas), -np.inf, of_replicas)
    known = of_replicas[np.isfinite(of_replicas)]
    if len(known) < FEWEST:
        raise InputError(f"expected at least {FEWEST} finite log-likelihoods of replicas; got {len(known)}.")
    mean = float(np.mean(of_x_o))
    p_value = tail_probability_of_mean(-known, -mean if np.isfinite(mean) else np.inf)
    verdict = verdict_of(p_value)
    advice = (
        "x_o is as likely as simulations at the inferred parameters."
        if verdict == "good"
        else "x_o is lost: the learned likelihood expects other data at the inferred parameters, or most of them do "
        "not fit x_o; simulate more, near x_o if that is affordable (--method sunle)."
    )
    numbers = {
        "p": p_value,
        "rank": float(np.mean(of_replicas <= mean)),
        "log_likelihood": mean,
        "of_replicas": float(np.median(known)),
        "replicas": len(of_replicas),
    }
    arrays = {"of_replicas": known, "of_x_o": np.array([mean])}
    return Check("tail_rank", TITLE, QUESTION, verdict, numbers, advice, arrays)
