"""What a report says: everything that the template needs, read from the run and its findings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np

from unle import plot
from unle.diagnose import Check, Findings, Summary, conditional, rounds, summarise
from unle.models import TractableLikelihood
from unle.plot import stage_seconds
from unle.posterior import Draws, Posterior
from unle.report.figures import Picture, picture, picture_of
from unle.report.words import NUMBERS_SHOWN, command, prior_rows, setting_rows, short_number
from unle.store import RunDirectory, Tally, read_json

MOST_CONDITIONAL = 12  # parameters; more take minutes
PRIOR_DRAWS = 4000
FEWEST_PLOTTED = 8  # coordinates of an observation that is drawn
HEADLINES = {
    "good": "No check found a reason for doubt.",
    "doubtful": "There are doubts: read the reasons before you use the result.",
    "bad": "Do not use this result yet: at least one check found it wrong.",
}


@dataclass(frozen=True)
class Section:
    """A finding on the page: the check and its picture."""

    check: Check
    picture: Picture | None


def contents(run: RunDirectory, posterior: Posterior, draws: Draws | None, findings: Findings) -> dict[str, Any]:
    """Gather everything for the template.

    Args:
        run: the directory.
        posterior: its fit.
        draws: at the observation, if there is one.
        findings: of its checks.
    """
    record: Mapping[str, Any] = read_json(run.path / "run.json")
    settings, metrics = run.settings, run.read_metrics()
    with run.simulations(read_only=True) as store:
        rows, tally = store.sample(), store.tally()
    x_o = None if draws is None else np.asarray(draws.x_o, float)
    stages = stage_seconds(metrics) | {"check": findings.seconds}
    return {
        "title": f"{settings.get('model', 'A run')}, {str(settings.get('method', '')).upper()}",
        "created": record.get("created", "").replace("T", " ").replace("+00:00", " UTC"),
        "headline": HEADLINES[findings.verdict],
        "standing": findings.standing,
        "reasons": [line.replace("DIR", str(run.path)) for line in findings.reasons],
        "verdict": findings.verdict,
        "prior": prior_rows(settings["prior"]) if "prior" in settings else [],
        "settings": setting_rows(settings),
        "versions": list(record.get("versions", {}).items()),
        "simulations": _simulations(tally, rows.x.shape[1]),
        "x_o": _observation(x_o, rows.x[rows.valid], findings),
        "x_o_file": None if x_o is None else "data:application/json," + quote(json.dumps({"x_o": x_o.tolist()})),
        "answer": None if draws is None else _answer(posterior, draws),
        "sections": [Section(check, picture_of(check)) for check in findings.checks],
        "skipped": findings.skipped,
        "notes": findings.notes,
        "stages": [(name, f"{seconds:.1f}") for name, seconds in stages.items()],
        "total": f"{sum(stages.values()):.0f}",
        "making": _making(metrics, stages),
        "rounds": _rounds(rows, x_o),
        "command": command(settings, str(run.path)),
        "made_by": command(settings, str(run.path), again=False),
        "directory": str(run.path),
    }


def _simulations(tally: Tally, dim_x: int) -> dict[str, Any]:
    return {
        "made": f"{tally.count:,}",
        "invalid": tally.count - tally.valid,
        "dim_x": dim_x,
        "seconds": f"{tally.seconds:.3g}" if tally.seconds else None,
    }


def _observation(x_o: np.ndarray | None, simulated: np.ndarray, findings: Findings) -> dict[str, Any] | None:
    """Return the numbers of the observation and, if they are many, a picture of them."""
    if x_o is None:
        return None
    shown = [[short_number(value) for value in row[:NUMBERS_SHOWN]] for row in x_o[:20]]
    cut = x_o.shape[1] > NUMBERS_SHOWN or len(x_o) > 20
    return {
        "rows": shown,
        "count": len(x_o),
        "dim": x_o.shape[1],
        "cut": cut,
        "picture": _observed(x_o, simulated, findings) if x_o.shape[1] >= FEWEST_PLOTTED else None,
    }


def _observed(x_o: np.ndarray, simulated: np.ndarray, findings: Findings) -> Picture:
    found = [check.arrays["replicas"] for check in findings.checks if "replicas" in check.arrays]
    replicas = found[0] if found and np.shape(found[0])[1:] == x_o.shape[1:] else None
    bands = "the grey band holds 95 % of the simulations from the prior"
    bands += "" if replicas is None else ", the blue ones 50 % and 95 % of simulations at posterior draws"
    return picture(
        "observation",
        plot.observation(x_o, simulations=simulated if len(simulated) else None, replicas=replicas),
        f"The observation (vermilion), coordinate by coordinate; {bands}.",
        f"The observation, {x_o.shape[1]} numbers, as a line over the simulations.",
    )


def _answer(posterior: Posterior, draws: Draws) -> dict[str, Any]:
    values = np.asarray(draws, np.float32)
    prior = np.asarray(posterior.prior.sample(PRIOR_DRAWS, seed=draws.seed + 1))
    has_density = isinstance(posterior.likelihood, TractableLikelihood)
    highest = np.full(len(draws.names), np.nan)
    if has_density:
        highest = np.asarray(posterior.map(draws.x_o, draws=draws), float)
    found = summarise(draws, prior=prior, mode=highest)
    low, high = np.quantile(values, [0.001, 0.999], axis=0).astype(float)
    names = ", ".join(draws.names)
    pictures = [
        picture(
            "pairs",
            plot.pairs(draws),
            "Every parameter by itself and every pair of them; areas hold 50 % and 95 % of the draws.",
            f"Pair plot of the posterior draws of {names}.",
        ),
        picture(
            "marginals",
            plot.marginals(draws, prior=prior, mode=highest if has_density else None),
            "What was believed before (grey) and after (blue); the triangle marks the most probable theta.",
            f"Marginal posteriors of {names} over their priors.",
        ),
    ]
    room = 0.05 * (high - low)
    bounds = posterior.prior.bounds
    low, high = np.maximum(low - room, bounds[0]), np.minimum(high + room, bounds[1])
    if has_density and 2 < len(draws.names) <= MOST_CONDITIONAL:  # of two parameters the pair plot shows it all
        record = conditional(posterior, draws.x_o, highest, low=low, high=high)
        pictures.append(
            picture(
                "conditional",
                plot.conditional_pairs(record),
                "Two parameters at a time, all others held at the dot: what one can make up for in the other.",
                f"Conditional densities of all pairs of {names}, around the most probable theta.",
            )
        )
    if has_density:
        pictures.append(
            picture(
                "slices",
                plot.likelihood_slices(posterior, draws.x_o, highest, low=low, high=high),
                "The learned log-likelihood along each parameter, all others at the most probable theta.",
                f"Slices of the log-likelihood along {names}.",
            )
        )
    return {"rows": _rows(found), "pictures": pictures, "draws": f"{len(draws):,}", **_evidence(found, draws)}


def _rows(found: Summary) -> list[dict[str, str]]:
    columns = ("mean", "sd", "median", "mode", "low", "high", "hdi_low", "hdi_high")
    return [
        {"name": name, "shrinkage": f"{max(found.shrinkage[i], 0):.0%}"}
        | {column: short_number(getattr(found, column)[i]) for column in columns}
        for i, name in enumerate(found.names)
    ]


def _evidence(found: Summary, draws: Draws) -> dict[str, Any]:
    strongest = []
    dim = len(found.names)
    for i in range(dim):
        for j in range(i):
            strongest.append((abs(found.correlation[i, j]), found.names[j], found.names[i], i, j))
    strongest = sorted(strongest, reverse=True)[:5]
    return {
        "log_evidence": f"{found.log_evidence:.2f}" if np.isfinite(found.log_evidence) else None,
        "log_evidence_error": f"{found.log_evidence_error:.2f}",
        "correlations": [
            (a, b, f"{found.correlation[i, j]:+.2f}", f"{found.partial[i, j]:+.2f}" if dim > 2 else "")
            for _, a, b, i, j in strongest
        ],
    }


def _making(metrics: Any, stages: Mapping[str, float]) -> list[Picture]:
    pictures = []
    if any(record.get("stage") == "training" for record in metrics):
        caption = "Chunk by chunk: the held-out gain should rise and settle, the energy gap stay near zero."
        pictures.append(picture("training", plot.training_curves(metrics), caption, "Curves of the training."))
    if stages:
        alt = "Seconds of each stage: " + ", ".join(f"{name} {value:.0f}" for name, value in stages.items()) + "."
        pictures.append(picture("time", plot.run_time(stages), "Where the time went.", alt))
    return pictures


def _rounds(rows: Any, x_o: np.ndarray | None) -> Picture | None:
    if len(np.unique(rows.round)) < 2:
        return None
    caption = "Round by round: valid simulations, their distance from x_o, and the width of the proposal."
    return picture("rounds", plot.rounds(rounds(rows, x_o)), caption, "Three curves over the rounds.")
