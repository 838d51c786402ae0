"""Which of the fitted models is kept: the simplest that is as good, by held-out likelihood."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase, Ensemble, FixedMeasure, NoEnergy, TiltedModel
from unle.space import ThetaSpace, XSpace
from unle.space.host_device import keys, on_device, split
from unle.train import (
    AbstractParticles,
    Certificate,
    DataParticles,
    JointSpace,
    Splits,
    TiltedFit,
    Validation,
    base_scores,
    certify,
    fit_noise,
    is_better,
    validate,
)

FEWEST_EFFECTIVE = 50  # draws that an estimate of a normaliser must rest on
STOPPING_SHARE = 0.6  # share of the held-out rows by which training stops; the others are for the last decision alone
TRAINED_SHARE = 0.5  # of the best member's held-out gain; a member with less has not learned what there is to learn
REPLACE_ERRORS = 3.0  # standard errors by which a member must be behind the best, which is so by chance too
FEWEST_ROWS = 10  # of a member, by which it may be found to be behind
KEEP_ERRORS = 2.0  # standard errors of the gain; with one, useless energies would stay one time in six


class Selected(NamedTuple):
    """What a fit came to.

    Attributes:
        choice: the models that were kept.
        fit: the training of their energies.
        kind: of the energies that were kept; "none" if none were.
        why: energies were kept or dropped, in a few words.
        noise: whether the bases' residuals have a density of their own.
    """

    choice: "Choice"
    fit: TiltedFit
    kind: str
    why: str
    noise: bool = False

    @property
    def sentence(self) -> str:
        """One line for the user: what was kept, and why."""
        base = "base with noise that is not Gaussian" if self.noise else "Gaussian base"
        if isinstance(self.choice.models.base, FixedMeasure):
            base = "fixed base measure"
        what = f"{base}, no energy" if self.kind == "none" else f"{base} and energies ({self.kind})"
        return f"Kept: {what}; {self.why}."


class Choice(NamedTuple):
    """The models that were kept.

    Attributes:
        models: bases with their energies, or alone; stacked.
        log_z: log-normaliser of each member.
        gain: held-out likelihood above that of the bases, in nats per row; 0 for the bases alone.
        rows: the gain of every row that decided; 0 for the bases alone.
        certificate: what stands behind the energies; None for the bases alone, and where draws of the base cannot tell.
        replaced: how many members had clearly not learned what the best one had, and gave way to it.
    """

    models: TiltedModel
    log_z: Float[Array, " member"]
    gain: float
    rows: Float[np.ndarray, "member row"] | float = 0.0
    certificate: Certificate | None = None
    replaced: int = 0

    @property
    def has_energies(self) -> bool:
        """Whether energies were kept."""
        return self.gain != 0

    def ensemble(self, theta_space: ThetaSpace, x_space: XSpace) -> Ensemble:
        """Return the likelihood of theta and x as they are."""
        return Ensemble(theta_space, x_space, self.models, self.log_z)


def stopping_rows(held: int) -> int:
    """Return how many of the held-out rows, the first ones, training and the kind of energy are decided by.

    Example:
        >>> from unle.methods.energy_selection import stopping_rows
        >>> [stopping_rows(held) for held in (1, 10, 100)]
        [1, 6, 60]
    """
    return max(1, round(STOPPING_SHARE * held))


def clearly_better(scores: Validation) -> bool:
    """Return whether energies gain more than two standard errors over the bases; False for NaN."""
    return is_better(scores.rows, errors=KEEP_ERRORS)


def simplest_as_good(simple: TiltedFit, full: TiltedFit) -> TiltedFit:
    """Return the simpler energies unless the others are better by more than one standard error.

    Both were scored on the same held-out rows, so their difference row by row has a small standard error.
    """
    if simple.validation is None or full.validation is None:
        return full if simple.validation is None else simple
    return full if is_better(full.validation.rows, simple.validation.rows) else simple


def select_model(
    key: PRNGKeyArray,
    joint: JointSpace,
    bases: AbstractBase,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    *,
    particles: AbstractParticles,
    train: Callable[[PRNGKeyArray, AbstractBase], tuple[TiltedFit, str]],
    view: Callable[[AbstractBase], AbstractBase],
    held: int,
    replace: bool = False,
) -> Selected:
    """Train energies, and decide whether they are kept, and on which bases.

    The decision is made on rows that the training of energies has not looked at.  (Bases and their noise have, which
    favours the bases.)

    1. Energies on the Gaussian bases, if they raise the held-out likelihood and their normaliser can be relied on.
    2. Where mixtures of normals describe the bases' residuals better than that (heavy tails, several modes in many
       coordinates): these, and energies on top of them if they raise the likelihood once more.

    Args:
        key: randomness of trainings and particles.
        joint: the space of the particles.
        bases: the members' bases.
        t: standardised parameters.
        w: standardised data.
        splits: training and held-out rows of every member.
        particles: how constants are estimated.
        train: trains energies on given bases; returns them and the name of their kind.
        view: shows bases to energies.
        held: how many of the held-out rows are not repetitions.
        replace: whether members whose training failed give way to the best: a mixture would count them like any other.
    """
    key_train, key_gate, key_noisy, key_noisy_gate = split(key, 4)
    rows = t, w, splits

    def decide(key_train: PRNGKeyArray, key_gate: PRNGKeyArray, bases: AbstractBase) -> Selected:
        seen = view(bases)
        fit, kind = train(key_train, seen)
        choice, why = select_energy(key_gate, joint, seen, fit, *rows, particles, held=held, replace=replace)
        return Selected(choice, fit, kind if choice.has_energies else "none", why)

    best = decide(key_train, key_gate, bases)
    noisy = fit_noise(bases, t, w, Splits(splits.train, splits.held_out[:, :held]))
    if noisy is None:
        return best
    if not is_better(noisy.gain[:, stopping_rows(held) :], best.choice.rows):
        return best
    return decide(key_noisy, key_noisy_gate, noisy.bases)._replace(noise=True)


def select_energy(
    key: PRNGKeyArray,
    joint: JointSpace,
    bases: AbstractBase,
    fit: TiltedFit,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    particles: AbstractParticles,
    *,
    held: int,
    replace: bool = False,
) -> tuple[Choice, str]:
    """Keep the energies only if they raise the held-out likelihood, and their normaliser can be relied on.

    The gain must exceed two standard errors, of the rows and of the estimated constants together: where the base is
    right, energies differ from zero by chance alone.  Rows and draws are others than those that training stopped by.

    Args:
        key: randomness of the particles.
        joint: the space of the particles.
        bases: the members' bases.
        fit: the members' energies.
        t: standardised parameters.
        w: standardised data.
        splits: training and held-out rows of every member.
        particles: how constants are estimated.
        held: how many of the held-out rows are not repetitions.
        replace: see `select_model`.

    Returns:
        What is kept, and why, in a few words.
    """
    members = splits.train.shape[0]
    alone = Choice(TiltedModel(bases, NoEnergy()), on_device(np.zeros(members)), 0.0)
    if fit.validation is None:
        return alone, "energies did not raise the held-out likelihood in training"
    models = TiltedModel(bases, fit.energies)
    scores = validate(keys(key, members), joint, models, t, w, splits, particles, fit.particles)
    decisive = slice(stopping_rows(held), held)
    rows, ess = np.asarray(scores.rows)[:, decisive], np.asarray(scores.ess)
    gain, error = float(rows.mean()), _standard_error(rows, ess, particles.normaliser_draws)
    if not ess.min() * particles.normaliser_draws > FEWEST_EFFECTIVE:
        return alone, f"the normaliser of energies rests on {ess.min() * particles.normaliser_draws:.0f} draws"
    if not gain > KEEP_ERRORS * error:  # also for NaN
        return alone, f"energies gain {gain:+.3f} nats per held-out row, with a standard error of {error:.3f}"
    why = f"energies gain {gain:+.2f} nats per held-out row"
    choice = Choice(models, scores.log_z, gain, rows)
    if replace and _behind(rows).any():
        choice = _with_trained(choice, rows, np.asarray(base_scores(bases, t, w, splits))[:, decisive])
    if not isinstance(particles, DataParticles):  # others have normalisers that draws of the base cannot tell
        return choice, why
    certificate = certify(choice.models, choice.log_z, t, w, np.asarray(splits.held_out)[:, decisive])
    if not certificate.reliable:
        return alone, f"the normaliser of energies cannot be relied on: {certificate.doubt}"
    return choice._replace(certificate=certificate), why


def certificate_of(choice: Choice, t, w, splits: Splits, *, held: int) -> Certificate:
    """Return the certificate of what was kept; examine it on the rows of the last decision if it has none."""
    if choice.certificate is not None:
        return choice.certificate
    decisive = np.asarray(splits.held_out)[:, stopping_rows(held) : held]
    return certify(choice.models, choice.log_z, t, w, decisive)


def _standard_error(rows: np.ndarray, ess: np.ndarray, draws: int) -> float:
    """Return that of the mean gain: rows differ, and all rows of a member share the error of its constant."""
    of_rows = rows.var(ddof=1) / rows.size  # NaN for a single row, which decides nothing
    of_constants = np.maximum(1 / np.maximum(ess, 1e-12) - 1, 0).sum() / draws / len(ess) ** 2
    return float(np.sqrt(of_rows + of_constants))


def _with_trained(choice: Choice, tilts: np.ndarray, of_bases: np.ndarray) -> Choice:
    """Put the best member in the place of those that are behind by their energies, and by all of their likelihood."""
    best = int(np.argmax((tilts + of_bases).mean(axis=1)))
    failed = _behind(tilts) & _behind(tilts + of_bases, share=None)
    chosen = np.where(failed, best, np.arange(len(failed)))
    models, log_z = jax.tree.map(
        lambda leaf: leaf[chosen] if eqx.is_array(leaf) else leaf, (choice.models, choice.log_z)
    )
    return choice._replace(models=models, log_z=log_z, replaced=int(failed.sum()))


def _behind(rows: np.ndarray, *, share: float | None = TRAINED_SHARE) -> np.ndarray:
    """Return which members score clearly less than the best: than a share of it, if one is given.

    Every member is scored on rows of its own, so the two means have errors that add up.
    """
    if rows.shape[1] < FEWEST_ROWS:
        return np.zeros(len(rows), bool)
    means, errors = rows.mean(axis=1), rows.std(axis=1, ddof=1) / np.sqrt(rows.shape[1])
    best = int(np.argmax(means))
    clearly = means[best] - means > REPLACE_ERRORS * np.hypot(errors, errors[best])
    return clearly if share is None else clearly & (means < share * means[best])
