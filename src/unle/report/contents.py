"""What a report says: everything that the template needs, read from the run and its findings.

The page is one HTML file that needs nothing else, neither a network nor a second file.  Everything that comes from a
run (names of parameters, paths, reasons) is escaped by the template; only the figures, which are made here, are put in
as they are.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from unle import plot
from unle.diagnose import Check, Findings, Summary, conditional, rounds, short, summarise
from unle.errors import StoreError
from unle.models import TractableLikelihood
from unle.plot import as_svg, stage_seconds
from unle.posterior import Draws, Posterior
from unle.store import RunDirectory, Tally, read_json, write_atomically

WHOLE = 7.0  # inches of a figure that needs the whole width of the page
NUMBERS_SHOWN = 60  # coordinates of an observation that are written out
DEFAULTED = ("members", "iterations")  # settings that have a default where they are not given
OPTIONS = (  # of `unle run` that take a value
    *("method", "budget", "rounds", "normaliser", "proposals", "flow", "draws", "seed"),
    *("members", "iterations", "timeout", "memory", "summary"),
)
MOST_CONDITIONAL = 12  # parameters; more take minutes
PRIOR_DRAWS = 4000
X_O_FILE = "x_o.json"
FEWEST_PLOTTED = 8  # coordinates of an observation that is drawn


def write_report(
    run: RunDirectory, posterior: Posterior, draws: Draws | None, findings: Findings, path: Path | None = None
) -> Path:
    """Write the report of a run, `report.html` in its directory by default; return the path.

    The observation becomes `x_o.json` in the directory: the command on the page reads it.
    """
    path = run.report if path is None else path
    if run.settings.get("x_o") is not None:
        with suppress(StoreError):  # the directory may be somebody else's; the page has the file, too
            write_atomically(run.path / X_O_FILE, observation_file(run.settings).encode())
    page = render(contents(run, posterior, draws, findings))
    write_atomically(path, page.encode())
    return path


def observation_file(settings: Mapping[str, Any]) -> str:
    """Return the observation of a run as the JSON that `--observation` reads."""
    rows, names = settings["x_o"], settings.get("x_o_names", ())
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    return json.dumps({"x_o": columns or rows})


def render(values: dict) -> str:
    """Fill the report's template."""
    return fill_page(resources.files("unle.report").joinpath("page.html").read_text(encoding="utf-8"), values)


def fill_page(template: str, values: dict) -> str:
    """Fill the text of a template; the style and the script of this room go into the page."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape

    files = resources.files("unle.report")
    parts = {part: files.joinpath(part).read_text(encoding="utf-8") for part in ("style.css", "script.js")}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = Markup  # figures are ours; everything else is escaped
    environment.filters["short"] = short
    environment.filters["words"] = lambda text: Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))
    page = environment.from_string(template)
    return page.render(css=Markup(parts["style.css"]), script=Markup(parts["script.js"]), **values)


@dataclass(frozen=True)
class Picture:
    """A figure on the page."""

    name: str  # unique on the page
    svg: str  # the element
    caption: str  # below it
    alt: str  # what it shows, in a sentence
    whole: bool = False  # whether it takes the whole width of the page


@dataclass(frozen=True)
class Kind:
    """How the picture of a check is made, and what its caption says."""

    draw: Callable[[Check], Any]
    caption: str


# check -> its picture.  A check without an entry is shown by its numbers alone.
KINDS: dict[str, Kind] = {
    "sbc": Kind(plot.rank_curves, "Each curve should stay inside the band; an S is a wrong width, an arch a shift."),
    "coverage": Kind(plot.coverage_curve, "The curve should stay inside the band around the diagonal."),
    "support": Kind(plot.rank_curves, "The curve should not end below the band."),
    "posterior_sbc": Kind(plot.rank_curves, "Each curve should stay inside the band."),
    "nearest": Kind(plot.rank_curves, "Each curve should stay inside the band."),
    "tail_rank": Kind(plot.likelihood_rank, "The line should lie among the replicas, or to the right of them."),
    "tarp": Kind(plot.rank_curves, "The curve should stay inside the band."),
    "local_c2st": Kind(plot.local_probabilities, "The line should lie where chance puts it."),
    "predictive": Kind(plot.predictive, "The observation (diamonds) should lie among its replicas."),
    "outlier": Kind(plot.outlier_distances, "The line should lie among the distances of the simulations."),
    "sampler": Kind(plot.sampler_path, "R-hat near 1, effective draws well above the dashed line."),
    "training": Kind(plot.training_path, "Gains rise and settle, gaps stay between the lines; losses fall and settle."),
    "grid": Kind(plot.density_and_draws, "Both panels should show the same."),
    "ensemble_agreement": Kind(plot.member_means, "Points that scatter little: the members agree."),
    "short_run": Kind(plot.chain_ends, "Both sets of points should look alike (first two principal directions)."),
    "normaliser": Kind(plot.normaliser_spread, "The narrower the better; a spread of 0.15 nats does no harm."),
}


def picture(name: str, figure: Any, caption: str, alt: str) -> Picture:
    """Turn a figure into a picture of the page; a large one takes its whole width."""
    return Picture(name, as_svg(figure, name), caption, alt, bool(figure.get_figwidth() >= WHOLE))


def picture_of(check: Check) -> Picture | None:
    """Return the picture of a check, if it has one."""
    kind = KINDS.get(check.name)
    if kind is None or not check.arrays:
        return None
    numbers = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in check.numbers.items())
    return picture(f"check-{check.name}", kind.draw(check), kind.caption, f"{check.title}: {check.verdict}; {numbers}.")


def prior_rows(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (parameter, distribution) of a prior's description; a block of several shares its line."""
    names = list(spec["names"])
    rows = []
    for block in spec["blocks"]:
        inner = block
        while "base_dist" in inner["arguments"]:
            inner = inner["arguments"]["base_dist"]
        arguments = {key: value for key, value in inner["arguments"].items() if _is_vector(value)}
        length = max((len(value) for value in arguments.values() if isinstance(value, list)), default=1)
        for i in range(length):
            if not names:
                break
            parts = [f"{key} {_entry(value, i):g}" for key, value in arguments.items()]
            rows.append((names.pop(0), f"{inner['family']}({', '.join(parts)})"))
    rows += [(name, "part of a joint distribution") for name in names]
    return rows


def _is_vector(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _entry(value: Any, i: int) -> float:
    return float(value[min(i, len(value) - 1)] if isinstance(value, list) else value)


def command(settings: Mapping[str, Any], directory: str, *, again: bool = True) -> str:
    """Return the command of the run; its observation is the file that lies in the directory.

    Args:
        settings: of the run.
        directory: where it is kept.
        again: make it once more, beside the old one.

    Example:
        >>> command({"model": "model.py", "method": "sunle", "rounds": [500, 250], "seed": 1}, "runs/mine")
        'unle run model.py --method sunle --rounds 500,250 --seed 1 --out runs/mine-again'
    """
    words = ["unle", "run", str(settings.get("model", "MODEL"))]
    brought = settings.get("simulations_sha256") is not None
    for name in OPTIONS:
        value = settings.get(name)
        if value is not None and not (brought and name == "budget"):  # as many as were brought
            words += [f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    words += [f"--{name}" for name in ("sliced", "paper") if settings.get(name)]
    if settings.get("repetition") is not None:
        words.append("--repetition" if settings["repetition"] else "--no-repetition")
    if brought:
        words += ["--simulations", directory]
    if settings.get("x_o") is not None:
        words += ["--observation", str(Path(directory) / X_O_FILE)]
    return shlex.join([*words, "--out", directory.rstrip("/") + ("-again" if again else "")])


def setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings as (name, value), without those that do not apply or have a place of their own."""
    names = {"model_sha256": "check sum of the model", "simulations_sha256": "check sum of the simulations"}
    rows = []
    for name, value in settings.items():
        if name in ("prior", "x_o") or (value is None and name not in DEFAULTED):
            continue
        text = "default" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        rows.append((names.get(name, name.replace("_", " ")), text))
    return rows


def short_number(value: float) -> str:
    """Return four digits, as plain as they can be: 0.1234, 12340, 1.234e-07."""
    return f"{value:.4g}"


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
    """Gather everything for the template."""
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
        "x_o": _observation(x_o, rows.x[rows.valid], findings, posterior.x_names),
        "x_o_file": None if x_o is None else "data:application/json," + quote(observation_file(settings)),
        "answer": None if draws is None else _answer(posterior, draws),
        "sections": [Section(check, picture_of(check)) for check in findings.checks],
        "skipped": findings.skipped,
        "notes": findings.notes,
        "stages": [(name, f"{seconds:.1f}") for name, seconds in stages.items()],
        "total": f"{sum(stages.values()):.0f}",
        "making": _making(metrics, stages),
        "learned": _learned(metrics),
        "rounds": _rounds(rows, x_o),
        "command": command(settings, str(run.path)),
        "made_by": command(settings, str(run.path), again=False),
        "directory": str(run.path),
    }


def _learned(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the fit said of itself: what it took the data for, and what it kept."""
    fitted = next((record for record in metrics[::-1] if record.get("stage") == "fitted"), {})
    return [str(fitted[name]) for name in ("recognised", "sentence") if fitted.get(name)]


def _simulations(tally: Tally, dim_x: int) -> dict[str, Any]:
    return {
        "made": f"{tally.count:,}",
        "invalid": tally.count - tally.valid,
        "dim_x": dim_x,
        "seconds": f"{tally.seconds:.3g}" if tally.seconds else None,
    }


def _observation(
    x_o: np.ndarray | None, simulated: np.ndarray, findings: Findings, names: tuple[str, ...]
) -> dict[str, Any] | None:
    """Return the numbers of the observation and, if they are many, a picture of them."""
    if x_o is None:
        return None
    shown = [[short_number(value) for value in row[:NUMBERS_SHOWN]] for row in x_o[:20]]
    cut = x_o.shape[1] > NUMBERS_SHOWN or len(x_o) > 20
    return {
        "rows": shown,
        "names": names[:NUMBERS_SHOWN],
        "count": len(x_o),
        "dim": x_o.shape[1],
        "cut": cut,
        "picture": _observed(x_o, simulated, findings, names) if x_o.shape[1] >= FEWEST_PLOTTED else None,
    }


def _observed(x_o: np.ndarray, simulated: np.ndarray, findings: Findings, names: tuple[str, ...]) -> Picture:
    found = [check.arrays["replicas"] for check in findings.checks if "replicas" in check.arrays]
    replicas = found[0] if found and np.shape(found[0])[1:] == x_o.shape[1:] else None
    bands = "the grey band holds 95 % of the simulations from the prior"
    bands += "" if replicas is None else ", the blue ones 50 % and 95 % of simulations at posterior draws"
    return picture(
        "observation",
        plot.observation(x_o, simulations=simulated if len(simulated) else None, replicas=replicas, names=names),
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
                "Two parameters at a time, all others held at the dot: what one can make up for in the other. "
                "Numbers are the correlations of these conditional densities: near 1 or -1 the data fix a combination "
                "of the two well, and each of them by itself badly, even where all others are known.",
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
