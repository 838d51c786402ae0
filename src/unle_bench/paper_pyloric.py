"""The paper's figures of the pyloric network, drawn from a run of one's own beside the published curves."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from unle.diagnose import conditional
from unle.models import TractableLikelihood
from unle.plot import conditional_pairs, pairs
from unle.posterior import Draws, Posterior
from unle_bench.figure import Drawn, PaperFigure
from unle_bench.plot import round_curves, voltages
from unle_bench.pyloric.specification import NEURONS, STEP
from unle_bench.pyloric.statistics import OBSERVED, PAPER_NAMES
from unle_bench.pyloric_scores import budget_curve, published_curves, trace_at

COMMAND = "unle run pyloric --method sunle --rounds 50000" + 10 * ",10000"
TEXT = (
    "Valid simulations and energy score of every round, drawn at the number of simulations made before it; then the "
    "rhythm at the posterior's mean and at its most probable parameters; then the posterior itself."
)


def pyloric(
    rounds: Sequence[Float[np.ndarray, "n dim_x"]] = (),
    posterior: Posterior | None = None,
    draws: Draws | None = None,
    *,
    name: str = "this run",
) -> PaperFigure:
    """Draw what there is of a run; without one, the published curves.

    Args:
        rounds: statistics of the simulations of each round, rows with NaN included; the first from the prior.
        posterior: at the end of the run.
        draws: from it.
        name: of the run, for the legend.
    """
    drawn = [_rounds(rounds, name)]
    if posterior is not None and draws is not None:
        drawn += _posterior(posterior, draws)
    how = None if len(rounds) > 1 and draws is not None else COMMAND
    why = "a finished run of it is missing"
    return PaperFigure("pyloric", "The pyloric network", TEXT, drawn, how=how, why=why)


def _rounds(rounds: Sequence[np.ndarray], name: str) -> Drawn:
    published, points = published_curves()
    own = [budget_curve(name, rounds)] if len(rounds) > 1 else []
    numbers = [pair for one in own for pair in zip(one.valid, one.energy, strict=True)]
    said = [f"{100 * valid:.0f} % and {energy:.2f}" for valid, energy in numbers]
    alt = f"Valid rate and energy score, round by round: {', '.join(said) or 'published runs only'}."
    caption = "Dashed: published. The energy score is in units of the first round's standard deviations."
    return Drawn(round_curves([*own, *published], points=points), caption, alt)


def _posterior(posterior: Posterior, draws: Draws) -> list[Drawn]:
    values = np.asarray(draws, float)
    places = {"posterior mean": values.mean(axis=0)}
    has_density = isinstance(posterior.likelihood, TractableLikelihood)
    if has_density:
        places["most probable"] = np.asarray(posterior.map(draws.x_o, draws=draws), float)
    traces, statistics = {}, {}
    for title, theta in places.items():
        traces[title], statistics[title] = trace_at(theta, seed=1)
    options = {"step": STEP, "neurons": NEURONS, "x_o": OBSERVED[:15], "names": PAPER_NAMES}
    found = [
        Drawn(
            voltages(traces, statistics=statistics, **options),
            "Voltages, and statistics as multiples of the animal's; what is missing could not be computed.",
            f"Traces of three neurons at the {' and at the '.join(places)}.",
        ),
        Drawn(
            pairs(draws),
            "Marginals, densities of pairs below the diagonal, correlations above.",
            f"Pair plot of {values.shape[1]} parameters.",
        ),
    ]
    if has_density:
        record = conditional(posterior, draws.x_o, places["most probable"])
        caption = "Two parameters at a time, all others held at the most probable values."
        found.append(Drawn(conditional_pairs(record), caption, "Conditional densities of all pairs of parameters."))
    return found
