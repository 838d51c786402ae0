r"""Amortized UNLE: an energy-based likelihood from one set of prior simulations, for every observation.

1. Standardise theta and x, with marginal transforms chosen from the data.
2. Fit an ensemble of bases q0(x | theta); if x turns out to be repeated measurements, one base for all of them.
3. Train the members' energies by maximum likelihood of the tilted joint model p(theta) q0(x | theta) exp(-E) / Z.
4. Keep the energies if they raise the likelihood of rows that their training has not seen, and if their normaliser can
   be relied on (`unle.train.certificate`).  Where residuals of the base are clearly not Gaussian, and energies do not
   make up for that, give them a density of their own (`unle.train.noise_fit`), and try energies on top of it.
5. Multiply by P(valid | theta) if simulations failed.

Reference: Glaser et al., "Maximum likelihood learning of unnormalized models for simulation-based inference", 2023.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax.random as jr
from jaxtyping import PRNGKeyArray

from unle.compiling import cores, meanwhile
from unle.errors import InputError
from unle.methods.ahead import alike, sampler_ahead
from unle.methods.candidates import best_energies
from unle.methods.pairs import standardised_pairs
from unle.methods.paper_aunle import PaperAUNLE, joint_particles
from unle.methods.selection import certificate_of, record_fit, select_model, stopping_rows, tell_user
from unle.models import AbstractBase, Ensemble, Repeated, in_two_views, over_cells
from unle.posterior import AbstractPosteriorSampler, Posterior, TemperedSmc
from unle.space import Prior
from unle.space.host_device import split
from unle.train import (
    AbstractBaseTraining,
    GaussianTraining,
    JointSpace,
    PairedChains,
    PairedSmc,
    PersistentChains,
    TiltedFit,
    TiltedTraining,
    WarmSmc,
    compile_tilted,
    fit_shared_or_whole,
    fit_tilted,
)

CORES_TO_GUESS = 4  # with fewer, a sampler that is compiled for the wrong bases delays the right one


class AUNLE(eqx.Module):
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

    Example:
        >>> import numpy as np, unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> sims = unle.simulate(lambda theta, rng: theta + 0.1 * rng.normal(), prior, 200, seed=0)
        >>> posterior = unle.AUNLE(prior).fit(sims, seed=1)  # doctest: +SKIP
        >>> draws = posterior.sample([0.3], 1000, seed=2)  # doctest: +SKIP
    """

    prior: Prior
    base: AbstractBaseTraining = GaussianTraining()
    training: TiltedTraining = TiltedTraining()
    members: int = eqx.field(static=True, default=4)
    sampler: AbstractPosteriorSampler = TemperedSmc()
    repetition: bool = eqx.field(static=True, default=True, kw_only=True)

    def __check_init__(self):
        if self.members < 1:
            raise InputError(f"expected at least one ensemble member; got {self.members}; try members=4.")

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
            >>> paper = unle.AUNLE.paper(prior, particles=unle.WarmSmc(temperatures=20), iterations=100)
            >>> paper.training.iterations, paper.training.width
            (100, 50)
        """
        method = PaperAUNLE(prior) if sampler is None else PaperAUNLE(prior, sampler=sampler)
        if particles is not None:
            training["particles"] = joint_particles(particles)
        return replace(method, training=replace(method.training, **training))

    def fit(
        self,
        simulations: Any,
        *,
        seed: int = 0,
        on_metrics: Callable[..., None] | None = None,
        memory: int | float | str | None = None,
    ) -> Posterior:
        """Fit the likelihood.

        Args:
            simulations: from `unle.simulate`, or a pair (theta, x) of arrays, one row per simulation, with theta drawn
                from the prior; or an open `SimulationStore`, which may hold more of them than fit in memory.
            seed: fixes the fit: the same simulations in any order (if they fit in memory), on the same kind of machine
                with the same versions, give the same posterior to the bit; other machines round differently.
            on_metrics: called with keyword arguments, once per chunk of training as it ends and once with the
                summary of the fit; `RunDirectory.append_metrics` writes them down.
            memory: bytes, or such as "2GB", that the simulations of a store may take; if they need more, training sees
                them through a window of so many bytes, which is renewed as it goes on. Half of the machine's by
                default. The networks and the library itself take some hundred megabytes besides.

        Returns:
            The posterior, for any observation.
        """
        key_split, key_base, key_energy, key_valid = split(jr.key(seed), 4)
        work = self.base.work_per_row(self.prior.dim)
        how = {"memory": memory, "work": work, "repetition": self.repetition}
        pairs = standardised_pairs(key_split, simulations, self.prior, members=self.members, **how)
        stream, splits = pairs.stream, pairs.splits
        if stream is not None and isinstance(self.training.particles, PairedChains | PairedSmc):
            raise InputError(
                "expected particles that do not belong to single simulations, of which only some are in "
                "memory at a time; try training=TiltedTraining(DataParticles())."
            )
        rows = pairs.t, pairs.w, splits
        settings = {"settings": self.training, "stream": stream}
        sizes = pairs.t.shape[1], pairs.w.shape[1]
        likely = None if pairs.cuts else self.base.untrained(*sizes, members=self.members)
        likely = None if likely is None else in_two_views(likely)

        def compile_training(bases: AbstractBase) -> None:
            compile_tilted(JointSpace.of(self.prior, pairs.theta_space), bases, *rows, **settings)

        def sampler_of(bases: AbstractBase) -> AbstractContextManager[None]:
            return sampler_ahead(self.prior, self.training, pairs, bases, self.sampler, of=over_cells)

        with ExitStack() as ahead:
            guess = likely if cores() >= CORES_TO_GUESS else None
            if guess is not None:
                ahead.enter_context(sampler_of(guess))
            if pairs.cuts:
                bases = fit_shared_or_whole(key_base, self.base.fit, *rows, cuts=pairs.cuts)
            else:
                with nullcontext() if likely is None else meanwhile(partial(compile_training, likely)):
                    bases = self.base.fit(key_base, *rows, stream=stream)
            repeats = bases.repeats if isinstance(bases, Repeated) else 1
            samplers = [] if alike(guess, in_two_views(bases)) else [sampler_of(in_two_views(bases))]

            def on_chunk(record):
                if samplers:  # compiled once training is under way: its own program is waited for, and comes first
                    ahead.enter_context(samplers.pop())
                if on_metrics is not None:
                    on_metrics(stage="training", **record)

            joint, held = JointSpace.of(self.prior, pairs.theta_space), splits.held_out.shape[1]
            how = {"on_chunk": on_chunk, "held": stopping_rows(held), **settings}

            def train(key: PRNGKeyArray, bases: AbstractBase) -> tuple[TiltedFit, str]:
                return best_energies(key, lambda key, **kind: fit_tilted(key, joint, bases, *rows, **how, **kind))

            selected = select_model(
                key_energy,
                joint,
                bases,
                *rows,
                particles=self.training.particles,
                train=train,
                view=in_two_views,
                held=held,
                replace=True,
            )
        choice = selected.choice
        certificate = certificate_of(choice, *rows, held=held)
        if on_metrics is not None and stream is not None:
            on_metrics(stage="stream", window=len(pairs.t), taken=stream.taken)
        if on_metrics is not None:
            record_fit(on_metrics, selected, certificate, repeats=repeats)
        tell_user(selected, certificate)
        ensemble = Ensemble(pairs.theta_space, pairs.x_space, choice.models, choice.log_z)
        # Energies whose particles follow the prior have P(valid | theta) in them: they were fitted to valid rows.
        if selected.kind != "none" and not self.training.particles.at_data:
            return Posterior(self.prior, over_cells(ensemble), self.sampler)
        return Posterior(self.prior, pairs.given_valid(key_valid, ensemble, on_metrics), self.sampler)
