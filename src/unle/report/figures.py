"""The pictures of a report, each with a title and a sentence for those who cannot see it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unle import plot
from unle.diagnose import Check
from unle.plot import as_svg

WHOLE = 7.0  # inches of a figure that needs the whole width of the page


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
