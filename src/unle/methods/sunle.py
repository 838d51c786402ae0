r"""Sequential UNLE: an energy-based likelihood, learned in rounds around one observation.

1. Simulate at parameters drawn from the prior, later from the posterior so far, tempered (`unle.methods.proposals`).
2. Fit an ensemble of conditional Gaussians q0(x | theta) to the simulations near the posterior.  They make proposals,
   with noise that fits their residuals; where Gaussians are wrong otherwise, energies on top of them do.
3. After the last round, train energies on top of them by maximum likelihood,

       q(x | theta) = q0(x | theta) exp(-E(theta, x)) / Z(theta),

   and keep them if they raise the held-out likelihood.  Trained as a joint model over the parameters that were
   simulated, Z becomes constant.  Trained as a conditional model it depends on theta, and has to be learned, or
   cancelled by the exchange algorithm: see `unle.methods.normalisers`.

Reference: Glaser et al., "Maximum likelihood learning of unnormalized models for simulation-based inference", 2023.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from unle.errors import InputError
from unle.methods.abstract_method import (
    AbstractSequential,
    SequentialRun,
    no_metrics,
    record_fit,
    round_sizes,
    tell_user,
)
from unle.methods.discrete_data import with_probabilities
from unle.methods.energy_selection import (
    Choice,
    Selected,
    certificate_of,
    select_energy,
    select_model,
    untrained_ensemble,
)
from unle.methods.normalisers import AbstractNormaliser, ByExchange, Fitted, Tilted
from unle.methods.paper import PaperSUNLE
from unle.methods.region_fit import BaseOptions
from unle.methods.rounds import RoundState, close_round, open_round
from unle.methods.summarised import Summary, check_summary
from unle.methods.training_pairs import record_validity
from unle.models import AbstractLikelihood, AbstractSummary, Ensemble, TractableLikelihood, in_one_view
from unle.posterior import AbstractPosteriorSampler, Posterior, TemperedSmc, precompile_sampler
from unle.space import Prior
from unle.train import (
    AbstractBaseTraining,
    Carried,
    EnergyFit,
    EnergyTraining,
    Frame,
    GaussianTraining,
    JointSpace,
    Rows,
    WarmStart,
    autoregressive_or,
    ends_early,
    fit_energies,
    is_better,
    warm_start,
)

FINAL_FIT_KEY = 10_000  # folded into the seed; larger than any number of a round
WARM_SHARE = 0.25  # of the training schedule, for energies that come from the round before and only propose
PROPOSALS = ("best", "energies", "bases")
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
        proposals: which likelihood makes them.  "best": energies are tried after 20 % and 50 % of the budget, and
            propose from then on as long as they raise the held-out likelihood.  "energies": they are trained in every
            round, by `normaliser`, and propose.  "bases": only these do.
        autoregressive: whether to try bases that describe one coordinate of x after the other, for data of eight
            numbers or more, and for noise that may end sharply; only with the default kinds of `base`, `normaliser` and
            `proposals`.
        summary: of long data, as for `AUNLE`; one that is learned is learned from the first round, and kept.

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
    training: EnergyTraining | None = None
    sampler: AbstractPosteriorSampler = TemperedSmc()
    proposals: str = eqx.field(static=True, default="best", kw_only=True)
    autoregressive: bool = eqx.field(static=True, default=True, kw_only=True)
    summary: Summary = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        if self.summary is not None:
            check_summary(self.summary)
        if self.proposals not in PROPOSALS:
            raise InputError(f"expected proposals to be one of {', '.join(PROPOSALS)}; got {self.proposals!r}.")

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

    def begin(self, x_o: Any, *, budget: int | float, rounds: int | Sequence[int] = 10, seed: int = 0) -> RoundState:
        return RoundState.begin(self.prior, x_o, round_sizes(budget, rounds), seed=seed, summary=self.summary)

    def update(self, state: RoundState, simulations: Any) -> RoundState:
        """Return the state after a round: new bases, energies where these propose, and the next proposals."""
        options = BaseOptions(noise=True, autoregressive=self._tries_autoregressive(state))
        opened = open_round(state, simulations, base=self.base, members=self.members, options=options)
        likelihood, carried = self._proposal_likelihood(opened.key_energies, opened.state)
        return close_round(opened, likelihood, carried)

    def finish(self, state: RoundState, *, on_metrics: Callable[..., None] | None = None) -> SequentialRun:
        """Train the energies on the simulations so far, and return the posterior."""
        key_fit, key_z = jr.split(jr.fold_in(jr.key(state.seed), FINAL_FIT_KEY))
        metrics, region = (no_metrics if on_metrics is None else on_metrics), state.fitting
        selected = self._train_energies(key_fit, state, metrics)
        likelihood, sampler = selected.choice.ensemble(region.theta_space, region.x_space), self.sampler
        if selected.choice.has_energies:
            resolved = self.normaliser(key_z, _fitted(state, selected.fit, likelihood))
            likelihood, sampler = resolved.likelihood, resolved.sampler or self.sampler
            errors = {"error": resolved.error, "error_sd": resolved.error_sd, "noise_sd": resolved.noise_sd}
            metrics(stage="normalised", **errors)
        if state.summary_record is not None:
            metrics(**state.summary_record)
        summary = state.summary if isinstance(state.summary, AbstractSummary) else None
        simulations = state.simulations if state.raw is None else state.raw
        posterior = Posterior(self.prior, region.restrict(likelihood), sampler, summary, simulations.x_names)
        return SequentialRun(posterior, simulations, state.history)

    def _proposal_likelihood(
        self, key: PRNGKeyArray, state: RoundState
    ) -> tuple[TractableLikelihood | None, Carried | None]:
        """Return the likelihood that makes the next proposals, if not the bases', and what the next round starts from.

        By default these are jointly trained energies, whose Z(theta) takes no time, in rounds of trial and after rounds
        in which they helped.
        """
        if state.is_last or self.proposals == "bases":
            return None, state.carried
        if state.fitting.is_autoregressive:  # energies on such bases cannot be carried from round to round
            return None, None
        if self.proposals == "energies":
            key_energies, key_z = jr.split(key)
            fit, choice, carried = self._energies_so_far(key_energies, state, self._settings)
            if not choice.has_energies:
                return None, carried
            ensemble = choice.ensemble(state.fitting.theta_space, state.fitting.x_space)
            return self.normaliser(key_z, _fitted(state, fit, ensemble)).likelihood, carried
        if state.carried is None and not _is_trial(state):
            return None, None
        settings = self._settings
        if not isinstance(self.normaliser, Tilted):
            joint = Tilted().energies
            settings = replace(settings, particles=joint.particles, learning_rate=joint.learning_rate)
        _, choice, carried = self._energies_so_far(key, state, settings)
        if not choice.has_energies:
            return None, None
        noisy, deciding = state.fitting.noisy, state.fitting.rows.deciding
        if noisy is not None and is_better(noisy.gain[:, deciding], choice.rows):
            return None, None
        return choice.ensemble(state.fitting.theta_space, state.fitting.x_space), carried

    def _tries_autoregressive(self, state: RoundState) -> bool:
        """Return whether this round tries bases that describe one coordinate of x after the other.

        As energies are, in rounds of trial, after rounds in which they helped, and at the end.
        """
        if not self._may_be_autoregressive:
            return False
        helped = bool(state.history) and state.history[-1].autoregressive
        return helped or state.is_last or _is_trial(state)

    @property
    def _may_be_autoregressive(self) -> bool:
        """Whether the settings allow for bases that describe one coordinate of x after the other."""
        joint = isinstance(self.normaliser, Tilted) and self.proposals != "energies"
        return joint and self.autoregressive and isinstance(self.base, GaussianTraining)

    def _energies_so_far(
        self, key: PRNGKeyArray, state: RoundState, settings: EnergyTraining
    ) -> tuple[EnergyFit, Choice, Carried]:
        """Train energies in the middle of the rounds, from those of the round before."""
        key_fit, key_select = jr.split(key)
        joint, frame, rows = _energy_data(state)
        bases = in_one_view(frame.bases)
        start = _warm_start(state, frame, rows)
        fit = fit_energies(
            key_fit,
            joint,
            bases,
            rows,
            settings=settings,
            sees_theta=True,
            start=start,
            share=1.0 if start is None else WARM_SHARE,
        )
        choice, _ = select_energy(key_select, joint, bases, fit, rows, settings.particles)
        return fit, choice, Carried.of(frame, fit.energies, fit.particles)

    @property
    def _settings(self) -> EnergyTraining:
        return self.training or self.normaliser.energies

    def _train_energies(self, key: PRNGKeyArray, state: RoundState, metrics: Callable[..., None]) -> Selected:
        """Train energies after the last round, and keep them if they help."""
        (joint, frame, rows), settings = _energy_data(state), self._settings
        # Conditional energies start from those of the round before, which avoids poor local optima.  Jointly trained
        # ones (`Tilted`) start from scratch, which works better for them.
        from_scratch = isinstance(self.normaliser, Tilted) and self.proposals != "energies"
        start = None if from_scratch else _warm_start(state, frame, rows)
        select = partial(select_model, key, joint, rows=rows, settings=settings, view=in_one_view, metrics=metrics)
        with self._sampler_compiled(state, settings):
            selected = select(frame.bases, start=start)
        if self._may_be_autoregressive and (not selected.base_is_enough or ends_early(frame.bases, rows)):
            # Mixtures may describe what the bases miss better than energies do: see `unle.methods.aunle`.
            in_turn = autoregressive_or(
                frame.bases,
                jr.fold_in(key, 1),
                state.fitting.rows,
                standardiser=frame.x_space.standardiser,
                capacity=state.budget,
                shortest=1,
                gains=selected.choice.rows,
            )
            if in_turn is not frame.bases:
                selected = select(in_turn)
        if self._may_be_autoregressive:
            selected = with_probabilities(
                jr.fold_in(key, 2), selected, state.fitting.rows, frame.x_space, capacity=state.budget
            )
        # Within a narrow last region data may say little about theta, and rightly so: no warning here.
        certificate = certificate_of(selected.choice, rows)._replace(information=None)
        tell_user(selected, certificate, frame.x_space)
        record_fit(metrics, selected, certificate, frame.x_space)
        record_validity(metrics, state.fitting.validity)
        return selected

    def _sampler_compiled(self, state: RoundState, settings: EnergyTraining) -> AbstractContextManager[None]:
        """Compile the sampler of jointly trained energies meanwhile; of the others the shapes are not known yet."""
        if not isinstance(self.normaliser, Tilted):
            return nullcontext()
        fit = state.fitting

        def expected() -> AbstractLikelihood:
            spaces = fit.theta_space, fit.x_space
            return fit.restrict(untrained_ensemble(spaces, in_one_view(fit.bases), fit.rows, settings))

        return precompile_sampler(self.prior, expected, self.sampler)


def _energy_data(state: RoundState) -> tuple[JointSpace, Frame, Rows]:
    """Return what energies of the current region are trained in and on; padded rows: all rounds share one program."""
    fit = state.fitting
    frame = Frame(fit.theta_space, fit.x_space, fit.bases, fit.rows.t, jnp.asarray(fit.indices))
    return JointSpace.of(state.prior, fit.theta_space), frame, fit.rows.padded(state.budget)


def _warm_start(state: RoundState, frame: Frame, rows: Rows) -> WarmStart | None:
    """Return energies and particles of the round before, if there are any, in the coordinates of this one."""
    return None if state.carried is None else warm_start(state.carried, frame, pairs=len(rows.t))


def _fitted(state: RoundState, fit: EnergyFit, ensemble: Ensemble) -> Fitted:
    gains = fit.gains
    order = [int(k) for k in np.argsort(-gains)]
    if state.number:
        around = state.proposals
    else:  # the simulations of the first round, repeated: as many as there will be proposals
        theta = state.simulations.theta[state.fitting.near(state.simulations)]
        around = np.resize(theta, (state.proposals_drawn, theta.shape[1]))
    return Fitted(ensemble, order, [float(gains[k]) for k in order], around, fit.particles, state.fitting.rows.t)


def _is_trial(state: RoundState) -> bool:
    """Return whether the simulations of the latest round completed one of the shares of the budget."""
    now = sum(state.sizes[: state.number + 1])
    before = now - state.sizes[state.number]
    return any(before < share * state.budget <= now for share in TRIALS)
