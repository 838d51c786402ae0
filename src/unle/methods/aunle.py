r"""Amortized UNLE: an energy-based likelihood from one set of prior simulations, for every observation.

1. Standardise theta and x, with marginal transforms chosen from the data.
2. Fit an ensemble of bases q0(x | theta); if x turns out to be repeated measurements, one base for all of them; if x is
   long, one for its coordinates in turn, where that is better (`unle.train.autoregressive_fit`).  The same is tried for
   short x after step 5, if a Gaussian base alone was not enough.
3. Train the members' energies by maximum likelihood of the tilted joint model p(theta) q0(x | theta) exp(-E) / Z.
4. Keep the energies if they raise the likelihood of rows that their training has not seen, and if their normaliser can
   be relied on (`unle.train.validation`).
5. Where residuals of the base are clearly not Gaussian, and energies do not make up for that, give them a density of
   their own (`unle.train.noise_fit`), and repeat 3 and 4 on top of it.
6. Integrate over the cells of counts and other discrete data (`unle.space.marginals`), or learn their probabilities
   as such, where that is better (`unle.methods.discrete_data`).  Multiply by P(valid | theta) if simulations failed.

Reference: Glaser et al., "Maximum likelihood learning of unnormalized models for simulation-based inference", 2023.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from unle.compiling import meanwhile, split
from unle.errors import InputError
from unle.methods.abstract_method import AbstractAmortised, record_fit, tell_user
from unle.methods.discrete_data import is_coarse, with_probabilities
from unle.methods.energy_selection import Selected, certificate_of, select_model, untrained_ensemble
from unle.methods.paper import PaperAUNLE, joint_particles
from unle.methods.summarised import Summary, check_summary, with_summary
from unle.methods.training_pairs import Pairs, standardised_pairs
from unle.models import AbstractBase, AbstractLikelihood, Repeated, in_two_views, over_cells
from unle.posterior import AbstractPosteriorSampler, Posterior, TemperedSmc, precompile_sampler
from unle.space import Prior
from unle.train import (
    SHORTEST_SERIES,
    AbstractBaseTraining,
    EnergyTraining,
    GaussianTraining,
    JointSpace,
    PairedChains,
    PairedSmc,
    PersistentChains,
    WarmSmc,
    autoregressive_or,
    compile_energies,
    ends_early,
    fit_shared_or_whole,
)


class AUNLE(AbstractAmortised):
    """Fit an unnormalised likelihood to prior simulations; the posterior of any observation follows.

    The defaults are meant for every task, and go beyond the paper.  `AUNLE.paper(prior)` is its algorithm and nothing
    else.

    Args:
        prior: the prior the simulations were drawn from.
        base: how the base density comes about; a fitted conditional Gaussian by default.
        training: how the energies are trained.
        members: size of the ensemble.
        sampler: how the posterior is sampled.
        repetition: whether to look for repeated measurements in x; if it consists of k that are alike and independent
            given theta, one base is fitted to all of them, k times the data.
        autoregressive: whether to try a base that describes one coordinate of x after the other, for data of eight
            numbers or more, and for noise that may end sharply; not with another `base` than the default kind.
        summary: of long data, whose likelihood is learned in place of that of x: a function from one data vector to a
            vector of summaries, or `unle.train.LearnedSummary()`; see docs/summaries.md.

    Example:
        >>> import numpy as np, unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> sims = unle.simulate(lambda theta, rng: theta + 0.1 * rng.normal(), prior, 200, seed=0)
        >>> posterior = unle.AUNLE(prior).fit(sims, seed=1)  # doctest: +SKIP
        >>> draws = posterior.sample([0.3], 1000, seed=2)  # doctest: +SKIP
    """

    prior: Prior
    base: AbstractBaseTraining = GaussianTraining()
    training: EnergyTraining = EnergyTraining()
    members: int = eqx.field(static=True, default=4)
    sampler: AbstractPosteriorSampler = TemperedSmc()
    repetition: bool = eqx.field(static=True, default=True, kw_only=True)
    autoregressive: bool = eqx.field(static=True, default=True, kw_only=True)
    summary: Summary = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        if isinstance(self.prior, Prior) and not isinstance(self.base, AbstractBaseTraining):
            raise InputError(
                f"expected settings of the base density after the prior; got a {type(self.base).__name__}; try "
                "AUNLE(prior), and unle.simulate(simulator, prior, n) for its simulations."
            )
        if self.summary is not None:
            check_summary(self.summary)

    @classmethod
    def paper(
        cls,
        prior: Prior,
        *,
        particles: PersistentChains | WarmSmc | None = None,
        sampler: AbstractPosteriorSampler | None = None,
        **training: Any,
    ) -> PaperAUNLE:
        """Return the algorithm of the paper and nothing else: see docs/paper.md.

        One network on a fixed measure, trained by maximum likelihood of the tilted joint model over inputs that are
        standardised by mean and standard deviation.

        Args:
            prior: the prior that the simulations were drawn from.
            particles: how the model is followed while it trains: `PersistentChains` (MALA) by default, `WarmSmc` for
                the paper's SMC.
            sampler: how the posterior is sampled.
            training: other settings of `unle.train.PaperTraining`, such as iterations and learning_rate.

        Example:
            >>> import unle
            >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
            >>> paper = unle.AUNLE.paper(prior, particles=unle.train.WarmSmc(temperatures=20), iterations=100)
            >>> paper.training.iterations, paper.training.width
            (100, 50)
        """
        method = PaperAUNLE(prior) if sampler is None else PaperAUNLE(prior, sampler=sampler)
        if particles is not None:
            training["particles"] = joint_particles(particles)
        return replace(method, training=replace(method.training, **training))

    def _fit(self, simulations, seed, metrics, memory):
        if self.summary is None:
            return self._fit_to(simulations, seed, metrics, memory)
        summary, simulations, record = with_summary(self.summary, simulations, self.prior, seed=seed)
        if record is not None:
            metrics(**record)
        return replace(self._fit_to(simulations, seed, metrics, None), summary=summary)

    def _fit_to(
        self, simulations: Any, seed: int, metrics: Callable[..., None], memory: int | float | str | None
    ) -> Posterior:
        """Fit the likelihood of data as they are."""
        key_split, key_base, key_energy, key_valid = split(jr.key(seed), 4)
        pairs = self._standardise(key_split, simulations, memory)
        bases = self._better_in_turn(key_base, self._fit_bases(key_base, pairs), pairs, shortest=SHORTEST_SERIES)
        selected = self._train_energies(key_energy, pairs, bases, metrics)
        # Mixtures, one coordinate after the other, may describe what Gaussian bases miss better than energies do.
        if not selected.base_is_enough or ends_early(bases, pairs.rows):
            in_turn = self._better_in_turn(key_base, bases, pairs, shortest=1, gains=selected.choice.rows)
            if in_turn is not bases:
                bases, selected = in_turn, self._train_energies(key_energy, pairs, in_turn, metrics)
        if self._may_be_autoregressive:
            selected = with_probabilities(jr.fold_in(key_base, 2), selected, pairs.rows, pairs.x_space)
        certificate = certificate_of(selected.choice, pairs.rows)
        if pairs.rows.stream is not None:
            metrics(stage="stream", window=len(pairs.rows.t), taken=pairs.rows.stream.taken)
        repeats = bases.repeats if isinstance(bases, Repeated) else 1
        record_fit(metrics, selected, certificate, pairs.x_space, repeats=repeats)
        tell_user(selected, certificate, pairs.x_space)
        ensemble = selected.choice.ensemble(pairs.theta_space, pairs.x_space)
        # A joint model over the prior, fitted to valid rows, has learned p(valid, x | theta): the probability that a
        # simulation is valid is part of it.  Over the parameters of the valid rows (`at_data`) it is not.
        if selected.choice.has_energies and not self.training.particles.at_data:
            return Posterior(self.prior, over_cells(ensemble), self.sampler)
        return Posterior(self.prior, pairs.given_valid(key_valid, ensemble, metrics), self.sampler)

    @property
    def _may_be_autoregressive(self) -> bool:
        return self.autoregressive and isinstance(self.base, GaussianTraining)

    def _standardise(self, key: PRNGKeyArray, simulations: Any, memory: int | float | str | None) -> Pairs:
        pairs = standardised_pairs(
            key,
            simulations,
            self.prior,
            members=self.members,
            memory=memory,
            work=self.base.work_per_row(self.prior.dim),
            repetition=self.repetition,
        )
        if pairs.rows.stream is not None and isinstance(self.training.particles, PairedChains | PairedSmc):
            raise InputError(
                "expected particles that do not belong to single simulations, of which only some are in "
                "memory at a time; try training=EnergyTraining(DataParticles())."
            )
        return pairs

    def _fit_bases(self, key: PRNGKeyArray, pairs: Pairs) -> AbstractBase:
        """Fit one base per member, while the training of energies on such bases is compiled."""
        rows = pairs.rows
        if pairs.cuts:
            return fit_shared_or_whole(key, self.base.fit, rows, cuts=pairs.cuts)
        expected = self.base.untrained(rows.t.shape[1], rows.w.shape[1], members=self.members)

        def compile_training() -> None:
            if expected is not None:
                joint = JointSpace.of(self.prior, pairs.theta_space)
                compile_energies(joint, in_two_views(expected), rows, settings=self.training)

        with meanwhile(compile_training):
            return self.base.fit(key, rows)

    def _better_in_turn(
        self, key: PRNGKeyArray, bases: AbstractBase, pairs: Pairs, *, shortest: int, gains: np.ndarray | float = 0.0
    ) -> AbstractBase:
        """Return bases that describe one coordinate after the other, if they are better than these.

        For `shortest` and `gains` see `unle.train.autoregressive_or`.
        """
        if not self._may_be_autoregressive or is_coarse(pairs.rows, pairs.x_space):  # see `with_probabilities`
            return bases
        standardiser = pairs.x_space.standardiser
        return autoregressive_or(
            bases, jr.fold_in(key, 1), pairs.rows, standardiser=standardiser, shortest=shortest, gains=gains
        )

    def _train_energies(
        self, key: PRNGKeyArray, pairs: Pairs, bases: AbstractBase, metrics: Callable[..., None]
    ) -> Selected:
        """Train energies and select what is kept, while the sampler of such energies is compiled."""

        def expected() -> AbstractLikelihood:
            spaces = pairs.theta_space, pairs.x_space
            return over_cells(untrained_ensemble(spaces, in_two_views(bases), pairs.rows, self.training))

        with precompile_sampler(self.prior, expected, self.sampler):
            return select_model(
                key,
                JointSpace.of(self.prior, pairs.theta_space),
                bases,
                pairs.rows,
                settings=self.training,
                view=in_two_views,
                metrics=metrics,
                replace_failed=True,
            )
