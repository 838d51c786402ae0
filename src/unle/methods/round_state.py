"""The state of a sequential inference: a value.  A round takes one and returns the next.

A user whose simulations happen elsewhere drives the rounds by hand:

    state = method.begin(x_o, budget=1000, rounds=10)
    while state.number < len(state.sizes):
        theta = state.propose()
        state = method.update(state, (theta, my_simulator(theta)))
    run = method.finish(state)
"""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from unle.errors import InputError
from unle.methods.round_history import Round
from unle.methods.simulation_inputs import FEWEST
from unle.simulators import Simulations
from unle.space import Prior, ThetaSpace, XSpace

State = TypeVar("State", bound="AbstractRoundState")


@dataclass(frozen=True)
class AbstractRoundState:
    """What the rounds of every sequential method have in common."""

    prior: Prior  # of theta
    x_o: Float[np.ndarray, "rows dim_x"]  # the observation, in rows
    sizes: tuple[int, ...]  # simulations of each round
    seed: int  # fixes everything but the simulations
    history: tuple[Round, ...] = ()  # what each round so far did
    all_simulations: Simulations | None = None  # of all rounds so far; None before the first
    latest: int = 0  # number of valid simulations in the latest round
    # draws of the latest posterior, from which the next parameters are taken; None before the first
    next_proposals: np.ndarray | None = None
    # further parameters of the next round that are no draws of the posterior; None for none
    extra_proposals: np.ndarray | None = None
    carried: Any = None  # what training left for the next round; None if nothing

    @property
    def number(self) -> int:
        """The round whose simulations are awaited, counted from 0."""
        return len(self.history)

    @property
    def title(self) -> str:
        """The name of that round on the screen."""
        return f"Round {self.number + 1} of {len(self.sizes)}"

    @property
    def is_last(self) -> bool:
        """Whether the budget ends with the round whose simulations are awaited."""
        return self.number == len(self.sizes) - 1

    @property
    def budget(self) -> int:
        """Simulations of all rounds together."""
        return sum(self.sizes)

    @property
    def simulations(self) -> Simulations:
        """The simulations of all rounds so far."""
        if self.all_simulations is None:
            raise InputError("there are no simulations yet; try update(state, simulations) first.")
        return self.all_simulations

    @property
    def proposals(self) -> Float[np.ndarray, "n dim"]:
        """Draws of the (tempered) posterior of the latest round."""
        if self.next_proposals is None:
            raise InputError("nothing has been fitted yet; try update(state, simulations) first.")
        return self.next_proposals

    def propose(self) -> Float[np.ndarray, "n dim"]:
        """Return the parameters to simulate in this round.  The same state always returns the same ones."""
        if self.number >= len(self.sizes):
            raise InputError(f"all {len(self.sizes)} rounds are done; try more rounds or a larger budget.")
        n = self.sizes[self.number]
        if self.next_proposals is None:
            return np.asarray(self.prior.sample(n, seed=self.seed), float)
        order = np.random.default_rng((self.seed, self.number)).permutation(len(self.next_proposals))
        extra = np.empty((0, self.prior.dim)) if self.extra_proposals is None else self.extra_proposals
        return np.concatenate([self.next_proposals[order[: n - len(extra)]], extra])

    def with_simulations(self: State, simulations: Any) -> tuple[State, Simulations]:
        """Return the state with the simulations of this round, and these as a record.

        Raises:
            InputError: too few of them are valid, or their shapes are wrong.
        """
        if not isinstance(simulations, Simulations):
            simulations = Simulations.from_arrays(*simulations)
        if simulations.theta.shape[1] != self.prior.dim or simulations.x.shape[1] != self.x_o.shape[1]:
            raise InputError(
                f"expected {self.prior.dim} parameters and data of length {self.x_o.shape[1]}, as x_o; got "
                f"{simulations.theta.shape[1]} and {simulations.x.shape[1]}."
            )
        joined = Simulations.joined([part for part in (self.all_simulations, simulations) if part is not None])
        if joined.valid.sum() < FEWEST:
            raise InputError(
                f"expected at least {FEWEST} valid simulations by now; got {int(joined.valid.sum())}: "
                f"{joined.summary()} Try larger rounds."
            )
        return replace(self, all_simulations=joined, latest=int(simulations.valid.sum())), simulations

    def recall(
        self: State, simulations: Any, done: Round, proposals: Float[np.ndarray, "n dim"], carried: Any = None
    ) -> State:
        """Return the state after a round that was fitted in an earlier process, with what its training carried over."""
        state, _ = self.with_simulations(simulations)
        return replace(state, carried=carried)._after(done, np.asarray(proposals, float))

    def _after(self: State, done: Round, proposals: Float[np.ndarray, "n dim"]) -> State:
        """Return the state with a round written down, and its proposals."""
        return replace(self, history=(*self.history, done), next_proposals=proposals)


def distance_and_width(
    spaces: tuple[ThetaSpace, XSpace], simulations: Simulations, x_o: np.ndarray, proposals: np.ndarray
) -> tuple[float, float]:
    """Return how far a round's data are from x_o, and how wide its proposals are; see `Round`.

    Both in the spaces that standardise theta and x by the first round.
    """
    theta_space, x_space = spaces
    distance = float("nan")
    if simulations.valid.any():
        w, w_o = (x_space.forward_table(np.asarray(x, float)) for x in (simulations.valid_x, x_o))
        distance = float(np.median(np.sqrt(np.mean((w - w_o.mean(axis=0)) ** 2, axis=1))))
    spread = theta_space.forward_table(np.asarray(proposals, float)).std(axis=0)
    return distance, float(np.exp(np.mean(np.log(np.maximum(spread, 1e-12)))))
