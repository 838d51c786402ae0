"""Which of the fitted models is kept: the simplest that is as good, by held-out likelihood."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase, NoEnergy, TiltedModel
from unle.space.transfer import keys, on_device
from unle.train import AbstractParticles, JointSpace, Splits, TiltedFit, Validation, base_scores, validate

LOWEST_ESS = 0.01  # of the particles that estimate Z_pi: eighty of 8,192 draws of the base
TRAINED = 0.5  # share of the best member's held-out gain, below which a member has not learned what there is to learn
FAR = 3.0  # standard errors; the best is the best of several, by chance too
CLEARLY = 2.0  # standard errors of the gain; with one, energies that are of no use would stay one time in six


class Choice(NamedTuple):
    """The models that were kept.

    Attributes:
        models: bases with their energies, or alone; stacked.
        log_z: log-normaliser of each member.
        gain: held-out likelihood above that of the bases, in nats per row; 0 for the bases alone.
        replaced: how many members had clearly not learned what the best one had, and gave way to it.
    """

    models: TiltedModel
    log_z: Float[Array, " member"]
    gain: float
    replaced: int = 0


def clearly_better(scores: Validation) -> bool:
    """Return whether energies gain more than two standard errors over the bases; False for NaN."""
    rows = np.ravel(np.asarray(scores.rows))
    return bool(np.mean(rows) > CLEARLY * np.std(rows) / np.sqrt(len(rows)))


def simplest_as_good(simple: TiltedFit, full: TiltedFit) -> TiltedFit:
    """Return the simpler energies unless the others are better by more than one standard error.

    Both were scored on the same held-out rows, so their difference row by row has a small standard error.
    """
    if simple.validation is None or full.validation is None:
        return full if simple.validation is None else simple
    difference = np.ravel(np.asarray(full.validation.rows) - np.asarray(simple.validation.rows))
    error = np.std(difference) / np.sqrt(len(difference))
    return full if np.mean(difference) > error else simple


def gated(
    key: PRNGKeyArray,
    joint: JointSpace,
    bases: AbstractBase,
    fit: TiltedFit,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    particles: AbstractParticles,
    *,
    held: int | None = None,
    replace: bool = False,
) -> Choice:
    """Keep the energies only if, with constants estimated afresh, they raise the held-out likelihood.

    The gain must exceed two standard errors: where the base is right, energies differ from zero by chance alone.

    Args:
        key: randomness of the particles.
        joint: the space of the particles.
        bases: the members' bases.
        fit: the members' energies.
        t: standardised parameters.
        w: standardised data.
        splits: training and held-out rows of every member.
        particles: how constants are estimated.
        held: how many of the held-out rows are not repetitions; all by default.
        replace: whether members whose training failed give way to the best: a mixture would count them like any other.
    """
    members = splits.train.shape[0]
    alone = Choice(TiltedModel(bases, NoEnergy()), on_device(np.zeros(members)), 0.0)
    if fit.validation is None:
        return alone
    models = TiltedModel(bases, fit.energies)
    # Other draws than those that chose the chunk: the choice must not flatter itself.
    scores = validate(keys(key, members), joint, models, t, w, splits, particles, fit.particles).of_first(held)
    trusted = float(np.min(np.asarray(scores.ess))) > LOWEST_ESS
    if not (trusted and clearly_better(scores)):
        return alone
    choice = Choice(models, scores.log_z, float(np.mean(scores.rows)))
    if not replace or not _behind(np.asarray(scores.rows)).any():
        return choice
    of_bases = np.asarray(base_scores(bases, t, w, splits))[:, :held]
    return _with_trained(choice, np.asarray(scores.rows), of_bases)


def _with_trained(choice: Choice, tilts: np.ndarray, of_bases: np.ndarray) -> Choice:
    """Put the best member in the place of those that are behind by their energies, and by all of their likelihood."""
    best = int(np.argmax((tilts + of_bases).mean(axis=1)))
    failed = _behind(tilts) & _behind(tilts + of_bases, share=None)
    chosen = np.where(failed, best, np.arange(len(failed)))
    models, log_z = jax.tree.map(
        lambda leaf: leaf[chosen] if eqx.is_array(leaf) else leaf, (choice.models, choice.log_z)
    )
    return Choice(models, log_z, choice.gain, int(failed.sum()))


def _behind(rows: np.ndarray, *, share: float | None = TRAINED) -> np.ndarray:
    """Return which members score clearly less than the best: than a share of it, if one is given.

    Every member is scored on rows of its own, so the two means have errors that add up.
    """
    means, errors = rows.mean(axis=1), rows.std(axis=1) / np.sqrt(rows.shape[1])
    best = int(np.argmax(means))
    clearly = means[best] - means > FAR * np.hypot(errors, errors[best])
    return clearly if share is None else clearly & (means < share * means[best])
