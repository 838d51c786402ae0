r"""Which energies are trained, and which of the fitted models is kept: the simplest that is as good.

Energies are of three kinds.

1. Theta-free: one function of the residuals for all theta.  All simulations teach it, whatever their theta.  It has no
   weight on t; next to both views of the data (`unle.models.TwoViews`) it sees theta as far as the base moves with it.
2. Theta-free to begin with: training goes on with small steps and may bend the shape with theta, where data ask for it.
   What all theta have in common stays in common, for instance the weights of a likelihood's modes.
3. Full: trained from nothing, whatever theta does to the shape.

Full energies come first: theta-free ones that stop improving far below their gain need not be trained to the end.  The
second is tried where the first has most of what the third gains.  Elsewhere its start leads it astray.

Whether energies are kept at all, and on which bases, is decided by held-out rows that training has not seen.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import keys, on_device, split
from unle.models import (
    AbstractBase,
    Autoregressive,
    EnergyModel,
    Ensemble,
    FixedMeasure,
    NoEnergy,
    length_seen,
    reach_of,
)
from unle.space import ThetaSpace, XSpace
from unle.train import (
    AbstractParticles,
    Certificate,
    DataParticles,
    EnergyFit,
    EnergyTraining,
    JointSpace,
    Rows,
    WarmStart,
    base_scores,
    certify,
    fit_energies,
    fit_noise,
    is_better,
    pair_particles,
    simplest_as_good,
    validate,
)

SIMPLE_SHARE = 0.75  # of the gain of full energies, from which on the residuals say nearly all
KEEP_ERRORS = 2.0  # standard errors of the gain; with one, useless energies would stay one time in six
CONTINUED_SCHEDULE = 0.4  # share of the training schedule, its end, for energies that were theta-free
FEWEST_EFFECTIVE = 50  # draws that an estimate of a normaliser must rest on
TRAINED_SHARE = 0.5  # of the best member's held-out gain; a member with less has not learned what there is to learn
REPLACE_ERRORS = 3.0  # standard errors by which a member must be behind the best, which is so by chance too
FEWEST_ROWS = 10  # of a member, by which it may be found to be behind


class Selected(NamedTuple):
    """The outcome of model selection."""

    choice: "Choice"  # the models that were kept
    fit: EnergyFit  # the training of their energies
    kind: str  # of the energies that were kept; "none" if none were
    why: str  # energies were kept or dropped, in a few words
    noise: bool = False  # whether the bases' residuals have a density of their own

    @property
    def base_is_enough(self) -> bool:
        """Whether bases with Gaussian noise describe the data: energies and other noise gained nothing."""
        return self.kind == "none" and not self.noise and not self.choice.unreliable

    @property
    def is_autoregressive(self) -> bool:
        """Whether the bases describe one coordinate after the other."""
        nodes = jax.tree.leaves(self.choice.models.base, is_leaf=lambda node: isinstance(node, Autoregressive))
        return any(isinstance(node, Autoregressive) for node in nodes)

    @property
    def sentence(self) -> str:
        """One line for the user: what was kept, and why."""
        base = "base with noise that is not Gaussian" if self.noise else "Gaussian base"
        if self.is_autoregressive:
            base = "autoregressive base" + " with noise of its own" * self.noise
        if isinstance(self.choice.models.base, FixedMeasure):
            base = "fixed base measure"
        what = f"{base}, no energy" if self.kind == "none" else f"{base} and energies ({self.kind})"
        return f"Kept: {what}; {self.why}."


class Choice(NamedTuple):
    """The models that were kept."""

    models: EnergyModel  # bases with their energies, or alone; stacked
    log_z: Float[Array, " member"]  # log-normaliser of each member
    gain: float  # held-out likelihood above that of the bases, in nats per row; 0 for the bases alone
    rows: Float[np.ndarray, "member row"] | float = 0.0  # the gain of every row that decided; 0 for the bases alone
    # checks of the normaliser; None for the bases alone, and where draws of the base cannot tell
    certificate: Certificate | None = None
    replaced: int = 0  # how many members had clearly not learned what the best one had, and gave way to it
    unreliable: bool = False  # energies gained, and were dropped because their normaliser cannot be relied on

    @property
    def has_energies(self) -> bool:
        """Whether energies were kept."""
        return self.gain != 0

    def ensemble(self, theta_space: ThetaSpace, x_space: XSpace) -> Ensemble:
        """Return the likelihood of theta and x as they are."""
        return Ensemble(theta_space, x_space, self.models, self.log_z)


def untrained_ensemble(
    spaces: tuple[ThetaSpace, XSpace], bases: AbstractBase, rows: Rows, settings: EnergyTraining
) -> Ensemble:
    """Return an ensemble with the structure and shapes that training on such rows leads to: for compiling a sampler.

    Bases are as energies see them.
    """
    members, sizes = rows.members, (rows.t.shape[1], rows.w.shape[1])
    reach = reach_of(bases, sizes[1], members=members)
    energies = settings.untrained(sizes[0], length_seen(bases, *sizes), members=members, reach=reach)
    return Ensemble(*spaces, EnergyModel(bases, energies), on_device(np.zeros(members)))


def best_energies(
    key: PRNGKeyArray, train: Callable[..., EnergyFit], *, start: WarmStart | None = None
) -> tuple[EnergyFit, str]:
    """Train energies of several kinds, and return the simplest that is as good, and its name.

    `train` trains energies of one kind, as `unle.train.fit_energies` does with sees_theta, start, share and aim.  Full
    energies begin with `start`, if not with nothing.
    """
    key_free, key_full, key_continued = split(key, 3)
    full = train(key_full, sees_theta=True, start=start)
    free = train(key_free, sees_theta=False, aim=full.gain if _clearly_gains(full) else 0.0)
    kinds = {"theta-free": free}
    if _clearly_gains(free) and free.gain >= SIMPLE_SHARE * full.gain:
        begun = WarmStart(free.energies, pair_particles(free.particles))
        kinds["continued"] = train(key_continued, sees_theta=True, start=begun, share=CONTINUED_SCHEDULE)
    kinds["full"] = full
    scores = {name: fit.validation.rows for name, fit in kinds.items() if fit.validation is not None}
    if not scores:  # none is better than the bases
        return full, "full"
    name = list(scores)[simplest_as_good(list(scores.values()))]
    return kinds[name], name


def _clearly_gains(fit: EnergyFit) -> bool:
    """Return whether energies gain more than two standard errors over the bases; False for NaN."""
    return fit.validation is not None and is_better(fit.validation.rows, errors=KEEP_ERRORS)


def select_model(
    key: PRNGKeyArray,  # randomness of trainings and particles
    joint: JointSpace,  # the space of the particles
    bases: AbstractBase,  # the members' bases
    rows: Rows,  # standardised simulations; those of `rows.deciding` decide
    *,
    settings: EnergyTraining,  # of the training of energies
    view: Callable[[AbstractBase], AbstractBase],  # what energies see of bases
    metrics: Callable[..., None],  # takes the record of every chunk of training
    start: WarmStart | None = None,  # what energies on the Gaussian bases begin with, if not with nothing
    # whether members whose training failed give way to the best: a mixture would count them like any other
    replace_failed: bool = False,
) -> Selected:
    """Train energies, and decide whether they are kept, and on which bases.

    The decision is made on rows that the training of energies has not looked at.  (Bases and their noise have, which
    favours the bases.)

    1. Energies on the Gaussian bases, if they raise the held-out likelihood and their normaliser can be relied on.
    2. Where mixtures of normals describe the bases' residuals better than that (heavy tails, several modes in many
       coordinates): these, and energies on top of them if they raise the likelihood once more.
    """
    key_train, key_select, key_noisy, key_noisy_select = split(key, 4)

    def decide(
        key_train: PRNGKeyArray, key_select: PRNGKeyArray, bases: AbstractBase, start: WarmStart | None = None
    ) -> Selected:
        seen, particles = view(bases), settings.particles
        train = partial(
            fit_energies,
            joint=joint,
            bases=seen,
            rows=rows,
            settings=settings,
            on_chunk=lambda record: metrics(stage="training", **record),
        )
        fit, kind = best_energies(key_train, train, start=start)
        choice, why = select_energy(key_select, joint, seen, fit, rows, particles, replace_failed=replace_failed)
        return Selected(choice, fit, kind if choice.has_energies else "none", why)

    best = decide(key_train, key_select, bases, start)
    noisy = fit_noise(bases, rows)
    if noisy is None or not is_better(noisy.gain[:, rows.deciding], best.choice.rows):
        return best
    return decide(key_noisy, key_noisy_select, noisy.bases)._replace(noise=True)


def select_energy(
    key: PRNGKeyArray,
    joint: JointSpace,
    bases: AbstractBase,
    fit: EnergyFit,
    rows: Rows,
    particles: AbstractParticles,
    *,
    replace_failed: bool = False,
) -> tuple[Choice, str]:
    """Keep the energies only if they raise the held-out likelihood, and their normaliser can be relied on.

    The gain must exceed two standard errors, of the rows and of the estimated constants together: where the base is
    right, energies differ from zero by chance alone.  Rows and draws are others than those that training stopped by.
    What is kept is returned, and why, in a few words; arguments are those of `select_model`.
    """
    bases_only = Choice(EnergyModel(bases, NoEnergy()), on_device(np.zeros(rows.members)), 0.0)
    if fit.validation is None:
        return bases_only, "energies did not raise the held-out likelihood in training"
    models = EnergyModel(bases, fit.energies)
    scores = validate(keys(key, rows.members), joint, models, *rows.table, particles, fit.particles).of(rows.deciding)
    ess, draws = np.asarray(scores.ess), particles.normaliser_draws
    gains = np.asarray(scores.rows)
    gain, error = float(gains.mean()), _standard_error(gains, ess, draws)
    unreliable = bases_only._replace(unreliable=gain > 0)
    if not ess.min() * draws > FEWEST_EFFECTIVE:
        return unreliable, f"the normaliser of energies has an effective sample size of {ess.min() * draws:.0f} draws"
    if not gain > KEEP_ERRORS * error:  # also for NaN
        found = f"energies gain {gain:+.3f} nats per held-out row, with a standard error of {error:.3f}"
        return bases_only, f"{found}: the base alone describes the data as well"
    why = f"energies gain {gain:+.2f} nats per held-out row"
    choice = Choice(models, scores.log_z, gain, gains)
    if replace_failed and _clearly_worse(gains).any():
        of_bases = np.asarray(base_scores(bases, *rows.table))[:, rows.deciding]
        choice = _replace_failed_members(choice, gains, of_bases)
    if not isinstance(particles, DataParticles):  # only for these is Z_pi a mean over draws of the base
        return choice, why
    certificate = certificate_of(choice, rows)
    if not certificate.reliable:
        return unreliable, f"the normaliser of energies cannot be relied on: {certificate.doubt}"
    return choice._replace(certificate=certificate), why


def certificate_of(choice: Choice, rows: Rows) -> Certificate:
    """Return the certificate of what was kept; examine it on the rows of the last decision if it has none."""
    if choice.certificate is not None:
        return choice.certificate
    return certify(choice.models, choice.log_z, rows.t, rows.w, np.asarray(rows.splits.held_out)[:, rows.deciding])


def _standard_error(rows: np.ndarray, ess: np.ndarray, draws: int) -> float:
    """Return that of the mean gain: rows differ, and all rows of a member share the error of its constant."""
    of_rows = rows.var(ddof=1) / rows.size  # NaN for a single row, which decides nothing
    of_constants = np.maximum(1 / np.maximum(ess, 1e-12) - 1, 0).sum() / draws / len(ess) ** 2
    return float(np.sqrt(of_rows + of_constants))


def _replace_failed_members(choice: Choice, tilts: np.ndarray, of_bases: np.ndarray) -> Choice:
    """Put the best member in the place of those that are behind by their energies, and by all of their likelihood."""
    best = int(np.argmax((tilts + of_bases).mean(axis=1)))
    failed = _clearly_worse(tilts) & _clearly_worse(tilts + of_bases, share=None)
    chosen = np.where(failed, best, np.arange(len(failed)))
    models, log_z = jax.tree.map(
        lambda leaf: leaf[chosen] if eqx.is_array(leaf) else leaf, (choice.models, choice.log_z)
    )
    return choice._replace(models=models, log_z=log_z, replaced=int(failed.sum()))


def _clearly_worse(rows: np.ndarray, *, share: float | None = TRAINED_SHARE) -> np.ndarray:
    """Return which members score clearly less than the best: than a share of it, if one is given.

    Every member is scored on rows of its own, so the two means have errors that add up.
    """
    if rows.shape[1] < FEWEST_ROWS:
        return np.zeros(len(rows), bool)
    means, errors = rows.mean(axis=1), rows.std(axis=1, ddof=1) / np.sqrt(rows.shape[1])
    best = int(np.argmax(means))
    clearly = means[best] - means > REPLACE_ERRORS * np.hypot(errors, errors[best])
    return clearly if share is None else clearly & (means < share * means[best])
