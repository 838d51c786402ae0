r"""The paper's figures of the pyloric network, drawn from a run of one's own beside the published curves.

How close simulations come to the animal is measured as in the papers:

    ES = 2 mean_i |x_i - x_o| - mean_{i != j} |x_i - x_j|,

over valid simulations, fifteen statistics, each divided by its standard deviation over valid simulations of the prior:
twice what Gneiting and Raftery call the energy score. Values depend on that scale: compare only with the same one.
"""

import json
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.spatial.distance import cdist

from unle.diagnose import conditional
from unle.errors import InputError
from unle.models import TractableLikelihood
from unle.plot import conditional_pairs, pairs
from unle.posterior import Draws, Posterior
from unle_bench.paper.figures import Drawn, PaperFigure
from unle_bench.plot import RoundCurve, round_curves, voltages
from unle_bench.pyloric import on_cpu
from unle_bench.pyloric.noise import noise_of
from unle_bench.pyloric.simulators import statistics
from unle_bench.pyloric.specification import NEURONS, SAMPLES, STEP
from unle_bench.pyloric.statistics import OBSERVED, PAPER_NAMES, fifteen

BLOCK = 1000  # rows whose distances are in memory at once


def as_fifteen(x: Float[np.ndarray, "n dim_x"]) -> Float[np.ndarray, "n 15"]:
    """Return the fifteen statistics of rows of eight, fifteen or eighteen."""
    x = np.asarray(x, float)
    return fifteen(x) if x.shape[1] == 8 else x[:, :15]


def prior_scale(x: Float[np.ndarray, "n dim_x"]) -> Float[np.ndarray, "15"]:
    """Return the standard deviations of valid prior simulations, the unit of the energy score."""
    x = as_fifteen(x)
    x = x[np.isfinite(x).all(axis=1)]
    if len(x) < 2:
        raise InputError(f"expected at least two valid simulations of the prior; got {len(x)}.")
    return x.std(axis=0)


def energy_score(
    x: Float[np.ndarray, "n dim_x"], scale: Float[np.ndarray, "15"], x_o: Float[np.ndarray, "15"] = OBSERVED[:15]
) -> float:
    """Return the energy score of simulations; invalid rows are left out.

    Args:
        x: statistics, one row per simulation: eight, fifteen or eighteen.
        scale: of `prior_scale`.
        x_o: the observation, fifteen statistics.
    """
    x = as_fifteen(x) / scale
    x = x[np.isfinite(x).all(axis=1)]
    n = len(x)
    if n < 2:
        return float("nan")
    towards = np.linalg.norm(x - x_o / scale, axis=1).mean()
    among = sum(cdist(x[i : i + BLOCK], x).sum() for i in range(0, n, BLOCK))
    return float(2 * towards - among / (n * (n - 1)))


def budget_curve(
    method: str, rounds: Sequence[Float[np.ndarray, "n dim_x"]], scale: Float[np.ndarray, "15"] | None = None
) -> RoundCurve:
    """Return valid rate and energy score of every round but the first, which is of prior draws.

    Args:
        method: name for the legend.
        rounds: simulated statistics, one array per round, rows with NaN included; the first from the prior.
        scale: of `prior_scale`; by default from the first round.
    """
    scale = prior_scale(rounds[0]) if scale is None else scale
    before = np.cumsum([len(x) for x in rounds])[:-1].astype(float)
    valid = np.array([np.isfinite(x).all(axis=1).mean() for x in rounds[1:]])
    return RoundCurve(method, before, valid, np.array([energy_score(x, scale) for x in rounds[1:]]))


def published_curves() -> tuple[list[RoundCurve], list[tuple[str, float, float]]]:
    """Return the published curves of SUNLE, SNVI and TSNPE, and single results, for `unle_bench.plot.round_curves`."""
    text = files("unle_bench.paper").joinpath("pyloric_published.json").read_text(encoding="utf-8")
    record = json.loads(text)
    curves = [
        RoundCurve(
            one["method"],
            np.array(one["simulations"], float),
            np.array(one["valid"], float),
            np.array([np.nan if value is None else value for value in one["energy"]], float),
            published=True,
        )
        for one in record["curves"]
    ]
    return curves, [(one["method"], float(one["simulations"]), float(one["valid"])) for one in record["points"]]


def trace_at(
    theta: Float[np.ndarray, " dim"], *, seed: int = 0, samples: int = SAMPLES
) -> tuple[Float[np.ndarray, "3 samples"], Float[np.ndarray, "15"]]:
    """Return the voltages and the fifteen statistics of one simulation, for `unle_bench.plot.voltages`.

    By the compiled engine, or by the one in JAX where Numba is not installed; a seed has the same noise in both, and
    hence the same voltages, up to rounding.

    Args:
        theta: the 31 parameters.
        seed: of the noise.
        samples: of the voltages, a multiple of 80; fewer than all for a quick look.
    """
    key = jr.key(seed, impl="threefry2x32")
    if find_spec("numba") is None:
        simulated = jax.device_get(_in_jax(jnp.asarray(theta, float), key, samples))
    else:
        first, second = np.asarray(jr.key_data(key)).tolist()
        noise = noise_of((first, second), samples - 1)
        simulated = on_cpu.run(np.asarray(theta), noise, samples=samples, with_trace=True)
    return np.asarray(simulated.trace, float), statistics(simulated.bursts, "paper")


@partial(jax.jit, static_argnums=2)  # compiled once for all traces of a figure
def _in_jax(theta: Float[Array, " dim"], key: PRNGKeyArray, samples: int) -> Any:
    from unle_bench.pyloric import in_jax

    return in_jax.run(theta, key, samples=samples, with_trace=True)


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
