"""The state of a sequential inference: a value.  A round takes one and returns the next.

A user whose simulations happen elsewhere drives the rounds by hand:

    state = method.begin(x_o, budget=1000, rounds=10)
    while state.number < len(state.sizes):
        theta = state.propose()
        state = method.update(state, (theta, my_simulator(theta)))
    run = method.finish(state)

Rounds may lose the observation on the way: no simulation comes near it any more (`outlying`).  What follows from that
is computed from the records of the rounds, which are stored: a run that is resumed decides as it did before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from unle.arrays import as_array, in_order, with_names
from unle.errors import InputError
from unle.methods.training_pairs import FEWEST
from unle.simulators import Simulations
from unle.space import Prior, ThetaSpace, XSpace

OUTSIDE = 4.0  # of `outlying`, above which an observation is none of the data; 5.8 standard deviations of one normal
NEIGHBOURS = 5  # the distance to the fifth nearest is steadier than that to the nearest
MOST_COMPARED = 2000  # rows: distances are between all pairs
NORMAL_RANGE = 3.29  # between the quantiles 0.05 and 0.95 of a standard normal
ROUNDING = 1e-6  # of a value: a smaller difference is due to single precision
FEWEST_COMPARED = 20  # valid simulations that x_o is compared with; of a smaller round, the latest ones of all rounds
MOST_SETBACKS = 3  # then the simulator may well be unable to produce x_o, and rounds go on as they are


class Round(NamedTuple):
    """What one round did."""

    number: int  # counted from 0
    simulations: int  # made in this round
    valid: float  # share of them that are valid, near x_o or not
    used: int  # simulations of all rounds that were fitted: valid, in the region, and near x_o
    temperature: float  # beta of the next proposals; 1 when the likelihood is not tempered
    distance: float  # median distance of the round's data to x_o, in standard deviations of the first round's
    width: float  # geometric mean of the proposals' widths, relative to the first round's parameters
    seconds: float  # time of fit and proposals
    energies: bool = False  # whether the next proposals are made by energies, not by the bases alone
    # how far x_o lies outside of the round's simulations: about 1 at their edge, and above 4 none of them; see
    # `outlying`
    outlying: float = 0.0
    autoregressive: bool = False  # whether the bases describe one coordinate of x after the other

    @property
    def contains(self) -> bool:
        """Whether x_o could be one of the round's simulations."""
        return self.outlying <= OUTSIDE


def setbacks(outlying: Sequence[float]) -> list[int | None]:
    """Return for every round the earlier one it went back to, because that one's simulations still contained x_o.

    None for a round that did not go back: its own simulations contain x_o, or none before did, or that was tried often
    enough.
    """
    latest_good, times, earlier = None, 0, []
    for number, distance in enumerate(outlying):
        contains = distance <= OUTSIDE
        back_to = None if contains or times == MOST_SETBACKS else latest_good
        earlier.append(back_to)
        times += back_to is not None
        latest_good = number if contains else latest_good
    return earlier


def setbacks_of(history: Sequence[Round]) -> list[int | None]:
    """Return the same for rounds that are done."""
    return setbacks([done.outlying for done in history])


def lost(history: Sequence[Round]) -> str | None:
    """Return a sentence if the simulations of the last round exclude x_o, else None."""
    if not history or history[-1].contains:
        return None
    last = history[-1]
    good = [done.number for done in history if done.contains]
    if not good:
        return (
            f"x_o lies outside of the simulations of every round, in the last {_far(last)}: the simulator may be "
            "unable to produce it; do not trust the posterior, and check x_o, the prior and the simulator."
        )
    return (
        f"x_o lies outside of the last round's simulations, {_far(last)}, but was among those of round {good[-1] + 1}: "
        "do not trust the posterior, and try a larger budget or another seed, or check whether the simulator can "
        "produce x_o."
    )


def recovered(history: Sequence[Round]) -> str | None:
    """Return a sentence if rounds lost x_o on the way and found it again, else None."""
    times = [number + 1 for number, back in enumerate(setbacks_of(history)) if back is not None]
    if not times or not history[-1].contains:
        return None
    rounds = "round " + str(times[0]) if len(times) == 1 else "rounds " + ", ".join(str(number) for number in times)
    return f"x_o lay outside of the simulations of {rounds}, and is among those of the last round again."


def _far(done: Round) -> str:
    return f"{min(done.outlying, 1e6):.2g} times as far out as their edge"


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
    x_names: tuple[str, ...] = ()  # of the entries of x_o, until they are in the order of the simulations'

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
        """Return the state with the simulations of this round, and these as a record."""
        if not isinstance(simulations, Simulations):
            simulations = Simulations.from_arrays(*simulations)
        state = self.in_order_of(simulations)
        if simulations.theta.shape[1] != self.prior.dim or simulations.x.shape[1] != state.x_o.shape[1]:
            raise InputError(
                f"expected simulations of {self.prior.dim} parameters, as the prior, and {state.x_o.shape[1]} data, as "
                f"x_o; got {simulations.theta.shape[1]} parameters and {simulations.x.shape[1]} data; try "
                "x_o with the numbers that the simulator returns, in the same order."
            )
        joined = Simulations.joined([part for part in (self.all_simulations, simulations) if part is not None])
        if joined.valid.sum() < FEWEST:
            raise InputError(
                f"expected at least {FEWEST} valid simulations by now; got {int(joined.valid.sum())}: "
                f"{joined.summary()} Try larger rounds."
            )
        return replace(state, all_simulations=joined, latest=int(simulations.valid.sum())), simulations

    def in_order_of(self: State, simulations: Simulations) -> State:
        """Return the state with the entries of x_o in the order of the simulations', if both have names."""
        if not self.x_names or not simulations.x_names:
            return self
        x_o = in_order(with_names(self.x_o, self.x_names), simulations.x_names)
        return replace(self, x_o=x_o, x_names=())

    def recall(
        self: State, simulations: Any, done: Round, proposals: Float[np.ndarray, "n dim"], carried: Any = None
    ) -> State:
        """Return the state after a round that was fitted in an earlier process, with what its training carried over."""
        state, _ = self.with_simulations(simulations)
        return replace(state, carried=carried)._after(done, np.asarray(proposals, float))

    def _after(self: State, done: Round, proposals: Float[np.ndarray, "n dim"]) -> State:
        """Return the state with a round written down, and its proposals."""
        return replace(self, history=(*self.history, done), next_proposals=proposals)


def observed_rows(x_o: Any, *, complete: bool) -> Float[np.ndarray, "rows dim_x"]:
    """Return the observation of a run in rounds as rows.

    Args:
        x_o: one data vector, or i.i.d. rows.
        complete: refuse missing entries, over which the tempered likelihoods of the rounds cannot integrate.

    Raises:
        InputError: it is something else.
    """
    rows = np.atleast_2d(as_array(x_o, "x_o"))
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(f"expected x_o as one data vector or rows of them; got shape {rows.shape}.")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=0)).tolist()
    if bad and complete:
        raise InputError(
            f"expected a complete x_o for rounds; got NaN or inf in coordinates {bad[:10]}; try a simulator that "
            "leaves them out, or unle.AUNLE, some of whose models can do without."
        )
    return rows


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


def outlying(
    w_o: Float[np.ndarray, "rows data"], w: Float[np.ndarray, "n data"], step: Float[np.ndarray, " data"] | None = None
) -> float:
    r"""Return how far an observation lies outside of data, compared with how far these lie from one another.

    For x_o and for every row of the data, two distances s are taken: the largest over coordinates from the median, in
    standard deviations, and the distance to the fifth nearest row, which notices data off a curve that all others lie
    on.  With the quantiles q of s over the data,

        (s_o - q_50) / max(q_95 - q_50, (q_100 - q_50) / 4)

    is about 1 at the edge of the data, and above 4, `OUTSIDE`, only if x_o is farther out than all of them and four
    times as far as that edge.  The larger of the two numbers is returned.  As x_o and the data are treated alike, this
    holds in any number of dimensions.

    Args:
        w_o: the observed rows; the median of their distances is taken.
        w: the data.
        step: from one possible value to the next, of coordinates with few of them such as counts; 0 for others.  A
            smaller spread than that is no reason to call the next value far.

    Example:
        >>> import numpy as np
        >>> from unle.methods.round_state import OUTSIDE, outlying
        >>> data = np.random.default_rng(0).normal(size=(200, 3))
        >>> within, outside = (outlying(np.array([[first, 0.0, -2.0]]), data) for first in (1.0, 9.0))
        >>> within < 1 < OUTSIDE < outside
        True
    """
    w = w[:MOST_COMPARED]
    least = np.zeros(w.shape[1]) if step is None else step
    spread, centre = _spread(w, least), np.median(w, axis=0)
    z, z_o, cells = (w - centre) / spread, (w_o - centre) / spread, least / spread
    by_coordinate = _beyond(np.median(np.abs(z_o).max(axis=1)), np.abs(z).max(axis=1), least=0.5)
    k = min(NEIGHBOURS, len(w) - 1)
    if k < 1:
        return by_coordinate
    between = _distances(z, z)
    np.fill_diagonal(between, np.inf)
    to_data = float(np.median(np.partition(_distances(z_o, z), k - 1, axis=1)[:, k - 1]))
    half_a_step = 0.5 * float(np.sqrt(np.mean(cells**2)))
    by_neighbours = _beyond(to_data, np.partition(between, k - 1, axis=1)[:, k - 1], least=half_a_step)
    return max(by_coordinate, by_neighbours)


def nearest(
    w_o: Float[np.ndarray, "rows data"], w: Float[np.ndarray, "n data"], step: Float[np.ndarray, " data"], n: int
) -> Int[np.ndarray, " near"]:
    """Return which data are nearest to the mean of the observed rows.

    Which coordinates matter depends on how far one looks: the half that is nearer is kept, distances are taken anew in
    units of what is left, and so on until n are left.
    """
    left, away = np.arange(len(w)), w - w_o.mean(axis=0)
    while len(left) > n:
        distance = np.sum((away[left] / _spread(w[left], step)) ** 2, axis=1)
        left = left[np.argsort(distance, kind="stable")[: max(n, len(left) // 2)]]
    return left


def _spread(w: Float[np.ndarray, "n data"], least: Float[np.ndarray, " data"]) -> Float[np.ndarray, " data"]:
    """Return a standard deviation that outliers do not change much, and not less than what is given."""
    low, high = np.quantile(w, [0.05, 0.95], axis=0)
    spread = np.where(high > low, (high - low) / NORMAL_RANGE, np.std(w, axis=0))
    return np.maximum(np.maximum(spread, least), ROUNDING * np.max(np.abs(w), axis=0) + np.finfo(np.float32).tiny)


def _beyond(observed: float | np.floating, others: Float[np.ndarray, " n"], *, least: float) -> float:
    """Return the distance of the observation above the median of the others', in units of their own."""
    middle, edge, farthest = np.quantile(others, [0.5, 0.95, 1.0])
    unit = max(edge - middle, (farthest - middle) / OUTSIDE, least, ROUNDING)
    return float((observed - middle) / unit)


def _distances(a: Float[np.ndarray, "n data"], b: Float[np.ndarray, "m data"]) -> Float[np.ndarray, "n m"]:
    """Return the root mean square distance over coordinates, between all pairs of rows."""
    squared = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    return np.sqrt(np.maximum(squared, 0.0) / a.shape[1])
