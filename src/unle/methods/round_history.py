"""What rounds did, and what follows from it: was the observation lost on the way, and was it found again?

Everything is computed from the records of the rounds, which are stored: a run that is resumed decides as it did before.
"""

from collections.abc import Sequence
from typing import NamedTuple

from unle.methods.neighbourhood import OUTSIDE

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
    # `unle.methods.neighbourhood.outlying`
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
    last, times = history[-1], sum(back is not None for back in setbacks_of(history))
    good = [done.number for done in history if done.contains]
    if not good:
        return (
            f"x_o lies outside of the simulations of every round, in the last {_far(last)}: the simulator may be "
            "unable to produce it; do not trust the posterior, and check x_o, the prior and the simulator."
        )
    return (
        f"x_o lies outside of the last round's simulations, {_far(last)}, but was among those of round {good[-1] + 1}; "
        f"{times} {'step' if times == 1 else 'steps'} back did not find it again: do not trust the posterior, and try "
        "a larger budget or another seed, or check whether the simulator can produce x_o."
    )


def recovered(history: Sequence[Round]) -> str | None:
    """Return a sentence if rounds lost x_o on the way and found it again, else None."""
    times = [number + 1 for number, back in enumerate(setbacks_of(history)) if back is not None]
    if not times or not history[-1].contains:
        return None
    rounds = "round " + str(times[0]) if len(times) == 1 else "rounds " + ", ".join(str(number) for number in times)
    return f"x_o lay outside of the simulations of {rounds}; after a step back it is among those of the last round."


def _far(done: Round) -> str:
    return f"{min(done.outlying, 1e6):.2g} times as far out as their edge"
