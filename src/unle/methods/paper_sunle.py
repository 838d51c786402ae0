r"""SUNLE as the paper prints it: algorithm 2, with its settings and nothing else; made by `SUNLE.paper`.

docs/paper.md has the equations, the settings and these lines side by side; `unle.methods.paper_rounds` what a round
does.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx

from unle.errors import InputError, Outcome, UnleWarning
from unle.methods.normalisers import AbstractNormaliser, ByExchange, Divi, Online
from unle.methods.paper_rounds import PaperRounds, ZPart
from unle.methods.sequential import AbstractSequential, SequentialRun, round_sizes
from unle.posterior import WalkingExchange, WarmChains
from unle.space import Prior
from unle.train import DiviChains, PairedChains, PaperTraining

CHAINS = PairedChains(n=1, moves=50, fresh=False, own_steps=True)


class PaperSUNLE(AbstractSequential):
    """The sequential method of the paper.

    Args:
        prior: of theta.
        simulator: as for `unle.simulate`; None if simulations are brought by hand (see `begin`).
        normaliser: what is done about Z(theta): `ByExchange()`, `Divi()` or `Online()`.  The kind decides; of its
            settings, those of the network that learns log Z(theta) are taken.
        training: of the energy in each round.
        exchange: how a posterior is sampled whose Z(theta) is not learned.
        inner_moves: steps of the chain behind each auxiliary draw.
        divi: chains behind the gradients of log Z(theta).
        sampler: how a posterior is sampled whose Z(theta) is learned.
    """

    prior: Prior
    simulator: Callable | None = eqx.field(static=True, default=None)
    normaliser: AbstractNormaliser = ByExchange()
    training: PaperTraining = PaperTraining(CHAINS, iterations=500, look=10, patience=10)
    exchange: WalkingExchange = WalkingExchange()
    inner_moves: int = eqx.field(static=True, default=100)
    divi: DiviChains = DiviChains()
    sampler: WarmChains = WarmChains()

    def __check_init__(self):
        if not isinstance(self.normaliser, ByExchange | Divi | Online):
            raise InputError(
                "expected normaliser to be ByExchange(), Divi() or Online(): conditional energies are trained; got "
                f"{type(self.normaliser).__name__}()."
            )
        if not isinstance(self.training.particles, PairedChains):
            raise InputError("expected particles of each simulated pair; try PaperTraining(PairedChains()).")

    def begin(self, x_o: Any, *, budget: int, rounds: int | Sequence[int] = 10, seed: int = 0) -> PaperRounds:
        """Return the rounds to drive by hand: `propose`, simulate, `add`, and in the end `finish`."""
        training = self.training
        if isinstance(self.normaliser, Online):
            training = replace(training, online=self.normaliser.online)
        return PaperRounds(
            self.prior,
            x_o,
            round_sizes(budget, rounds),
            training=training,
            z=self._z,
            sampler=self.sampler,
            seed=seed,
        )

    def finish(self, state: PaperRounds, *, on_metrics: Callable[..., None] | None = None) -> SequentialRun:
        """Return the posterior of the last round."""
        if state.posterior is None or state.carried is None:
            raise InputError("nothing has been fitted yet; try add(simulations) first.")
        fit = state.fits[-1]
        if on_metrics is not None:
            last = fit.history[-1]
            on_metrics(
                stage="fitted",
                energy="as printed",
                gain=fit.gain,
                outcome=str(fit.outcome),
                steps_back=state.carried.steps_back,
                looks=len(fit.history),
                acceptance=last["acceptance"],
                gap=last["gap"],
            )
        diverged = sum(fit.outcome is Outcome.DIVERGED for fit in state.fits)
        if diverged:
            warnings.warn(
                f"the energy diverged in {diverged} of {len(state.fits)} rounds, and smaller steps did not help: there "
                "the one with the best held-out likelihood before is used; try a smaller learning_rate, or "
                "SUNLE(prior, simulator).",
                UnleWarning,
                stacklevel=2,
            )
        return SequentialRun(state.posterior, state.simulations, tuple(state.history))

    @property
    def _z(self) -> ZPart:
        if isinstance(self.normaliser, ByExchange):
            return ZPart(self.exchange, self.inner_moves, None, self.normaliser.surrogate)
        assert isinstance(self.normaliser, Divi | Online)
        chains = self.divi if isinstance(self.normaliser, Divi) else None
        return ZPart(None, self.inner_moves, chains, self.normaliser.training)
