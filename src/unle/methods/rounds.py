r"""Sequential rounds: propose, simulate, fit, and propose again closer to the observation.

A round is two functions, between which a method may train energies:

    open_round     takes the simulations, notices if x_o is lost, and fits bases to the current region;
    close_round    draws the next proposals and writes down what the round did.

A likelihood that is too low at the right parameters is never corrected, as nothing is simulated there.  So every round
asks whether x_o could be one of its simulations.  If it could in an earlier round and no longer can, rounds have lost
it and take a step back: to the region of that earlier round, with more caution, and with simulations around the
parameters whose data came nearest to x_o.  See `unle.methods.round_state`.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unle.arrays import entry_names
from unle.compiling import on_device
from unle.errors import InputError, warn_user
from unle.methods.proposals import FEWEST_EFFECTIVE, Box, draw_around, draw_proposals, supported_power
from unle.methods.region_fit import BaseOptions, RegionFit, fit_region
from unle.methods.round_state import (
    FEWEST_COMPARED,
    AbstractRoundState,
    Round,
    distance_and_width,
    lost,
    nearest,
    observed_rows,
    outlying,
    setbacks,
    setbacks_of,
)
from unle.methods.summarised import Summary, summarise_simulations, with_summary
from unle.methods.training_pairs import FEWEST, apply_space, as_simulations
from unle.models import Tempered, TractableLikelihood, ValidPower, geometric_mean, over_cells, with_validity
from unle.posterior import Posterior, TemperedSmc
from unle.simulators import Simulations
from unle.space import Prior, ThetaSpace, XSpace, fit_theta_space, fit_x_space
from unle.train import AbstractBaseTraining

BASES_ALONE = BaseOptions()
FEWEST_PROPOSALS = 1000  # draws of the tempered posterior from which the next parameters are taken, at least
AROUND_KEY = 40_000  # makes random numbers of their own out of the seed
EXTRA_SHARE = 0.1  # of a round, drawn around the nearest simulations after x_o was lost; doubles with every loss
MOST_EXTRA_SHARE = 0.5


@dataclass(frozen=True)
class RoundState(AbstractRoundState):
    """The state of SUNLE and SNLE between rounds."""

    spaces: tuple[ThetaSpace, XSpace] | None = None  # standardise theta and x by the first round; None before it
    # region around the parameters of every round so far and of the next, in these coordinates
    boxes: tuple[Box, ...] = ()
    # of the latest round; None before the first round, and after a round restored from disk (`recall`)
    fit: RegionFit | None = None
    summary: Summary = None  # of x; after the first round, whose simulations teach it, one that is fitted
    summary_record: dict[str, Any] | None = None  # what there is to write down about it
    raw: Simulations | None = None  # the simulations of all rounds with data as they are, if there is a summary

    @classmethod
    def begin(cls, prior: Prior, x_o: Any, sizes: list[int], *, seed: int, summary: Summary = None) -> "RoundState":
        """Return the state before the first round."""
        rows = observed_rows(x_o, complete=summary is None)
        boxes = (Box.everywhere(prior.dim),)
        return cls(prior, rows, tuple(sizes), seed, x_names=entry_names(x_o), boxes=boxes, summary=summary)

    @property
    def fitting(self) -> RegionFit:
        """The data and the bases of the latest round."""
        if self.fit is None:
            raise InputError("nothing has been fitted yet; try update(state, simulations) first.")
        return self.fit

    @property
    def first_spaces(self) -> tuple[ThetaSpace, XSpace]:
        """What standardises theta and x by the first round."""
        if self.spaces is None:
            raise InputError("there are no simulations yet; try update(state, simulations) first.")
        return self.spaces

    @property
    def proposals_drawn(self) -> int:
        """How many draws of the tempered posterior are made: one number for all rounds, for one compilation."""
        return max([FEWEST_PROPOSALS, *self.sizes[1:]])

    @property
    def steps_back(self) -> int:
        """How often rounds so far went back to an earlier region."""
        return sum(back is not None for back in setbacks_of(self.history))

    def with_simulations(self, simulations: Any) -> tuple["RoundState", Simulations]:
        """Return the state with the simulations of this round; the first round fixes the coordinates."""
        if self.summary is None:
            state, simulations = super().with_simulations(simulations)
        else:
            state, simulations = self._with_summaries(simulations)
        if state.spaces is None:
            theta, x = state.simulations.valid_theta, state.simulations.valid_x
            state = replace(state, spaces=(fit_theta_space(theta), fit_x_space(x)))
            if message := state.first_spaces[1].observation_warning(state.x_o):
                warn_user(f"{message}: later rounds may come closer.")
        return state, simulations

    def _with_summaries(self, simulations: Any) -> tuple["RoundState", Simulations]:
        """Return the state with summaries of the simulations, and, from the first round on, of x_o."""
        made = as_simulations(simulations, self.prior)
        if self.raw is not None:
            state = replace(self, raw=Simulations.joined([self.raw, made]))
            return super(RoundState, state).with_simulations(summarise_simulations(self.summary, made))
        x_o = self.in_order_of(made).x_o
        if made.x.shape[1] != x_o.shape[1]:
            raise InputError(f"expected data of length {x_o.shape[1]}, as x_o; got {made.x.shape[1]}.")
        summary, summarised, record = with_summary(self.summary, made, self.prior, seed=self.seed)
        x_o = summary(x_o)
        if not np.isfinite(x_o).all():
            raise InputError(f"expected an x_o with a finite summary; got {x_o}; missing entries have none.")
        state = replace(self, raw=made, x_o=x_o, x_names=(), summary=summary, summary_record=record)
        return super(RoundState, state).with_simulations(summarised)

    def standard_theta(self, theta: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Return parameters in coordinates of the first round."""
        return np.asarray(apply_space(self.first_spaces[0], theta), float)

    def standard_x(self, x: Float[np.ndarray, "n dim_x"]) -> Float[np.ndarray, "n dim_x"]:
        """Return data in coordinates of the first round, followed by those that are not modelled, as they are."""
        first_x = self.first_spaces[1]
        others = np.setdiff1d(np.arange(self.x_o.shape[1]), first_x.modelled)
        return np.column_stack([np.asarray(apply_space(first_x, x), float), np.asarray(x, float)[:, others]])

    def _after(self, done: Round, proposals: Float[np.ndarray, "n dim"]) -> "RoundState":
        state = super()._after(done, proposals)
        box, extra = Box.around(state.standard_theta(proposals)), _draw_around_nearest(state)
        if extra is not None:
            box = box.joined(Box.around(state.standard_theta(extra)))
        return replace(state, extra_proposals=extra, boxes=(*state.boxes, box))


class OpenRound(NamedTuple):
    """A round whose bases are fitted, and whose proposals are not drawn yet."""

    state: RoundState  # with the fit, and without this round in its history
    simulations: Simulations  # of this round
    outlying: float  # how far x_o lies outside of them; see `unle.methods.round_state.outlying`
    back_to: int | None  # the earlier round whose region was fitted, because x_o was lost since; None if it was not
    key_energies: PRNGKeyArray  # for energies that propose
    key_proposals: PRNGKeyArray  # for the draws
    started: float  # time when the round began


def open_round(
    state: RoundState, simulations: Any, *, base: AbstractBaseTraining, members: int, options: BaseOptions = BASES_ALONE
) -> OpenRound:
    """Take the simulations of a round, and fit bases to all simulations of the current region.

    Bases whose residuals are not Gaussian should be given noise that fits them (`options`).  Gaussian noise would be
    too sure of itself, and cut off the tails of a posterior for good.
    """
    started = time.perf_counter()
    state, simulations = state.with_simulations(simulations)
    distance = _distance_outside(state, simulations)
    back_to = setbacks([*(done.outlying for done in state.history), distance])[-1]
    if back_to is not None:
        state = replace(state, carried=None)  # energies of a region without x_o
    keys = jr.split(jr.fold_in(jr.key(state.seed), state.number), 3)
    box = _region_to_fit(state, back_to)
    fit = fit_region(keys[0], state, state.first_spaces, box, base=base, members=members, options=options)
    return OpenRound(replace(state, fit=fit), simulations, distance, back_to, keys[1], keys[2], started)


def close_round(opened: OpenRound, likelihood: TractableLikelihood | None = None, carried: Any = None) -> RoundState:
    """Draw the next proposals, and return the state after the round.

    They are drawn from the likelihood of energies, if it is given, instead of the bases'; `carried` is what its
    training leaves for the next round.
    """
    state, fit = opened.state, opened.state.fitting
    power, proposals = _draw_tempered(opened, likelihood)
    distance, width = distance_and_width(state.first_spaces, opened.simulations, state.x_o, proposals)
    done = Round(
        state.number,
        len(opened.simulations),
        float(opened.simulations.valid.mean()),
        len(fit.rows.t),
        power,
        distance,
        width,
        seconds=time.perf_counter() - opened.started,
        energies=likelihood is not None,
        outlying=opened.outlying,
        autoregressive=fit.is_autoregressive,
    )
    state = replace(state, carried=carried)._after(done, proposals)
    reason = lost(state.history)
    if reason is not None and state.number == len(state.sizes):
        warn_user(reason)
    return state


def _draw_tempered(opened: OpenRound, energies: TractableLikelihood | None) -> tuple[float, np.ndarray]:
    """Draw from the posterior with the largest power of the likelihood that the valid simulations support.

    After a loss twice as many of them must do so, and again twice as many after the next.

    P(valid | theta) is not tempered but squared: see `unle.methods.proposals`.
    """
    state, fit = opened.state, opened.state.fitting
    wanted = FEWEST_EFFECTIVE if opened.back_to is None else FEWEST_EFFECTIVE * 2 ** (state.steps_back + 1)
    likelihood = over_cells(geometric_mean(fit.likelihood if energies is None else energies))
    # Outside of the region that they were trained in, energies are arbitrary: the power is chosen with the region.
    in_region = likelihood if energies is None else with_validity(likelihood, fit.region)
    power = _supported_power(state, in_region, wanted)
    target = fit.restrict(Tempered(likelihood, on_device(power)))
    if fit.validity is not None:
        # P(valid | theta) enters once more, to the power 1 / rows per row, so that parameters that fail are proposed
        # less.  After the last round nothing is simulated: power 0.
        valid_power = on_device(0.0 if state.is_last else 1 / len(state.x_o))
        target = with_validity(target, ValidPower(fit.validity.validity, valid_power))
    posterior = Posterior(state.prior, target, TemperedSmc())
    return power, draw_proposals(opened.key_proposals, posterior, state.x_o, state.proposals_drawn)


def _supported_power(state: RoundState, likelihood: Any, effective: int) -> float:
    """Return the largest power of the likelihood that so many valid simulations support."""
    theta = state.simulations.theta[state.fitting.near(state.simulations)]
    padded = np.resize(theta, (max(state.budget, len(theta)), theta.shape[1]))  # one length, one compilation
    values = np.asarray(_log_likelihoods(likelihood, on_device(padded), on_device(state.x_o)))[: len(theta)]
    return supported_power(values, effective)


@eqx.filter_jit
def _log_likelihoods(likelihood: TractableLikelihood, thetas, rows) -> Float[Array, " n"]:
    prepared = jax.vmap(likelihood.prepare)(rows)

    def one(theta):
        return jnp.sum(jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared))

    return jax.lax.map(one, thetas, batch_size=2048)


def _distance_outside(state: RoundState, simulations: Simulations) -> float:
    """Return how far x_o lies outside of a round's simulations; those at extra proposals do not count."""
    kept = np.array(simulations.valid)
    if state.extra_proposals is not None:
        kept &= ~_rows_in(simulations.theta, state.extra_proposals)
    x = simulations.x[kept] if kept.sum() >= FEWEST_COMPARED else state.simulations.valid_x[-FEWEST_COMPARED:]
    return outlying(state.standard_x(state.x_o), state.standard_x(x), _step_of_whole_numbers(state))


def _step_of_whole_numbers(state: RoundState) -> Float[np.ndarray, " dim_x"]:
    """Return the step from x_o to the next whole number in standard coordinates; 0 where data are not whole.

    Where counts hardly vary, the next count is near nevertheless.
    """
    x, x_o = state.simulations.valid_x, state.x_o
    whole = np.all(x == np.round(x), axis=0) & np.all(x_o == np.round(x_o), axis=0)
    typical, one_step = np.median(x_o, axis=0)[None], np.where(whole, 1.0, 0.0)
    return np.abs(state.standard_x(typical + one_step) - state.standard_x(typical))[0]


def _region_to_fit(state: RoundState, back_to: int | None) -> Box:
    """Return the region to fit.

    It is that of the latest proposals.  After a loss it is that of the earlier round; if a fit there has just led
    astray, the region of the data nearest to x_o, on which no likelihood has an influence.
    """
    if back_to is None:
        return state.boxes[-1]
    around = Box.around(_nearest_theta(state, max(2 * FEWEST, len(state.simulations) // 10)))
    tried = setbacks_of(state.history)[-1] is not None
    return around if tried else state.boxes[back_to].joined(around)


def _nearest_theta(state: RoundState, n: int) -> Float[np.ndarray, "near dim"]:
    """Return the n standardised parameters whose data came nearest to x_o, of all rounds."""
    sims = state.simulations
    rows = nearest(state.standard_x(state.x_o), state.standard_x(sims.valid_x), _step_of_whole_numbers(state), n)
    return state.standard_theta(sims.valid_theta[rows])


def _draw_around_nearest(state: RoundState) -> Float[np.ndarray, "n dim"] | None:
    """Return parameters for a share of the next round after a loss, None otherwise."""
    if setbacks_of(state.history)[-1] is None or state.number == len(state.sizes):
        return None
    n = int(min(EXTRA_SHARE * 2**state.steps_back, MOST_EXTRA_SHARE) * state.sizes[state.number])
    near = _nearest_theta(state, max(FEWEST_EFFECTIVE, 2 * state.prior.dim))
    drawn, centres = draw_around(np.random.default_rng((state.seed, state.number, AROUND_KEY)), near, n)
    inverse = jax.vmap(state.first_spaces[0].inverse)
    theta, own = (np.asarray(inverse(on_device(t)), float) for t in (drawn, centres))
    allowed = np.asarray(jax.vmap(state.prior.contains)(on_device(theta)))
    return np.where(allowed[:, None], theta, own)


def _rows_in(rows: Float[np.ndarray, "n dim"], among: Float[np.ndarray, "m dim"]) -> Bool[np.ndarray, " n"]:
    """Return which rows are equal to one of the others, in single precision."""
    known = {row.tobytes() for row in among.astype(np.float32)}
    return np.array([row.tobytes() in known for row in rows.astype(np.float32)], dtype=bool)
