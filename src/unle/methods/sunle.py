r"""Sequential UNLE: an energy-based likelihood, learned in rounds around one observation.

1. Simulate at parameters drawn from the prior, later from the posterior so far, tempered (`unle.methods.proposals`).
2. Fit an ensemble of conditional Gaussians q0(x | theta) to the simulations near the posterior; they make proposals,
   or, where Gaussians are wrong, energies on top of them do.
3. After the last round, train energies on top of them by maximum likelihood,

       q(x | theta) = q0(x | theta) exp(-E(theta, x)) / Z(theta),

   and keep them if they raise the held-out likelihood.  Of the joint model over the parameters that were simulated, Z
   becomes constant; of the conditional model it does not, and has to be learned or cancelled: see
   `unle.methods.normalisers`.

Reference: Glaser et al., "Maximum likelihood learning of unnormalized models for simulation-based inference", 2023.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.methods.ahead import sampler_ahead
from unle.methods.candidates import best_energies
from unle.methods.normalisers import AbstractNormaliser, ByExchange, Fitted, Resolved, Tilted
from unle.methods.paper_sunle import PaperSUNLE
from unle.methods.rounds import Rounds
from unle.methods.selection import (
    Choice,
    certificate_of,
    gated,
    record_fit,
    select_model,
    stopping_rows,
    tell_user,
)
from unle.methods.sequential import AbstractSequential, SequentialRun, round_sizes
from unle.models import AbstractBase, Ensemble, TractableLikelihood, in_one_view
from unle.posterior import AbstractDoublyIntractableSampler, AbstractPosteriorSampler, Posterior, TemperedSmc
from unle.space import Prior
from unle.train import (
    AbstractBaseTraining,
    Carried,
    Frame,
    GaussianTraining,
    JointSpace,
    Splits,
    TiltedFit,
    TiltedTraining,
    WarmStart,
    fit_tilted,
    pad,
    warm_start,
)

WARM_SHARE = 0.25  # of the training schedule, for energies that come from the round before and only propose
TRIALS = (0.2, 0.5)  # of the budget: having simulated so much, see whether energies propose better than the bases


class SUNLE(AbstractSequential):
    """Infer the posterior of one observation in rounds of simulations.

    The defaults go beyond the paper.  `SUNLE.paper(prior, simulator)` is its algorithm and nothing else.

    Args:
        prior: of theta.
        simulator: as for `unle.simulate`; None if simulations are brought by hand (see `begin`).
        base: how bases are fitted.
        members: size of the ensemble.
        normaliser: how energies are trained and their Z(theta) dealt with: `Tilted()`, `Divi()`, `Online()` or
            `ByExchange()`.
        training: how energies are trained, if not as `normaliser` has it.
        sampler: how an ordinary posterior is sampled.
        every_round: whether energies are trained in every round, each from those of the round before, and propose.
            By default wherever, tried twice on the way, they raise the held-out likelihood of the bases, which
            propose otherwise; those energies are tilted.  True: in all rounds, and as `normaliser` has it.  False: in
            none.

    Example:
        >>> import unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> sunle = unle.SUNLE(prior, lambda theta, rng: theta + 0.1 * rng.normal())
        >>> run = sunle.run([0.3], budget=1000, rounds=5)  # doctest: +SKIP
        >>> draws = run.posterior.sample([0.3], 1000)  # doctest: +SKIP
    """

    prior: Prior
    simulator: Callable | None = eqx.field(static=True, default=None)
    base: AbstractBaseTraining = GaussianTraining(batch=256, weight_decay=0.05)
    members: int = eqx.field(static=True, default=5)
    normaliser: AbstractNormaliser = Tilted()
    training: TiltedTraining | None = None
    sampler: AbstractPosteriorSampler = TemperedSmc()
    every_round: bool | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        if self.members < 1:
            raise InputError(f"expected at least one ensemble member; got {self.members}; try members=5.")
        if self.every_round not in (None, True, False):
            raise InputError(f"expected every_round to be True, False or None; got {self.every_round!r}; try None.")

    @classmethod
    def paper(
        cls,
        prior: Prior,
        simulator: Callable | None = None,
        *,
        normaliser: AbstractNormaliser | None = None,
        **training: Any,
    ) -> PaperSUNLE:
        """Return the algorithm of the paper and nothing else: see docs/paper.md.

        Every round trains one conditional energy on a fixed measure, from the energy and the particles of the round
        before, and proposes from the posterior.

        Args:
            prior: of theta.
            simulator: as for `unle.simulate`; None if simulations are brought by hand.
            normaliser: what is done about Z(theta): `ByExchange()` by default, `Divi()` or `Online()`, all as printed.
            training: other settings of `unle.train.PaperTraining`, such as iterations and learning_rate.

        Example:
            >>> import unle
            >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
            >>> simulator = lambda theta, rng: theta + 0.1 * rng.normal()
            >>> paper = unle.SUNLE.paper(prior, simulator, normaliser=unle.Divi(), iterations=100)
            >>> run = paper.run([0.3], budget=1000, rounds=10)  # doctest: +SKIP
        """
        method = PaperSUNLE(prior, simulator, ByExchange() if normaliser is None else normaliser)
        return replace(method, training=replace(method.training, **training))

    def begin(self, x_o: Any, *, budget: int, rounds: int | Sequence[int] = 10, seed: int = 0) -> Rounds:
        """Return the rounds to drive by hand: `propose`, simulate, `add`, and in the end `finish`."""
        refine = {True: self._refine, False: None, None: self._refine_where_it_helps}[self.every_round]
        sizes = round_sizes(budget, rounds)
        return Rounds(self.prior, x_o, sizes, base=self.base, members=self.members, seed=seed, refine=refine)

    def finish(self, state: Rounds, *, on_metrics: Callable[..., None] | None = None) -> SequentialRun:
        """Train the energies on the simulations so far, and return the posterior."""
        likelihood, sampler = self._likelihood(state, on_metrics)
        posterior = Posterior(self.prior, state.focused(likelihood), sampler)
        return SequentialRun(posterior, state.simulations, tuple(state.history))

    def _refine(self, key: PRNGKeyArray, state: Rounds) -> TractableLikelihood | None:
        """Train energies in the middle of the rounds, from those of the round before, and deal with their Z(theta)."""
        key_energies, key_z = jr.split(key)
        fit, choice = self._energies_so_far(key_energies, state, self._settings)
        if choice.gain == 0:
            return None
        return self.normaliser(key_z, _fitted(state, fit, choice)).likelihood

    def _refine_where_it_helps(self, key: PRNGKeyArray, state: Rounds) -> TractableLikelihood | None:
        """Train tilted energies, whose Z(theta) takes no time: in rounds of trial, and after rounds they helped."""
        if state.carried is None and not _is_trial(state):
            return None
        settings = self._settings
        if not isinstance(self.normaliser, Tilted):
            tilted = Tilted().energies
            settings = replace(settings, particles=tilted.particles, learning_rate=tilted.learning_rate)
        _, choice = self._energies_so_far(key, state, settings)
        if choice.gain == 0:
            state.carried = None
            return None
        data = state.fitting
        return Ensemble(data.theta_space, data.x_space, choice.models, choice.log_z)

    def _energies_so_far(self, key: PRNGKeyArray, state: Rounds, settings: TiltedTraining) -> tuple[TiltedFit, Choice]:
        key_fit, key_gate = jr.split(key)
        task = _Task.of(self.prior, state)
        share = 1.0 if state.carried is None else WARM_SHARE
        how = {"bases": task.bases, "settings": settings}
        fit = task.fit(key_fit, **how, sees_theta=True, start=task.warm(state.carried), share=share)
        state.carried = Carried.of(task.frame, fit.energies, fit.particles)
        return fit, task.gate(key_gate, fit, settings)

    @property
    def _settings(self) -> TiltedTraining:
        return self.training or self.normaliser.energies

    def _likelihood(self, state: Rounds, on_metrics):
        key_fit, key_z = jr.split(jr.fold_in(jr.key(state.seed), 10_000))
        task, settings = _Task.of(self.prior, state), self._settings
        # Conditional training can get stuck early on, and tilted energies that proposed are past that; tilted ones
        # themselves are better trained in one go.
        anew = isinstance(self.normaliser, Tilted) and not self.every_round
        start = None if anew else task.warm(state.carried)

        def on_chunk(record):
            if on_metrics is not None:
                on_metrics(stage="training", **record)

        def train(key: PRNGKeyArray, bases: AbstractBase) -> tuple[TiltedFit, str]:
            how = {"bases": bases, "settings": settings, "on_chunk": on_chunk}
            same = jax.tree.structure(bases) == jax.tree.structure(task.bases)  # energies of other bases are no start
            return best_energies(key, partial(task.fit, **how), start=start if same else None)

        with self._sampler_ahead(state, settings):
            selected = select_model(
                key_fit,
                task.joint,
                task.frame.bases,
                *task.rows,
                particles=settings.particles,
                train=train,
                view=in_one_view,
                held=task.held,
            )
        fit, choice = selected.fit, selected.choice
        # Within a narrow last region data may say little about theta, and rightly so: no warning here.
        certificate = certificate_of(choice, *task.rows, held=task.held)._replace(information=None)
        tell_user(selected, certificate)
        if on_metrics is not None:
            record_fit(on_metrics, selected, certificate)
            if state.validity is not None:
                on_metrics(stage="validity", **{k: v for k, v in state.validity._asdict().items() if k != "validity"})
        if selected.kind == "none":  # normalised bases: an ordinary posterior
            data = state.fitting
            return Ensemble(data.theta_space, data.x_space, choice.models, choice.log_z), self.sampler
        resolved = self.normaliser(key_z, _fitted(state, fit, choice))
        if on_metrics is not None:
            errors = {"error": resolved.error, "error_sd": resolved.error_sd, "noise_sd": resolved.noise_sd}
            on_metrics(stage="normalised", **errors)
        return resolved.likelihood, self._sampler(resolved)

    def _sampler(self, resolved: Resolved) -> AbstractPosteriorSampler | AbstractDoublyIntractableSampler:
        return self.sampler if resolved.sampler is None else resolved.sampler

    def _sampler_ahead(self, state: Rounds, settings: TiltedTraining) -> AbstractContextManager[None]:
        """Compile the sampler of tilted energies while they train; of the others the shapes are not known yet."""
        if not isinstance(self.normaliser, Tilted):
            return nullcontext()
        data = state.fitting
        return sampler_ahead(self.prior, settings, data, in_one_view(data.bases), self.sampler, of=state.focused)


class _Task(NamedTuple):
    """The data on which energies are trained, and their coordinates."""

    joint: JointSpace
    frame: Frame
    t: Float[Array, "n dim"]
    w: Float[Array, "n data"]
    splits: Splits
    held: int

    @classmethod
    def of(cls, prior: Prior, state: Rounds) -> "_Task":
        """Take the data of the current region; padded to one length, all rounds share one compiled training."""
        data = state.fitting
        frame = Frame(data.theta_space, data.x_space, data.bases, data.t, jnp.asarray(data.rows))
        rows = pad(data.t, data.w, data.splits, sum(state.sizes))
        return cls(JointSpace.of(prior, data.theta_space), frame, *rows, data.splits.held_out.shape[1])

    @property
    def bases(self) -> AbstractBase:
        """The members' bases, as energies see them."""
        return in_one_view(self.frame.bases)

    def warm(self, carried: Carried | None) -> WarmStart | None:
        """Return energies and particles of the round before in the coordinates of this one."""
        return None if carried is None else warm_start(carried, self.frame, pairs=len(self.t))

    @property
    def rows(self) -> tuple[Array, Array, Splits]:
        """The data, as functions of `unle.train` take them."""
        return self.t, self.w, self.splits

    def fit(self, key: PRNGKeyArray, *, bases: AbstractBase, settings: TiltedTraining, **how: Any) -> TiltedFit:
        """Train one energy per member; see `unle.train.fit_tilted`."""
        stopping = stopping_rows(self.held)
        return fit_tilted(key, self.joint, bases, *self.rows, settings=settings, held=stopping, **how)

    def gate(self, key: PRNGKeyArray, fit: TiltedFit, settings: TiltedTraining) -> Choice:
        """Keep the energies only if they help."""
        return gated(key, self.joint, self.bases, fit, *self.rows, settings.particles, held=self.held)[0]


def _fitted(state: Rounds, fit: TiltedFit, choice: Choice) -> Fitted:
    data, gains = state.fitting, fit.gains
    order = [int(k) for k in np.argsort(-gains)]
    ensemble = Ensemble(data.theta_space, data.x_space, choice.models, choice.log_z)
    if state.number:
        around = state.proposals
    else:  # the simulations of the first round, repeated: as many as there will be proposals
        theta = state.simulations.theta[state.near(state.simulations)]
        around = np.resize(theta, (state.proposed, theta.shape[1]))
    return Fitted(ensemble, order, [float(gains[k]) for k in order], around, fit.particles, data.t)


def _is_trial(state: Rounds) -> bool:
    """Return whether the simulations of the latest round completed one of the shares of the budget."""
    budget, now = sum(state.sizes), sum(state.sizes[: state.number + 1])
    before = now - state.sizes[state.number]
    return any(before < share * budget <= now for share in TRIALS)
