r"""Fit bases to the simulations of one region of theta, as far as their data are near x_o.

A conditional likelihood does not mind which distribution theta came from, so the simulations of all rounds are used, if
they lie in the region that proposals have come to: elsewhere accuracy would be bought with accuracy at the observation.

Where simulations fail, data far from x_o are left out as well.  For every set B of data that holds x_o,

    p(x_o | theta) = p(x_o | theta, x in B) P(x in B | theta),

so a likelihood may be fitted to the simulations in B alone, if the other factor is learned from all of them.  A
simulation that came out far from x_o then counts as a failed one does: it speaks against theta, and does not bend a
density that is needed at x_o only.  The identity is exact, and holds for the fit as far as a density of all data
describes those in B: B should not cut through the data of parameters that matter.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from unle.compiling import on_device
from unle.methods.proposals import Box
from unle.methods.round_state import AbstractRoundState
from unle.methods.training_pairs import FEWEST, apply_space, spread_and_standardise
from unle.models import (
    AbstractBase,
    AlwaysValid,
    Autoregressive,
    EnergyModel,
    Ensemble,
    NoEnergy,
    Region,
    geometric_mean,
    over_cells,
    with_validity,
)
from unle.simulators import Simulations
from unle.space import ThetaSpace, XSpace, add_transforms, restandardise_theta, restandardise_x
from unle.train import (
    SHORTEST_SERIES,
    AbstractBaseTraining,
    Noisy,
    Rows,
    ValidityFit,
    autoregressive_or,
    fit_noise,
    fit_validity,
    make_splits,
)

# Constants that make independent random numbers out of one seed.
HELD_OUT_STREAM = 20_000  # a row is held out from a member in all rounds, or its energies would know the row
CELL_STREAM = 30_000  # a value has the same place in its cell in all rounds
ROUNDING = 1e-4  # a spread that is this part of another is due to rounding
CONSTANT_SCALE = 0.01  # scale of a coordinate that no longer varies, as a part of the first round's


REACH = 3.0  # half-width of B, in distances to x_o that two thirds of the data do not exceed
TWO_THIRDS = 0.683


class BaseOptions(NamedTuple):
    """What is tried beyond the bases of the training."""

    noise: bool = False  # noise that is not Gaussian, where residuals are not
    autoregressive: bool = False  # bases that describe one coordinate of x after the other


class Neighbourhood(NamedTuple):
    """A box B of standardised data around an observation.

    It ends at `reach` beyond the smallest and largest values of the observed rows; infinite in coordinates in which all
    data are equal.
    """

    low: Float[np.ndarray, "data"]
    high: Float[np.ndarray, "data"]
    reach: Float[np.ndarray, "data"]

    @classmethod
    def of(cls, w_o: Float[np.ndarray, "rows data"], w: Float[np.ndarray, "n data"]) -> "Neighbourhood":
        """Return the box for observed rows w_o and data w of the latest proposals; it holds at least half of these."""
        low, high = w_o.min(axis=0), w_o.max(axis=0)
        unit = np.array([_two_thirds(column) for column in np.abs(w - np.median(w_o, axis=0)).T])
        farthest = np.max(np.abs(w - np.clip(w, low, high)) / unit, axis=1)
        return cls(low, high, max(REACH, float(np.median(farthest))) * unit)

    def contains(self, w: Float[np.ndarray, "n data"]) -> Bool[np.ndarray, " n"]:
        """Return which data lie inside."""
        return np.asarray(np.all(np.abs(w - np.clip(w, self.low, self.high)) <= self.reach, axis=1))


class RegionFit(NamedTuple):
    """The data of a region, standardised, and the bases that were fitted to them."""

    theta_space: ThetaSpace  # standardises theta
    x_space: XSpace  # standardises x
    rows: Rows  # simulations of the region, standardised
    indices: Int[np.ndarray, " row"]  # which of the valid simulations of all rounds these are
    bases: AbstractBase  # the members' bases
    noisy: Noisy | None  # the bases with noise that is not Gaussian; None where it is Gaussian, or was not asked for
    region: Region  # where theta was fitted
    first_x_space: XSpace  # standardises x by the first round
    neighbourhood: Neighbourhood | None  # data that count as near x_o; None for all
    validity: ValidityFit | None  # P(valid and near x_o | theta); None if no simulation failed

    @property
    def is_autoregressive(self) -> bool:
        """Whether the bases describe one coordinate after the other."""
        return isinstance(self.bases, Autoregressive)

    @property
    def likelihood(self) -> Ensemble:
        """The likelihood of valid data, by the bases with their noise, without energies; see `restrict`."""
        bases = self.bases if self.noisy is None else self.noisy.bases
        models, zeros = EnergyModel(bases, NoEnergy()), on_device(np.zeros(self.rows.members))
        return Ensemble(self.theta_space, self.x_space, models, zeros)

    def restrict(self, likelihood: Any) -> Any:
        """Return the members' geometric mean, in the region of this fit, times P(valid | theta)."""
        validity = AlwaysValid() if self.validity is None else self.validity.validity
        return with_validity(with_validity(over_cells(geometric_mean(likelihood)), self.region), validity)

    def near(self, simulations: Simulations) -> Bool[np.ndarray, " n"]:
        """Return which simulations count as valid in this fit: they are valid, and their data near x_o."""
        return _near(simulations, self.neighbourhood, self.first_x_space)


def fit_region(
    key: PRNGKeyArray,
    state: AbstractRoundState,
    first_spaces: tuple[ThetaSpace, XSpace],
    box: Box,
    *,
    base: AbstractBaseTraining,
    members: int,
    options: BaseOptions,
) -> RegionFit:
    """Fit one base per member to the valid simulations in a box, as far as they are near x_o.

    `first_spaces` standardise theta and x by the first round; later rounds only shift and scale them.  The box is given
    in these coordinates.
    """
    sims, (first_theta, first_x) = state.simulations, first_spaces
    key_base, key_validity = jr.split(key)
    neighbourhood, validity = _fit_validity(key_validity, state, first_x)
    near = _near(sims, neighbourhood, first_x)[sims.valid]
    standard = np.asarray(apply_space(first_theta, sims.valid_theta), float)
    inside = box.contains(standard) & near
    if inside.sum() < FEWEST:  # a region that few simulations lie in: better too large than too small
        inside = near
    u = np.random.default_rng((state.seed, CELL_STREAM)).uniform(size=sims.valid_x.shape)[inside]
    theta, x = sims.valid_theta[inside], sims.valid_x[inside]
    theta_space, x_space = restandardise_theta(first_theta, theta), _restandardise(first_x, x, u)
    t, w = apply_space(theta_space, theta), _with_noise(spread_and_standardise(x_space, x, u), state.seed)
    indices, key_splits = np.flatnonzero(inside), jr.fold_in(jr.key(state.seed), HELD_OUT_STREAM)
    among = indices, max(state.budget, len(inside))
    rows = Rows(t, w, make_splits(key_splits, len(theta), members=members, among=among))
    bases = base.fit(key_base, rows, capacity=state.budget)
    low, high = standard[inside].min(axis=0), standard[inside].max(axis=0)
    region = Region(first_theta, on_device(low), on_device(high))
    if options.autoregressive and x_space.dim >= SHORTEST_SERIES:
        key_turn, standardiser = jr.fold_in(key_base, 1), x_space.standardiser
        bases = autoregressive_or(bases, key_turn, rows, standardiser=standardiser, capacity=state.budget)
    noisy = fit_noise(bases, rows.padded(state.budget)) if options.noise else None
    return RegionFit(theta_space, x_space, rows, indices, bases, noisy, region, first_x, neighbourhood, validity)


def _near(simulations: Simulations, neighbourhood: Neighbourhood | None, first_x: XSpace) -> Bool[np.ndarray, " n"]:
    counts = np.array(simulations.valid)
    if neighbourhood is not None:
        counts[counts] = neighbourhood.contains(np.asarray(apply_space(first_x, simulations.valid_x), float))
    return counts


def _fit_validity(
    key: PRNGKeyArray, state: AbstractRoundState, first_x: XSpace
) -> tuple[Neighbourhood | None, ValidityFit | None]:
    """Learn P(valid and near x_o | theta), if simulations failed.

    Without failures there is no such factor, and all data are the likelihood's.  The same holds if the data are too few
    to learn where they come out near x_o.
    """
    sims, enough = state.simulations, 2 * FEWEST  # at least half of them are near
    if sims.valid.all():
        return None, None
    neighbourhood = None
    if sims.valid.sum() >= enough:
        latest = sims.valid_x[-max(state.latest, enough) :]
        neighbourhood = Neighbourhood.of(*(np.asarray(apply_space(first_x, x), float) for x in (state.x_o, latest)))

    def fit(neighbourhood: Neighbourhood | None) -> ValidityFit:
        counts = _near(sims, neighbourhood, first_x)
        return fit_validity(key, sims.theta, counts, x=sims.x, capacity=state.budget)

    validity = fit(neighbourhood)
    if neighbourhood is None or validity.depends:
        return neighbourhood, validity
    return None, fit(None)


def _restandardise(first: XSpace, x: Float[np.ndarray, "n dim_x"], u: Float[np.ndarray, "n dim_x"]) -> XSpace:
    """Return the space with means and scales of these data, none of which is due to rounding.

    Close to x_o a coordinate may be the same in nearly all simulations.  Its spread without the few outliers is then
    that of rounding, and dividing by it would put the outliers a million standard deviations away: it is scaled by
    the spread with outliers, and a coordinate that no longer varies at all by a part of its first scale.

    The few simulations of the first round may have shown no outliers where there are some: transforms are chosen again.
    """
    first = add_transforms(first, x, u)
    space = restandardise_x(first, x, u)
    columns, old = np.array((*first.modelled, *first.redundant)), space.standardiser
    spread = np.std(old.forward_table(first.cells.spread(x, u)[:, columns]), axis=0)
    part = CONSTANT_SCALE * np.asarray(first.standardiser.scale) / np.asarray(old.scale)
    wider = np.where(spread < ROUNDING, part, np.where(spread > 1 / ROUNDING, spread, 1.0))
    modelled, redundant = np.split(wider, [first.dim])
    weights, offset = np.asarray(space.weights) * modelled / redundant[:, None], np.asarray(space.offset) / redundant
    return eqx.tree_at(
        lambda s: (s.standardiser.scale, s.weights, s.offset),
        space,
        tuple(on_device(value, old.scale.dtype) for value in (np.asarray(old.scale) * wider, weights, offset)),
    )


def _with_noise(w: Float[Array, "n data"], seed: int) -> Float[Array, "n data"]:
    """Add noise of one standard deviation to coordinates that no longer vary: nothing can be learned from them."""
    values = np.asarray(w)
    constant = np.std(values, axis=0) < ROUNDING
    if not constant.any():
        return w
    noise = np.random.default_rng((seed, CELL_STREAM)).normal(size=values.shape)
    return on_device(np.where(constant, values + noise, values))


def _two_thirds(distances: Float[np.ndarray, " n"]) -> float:
    """Return the distance that two thirds do not exceed; of those that are not zero, where most are."""
    if not distances.any():
        return np.inf
    found = float(np.quantile(distances, TWO_THIRDS))
    return found if found > 0 else float(np.quantile(distances[distances > 0], TWO_THIRDS))
