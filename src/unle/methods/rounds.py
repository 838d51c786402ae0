r"""Sequential rounds: propose, simulate, fit, and propose again closer to the observation.

A `Rounds` object is the sequential method without its simulator.  `SUNLE.run` drives it; so can a user whose
simulations happen elsewhere: ask for parameters with `propose`, bring back what came of them with `add`.

Every round fits a conditional likelihood, so it does not matter which distribution theta came from and simulations of
all rounds are used, as far as they lie in the region that proposals have come to: away from it accuracy would be
bought with accuracy at the observation.

A likelihood that is too low at the right parameters is never corrected, as nothing is simulated there.  So every round
asks whether x_o could be one of its simulations.  If it could in an earlier round and no longer can, rounds have lost
it and take a step back: to the region of that earlier round, with more caution, and with simulations around the
parameters whose data came nearest to x_o.  See `unle.methods.history`.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unle.errors import InputError, UnleWarning
from unle.methods.abstract_rounds import AbstractRounds
from unle.methods.history import Round, lost, setbacks
from unle.methods.inputs import FEWEST, apply_space, spread_and_standardise
from unle.methods.neighbourhood import Neighbourhood, nearest, outlying
from unle.methods.proposals import FEWEST_EFFECTIVE, Box, draw_around, draw_proposals, supported_temperature
from unle.models import (
    AlwaysValid,
    Ensemble,
    NoEnergy,
    Region,
    Tempered,
    TiltedModel,
    TractableLikelihood,
    ValidPower,
    geometric_mean,
    over_cells,
    with_validity,
)
from unle.posterior import Posterior, TemperedSmc
from unle.simulators import Simulations
from unle.space import Prior, ThetaSpace, XSpace, fit_theta_space, fit_x_space, restandardise_theta, restandardise_x
from unle.space.host_device import on_device
from unle.train import Carried, Splits, ValidityFit, fit_validity, make_splits

HELD_OUT = 20_000  # of the seed: rows are held out from a member in all rounds, or its energies would know them
PROPOSED = 1000  # draws of the tempered posterior from which proposals are taken, at least
WITHIN_CELLS = 30_000  # of the seed: a value has the same place in its cell in all rounds
ROUNDING = 1e-4  # a spread that is this part of another is due to rounding
AROUND = 40_000  # of the seed: parameters around those whose data came nearest to x_o
STUCK = 0.01  # scale of a coordinate that no longer varies, as a part of the first round's
SHARE_AROUND = 0.1  # of a round's simulations, made around the nearest ones; doubled with every loss,
MOST_AROUND = 0.5  # up to this
FEWEST_COMPARED = 20  # simulations that x_o is compared with; a smaller round borrows from those before


class Fitting(NamedTuple):
    """The data of the current region, standardised.

    Attributes:
        theta_space: standardises theta.
        x_space: standardises x.
        t: standardised parameters.
        w: standardised data.
        splits: training and held-out rows of every member.
        rows: which of the valid simulations of all rounds these are.
        bases: the members' bases.
        likelihood: of valid data, by the bases alone; see `Rounds.focused`.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    t: Float[Array, "rows dim"]
    w: Float[Array, "rows data"]
    splits: Splits
    rows: np.ndarray
    bases: Any
    likelihood: TractableLikelihood


class Rounds(AbstractRounds):
    """The state of a sequential inference.

    Args:
        prior: of theta.
        x_o: the observation, one vector or i.i.d. rows.
        sizes: simulations of each round.
        base: how bases are fitted.
        members: size of the ensemble.
        seed: fixes everything but the simulations.
        refine: takes a key and this object after the fit of every round but the last, and returns a likelihood to
            propose from instead of the bases', or None.

    Attributes:
        carried: what `refine` keeps from round to round.
    """

    def __init__(
        self,
        prior: Prior,
        x_o: Any,
        sizes: list[int],
        *,
        base: Any,
        members: int,
        seed: int,
        refine: Callable[[PRNGKeyArray, "Rounds"], TractableLikelihood | None] | None = None,
    ):
        self.prior, self.sizes, self.base, self.members, self.refine = prior, sizes, base, members, refine
        self.carried: Carried | None = None
        self.x_o = np.atleast_2d(np.asarray(x_o, float))
        self.history: list[Round] = []
        self._simulations: Simulations | None = None
        self._latest = 0  # valid simulations of the latest round
        self._neighbourhood: Neighbourhood | None = None
        self._region: Any = AlwaysValid()
        self.seed = seed
        self.validity: ValidityFit | None = None
        self._spaces: tuple[ThetaSpace, XSpace] | None = None
        self._boxes = [Box.everywhere(prior.dim)]  # around the parameters of every round
        self._around = np.empty((0, prior.dim))  # parameters of the next round that are no proposals
        self._proposals: np.ndarray | None = None
        self._fitting: Fitting | None = None

    def propose(self) -> Float[np.ndarray, "n dim"]:
        """Return the parameters to simulate in this round; asked twice, the same."""
        if self.number >= len(self.sizes):
            raise InputError(f"all {len(self.sizes)} rounds are done; try more rounds or a larger budget.")
        n = self.sizes[self.number]
        if self._proposals is None:
            return np.asarray(self.prior.sample(n, seed=self.seed), float)
        rng = np.random.default_rng((self.seed, self.number))
        own = self._proposals[rng.permutation(len(self._proposals))[: n - len(self._around)]]
        return np.concatenate([own, self._around])

    def add(self, simulations: Any) -> Round:
        """Take the simulations of this round, fit them with all others, and prepare the next proposals.

        Args:
            simulations: a record, or a pair (theta, x).

        Raises:
            InputError: too few of them are valid, or their shapes are wrong.
        """
        start = time.perf_counter()
        simulations = self._take(simulations)
        compared = self._outlying(simulations)
        back = self._step_back(compared)
        key_fit, key_refine, key_propose = jr.split(jr.fold_in(jr.key(self.seed), self.number), 3)
        self._fitting = self._fit(key_fit, self._region_of(back))
        refined = None if self.refine is None or self.is_last else self.refine(key_refine, self)
        beta, proposals = self._proposed(key_propose, refined, cautiously=back is not None)
        done = self._record(simulations, beta, proposals)._replace(
            seconds=time.perf_counter() - start, energies=refined is not None, outlying=compared
        )
        self._close(done, proposals)
        reason = lost(self.history)
        if reason is not None and self.number == len(self.sizes):
            warnings.warn(reason, UnleWarning, stacklevel=2)
        return done

    def recall(
        self, simulations: Any, done: Round, proposals: Float[np.ndarray, "n dim"], carried: Carried | None = None
    ) -> None:
        """Take a round that was fitted before: its simulations, what it did, and the proposals it led to."""
        self._take(simulations)
        self.carried = carried
        self._close(done, np.asarray(proposals, float))

    def _take(self, simulations: Any) -> Simulations:
        """Put the simulations of a round to those of the rounds before."""
        if not isinstance(simulations, Simulations):
            simulations = Simulations.from_arrays(*simulations)
        if simulations.theta.shape[1] != self.prior.dim or simulations.x.shape[1] != self.x_o.shape[1]:
            raise InputError(
                f"expected {self.prior.dim} parameters and data of length {self.x_o.shape[1]}, as x_o; got "
                f"{simulations.theta.shape[1]} and {simulations.x.shape[1]}."
            )
        parts = [simulations] if self._simulations is None else [self._simulations, simulations]
        joined = Simulations.joined(parts)
        if joined.valid.sum() < FEWEST:
            raise InputError(
                f"expected at least {FEWEST} valid simulations by now; got {int(joined.valid.sum())}: "
                f"{joined.summary()} Try larger rounds."
            )
        self._simulations, self._latest = joined, int(simulations.valid.sum())
        return simulations

    def _close(self, done: Round, proposals: Float[np.ndarray, "n dim"]) -> None:
        """Write a round down and move the region to its proposals."""
        self.history.append(done)
        self._proposals = proposals
        first_theta, _ = self._first_spaces(self.simulations.valid_theta, self.simulations.valid_x)
        box = Box.around(np.asarray(apply_space(first_theta, proposals), float))
        self._around = self._drawn_around_the_nearest()
        if len(self._around):
            box = box.joined(Box.around(np.asarray(apply_space(first_theta, self._around), float)))
        self._boxes.append(box)

    def _outlying(self, simulations: Simulations) -> float:
        """Return how far x_o lies outside of a round's simulations; those that were no proposals do not count."""
        kept = simulations.valid & ~_rows_in(simulations.theta, self._around)
        x = simulations.x[kept] if kept.sum() >= FEWEST_COMPARED else self.simulations.valid_x[-FEWEST_COMPARED:]
        return outlying(self._coordinates(self.x_o), self._coordinates(x), self._steps())

    def _coordinates(self, x: Float[np.ndarray, "n dim_x"]) -> Float[np.ndarray, "n dim_x"]:
        """Return coordinates of the first round, followed by those that are not modelled, as they are."""
        first_x = self._first_spaces(self.simulations.valid_theta, self.simulations.valid_x)[1]
        others = np.setdiff1d(np.arange(self.x_o.shape[1]), first_x.modelled)
        return np.column_stack([np.asarray(apply_space(first_x, x), float), np.asarray(x, float)[:, others]])

    def _steps(self) -> Float[np.ndarray, " dim_x"]:
        """Return the step from x_o to the next whole number in these coordinates; 0 where data are not whole."""
        typical = np.median(self.x_o, axis=0)[None]
        following = typical + self._whole(self.simulations.valid_x)
        return np.abs(self._coordinates(following) - self._coordinates(typical))[0]

    def _step_back(self, compared: float) -> int | None:
        """Return the round whose region to go back to, if the simulations of this one have lost x_o."""
        now = Round(self.number, 0, 1.0, 0, 1.0, 0.0, 1.0, 0.0, outlying=compared)
        back = setbacks([*self.history, now])[-1]
        if back is not None:
            self.carried = None  # energies of a region without x_o
        return back

    def _region_of(self, back: int | None) -> Box:
        """Return the region to fit.

        It is that of the latest proposals.  After a loss it is that of the earlier round; if a fit there has just led
        astray, the region of the data nearest to x_o, which no likelihood has a say in.
        """
        if back is None:
            return self._boxes[-1]
        around = Box.around(self._nearest(max(2 * FEWEST, len(self.simulations) // 10)))
        tried = setbacks(self.history)[-1] is not None
        return around if tried else self._boxes[back].joined(around)

    def _nearest(self, n: int) -> Float[np.ndarray, "near dim"]:
        """Return the n standardised parameters whose data came nearest to x_o, of all rounds."""
        sims = self.simulations
        first_theta, _ = self._first_spaces(sims.valid_theta, sims.valid_x)
        rows = nearest(self._coordinates(self.x_o), self._coordinates(sims.valid_x), self._steps(), n)
        return np.asarray(apply_space(first_theta, sims.valid_theta[rows]), float)

    def _drawn_around_the_nearest(self) -> Float[np.ndarray, "n dim"]:
        """Return parameters for a share of the next round after a loss, none otherwise."""
        backs = setbacks(self.history)
        if backs[-1] is None or self.number == len(self.sizes):
            return np.empty((0, self.prior.dim))
        times = sum(back is not None for back in backs)
        n = int(min(SHARE_AROUND * 2**times, MOST_AROUND) * self.sizes[self.number])
        first_theta, _ = self._first_spaces(self.simulations.valid_theta, self.simulations.valid_x)
        near = self._nearest(max(FEWEST_EFFECTIVE, 2 * self.prior.dim))
        drawn, centres = draw_around(np.random.default_rng((self.seed, self.number, AROUND)), near, n)
        theta, own = (np.asarray(jax.vmap(first_theta.inverse)(on_device(t)), float) for t in (drawn, centres))
        allowed = np.asarray(jax.vmap(self.prior.contains)(on_device(theta)))
        return np.where(allowed[:, None], theta, own)

    @property
    def simulations(self) -> Simulations:
        """Of all rounds so far."""
        if self._simulations is None:
            raise InputError("there are no simulations yet; try add(simulations) first.")
        return self._simulations

    @property
    def proposals(self) -> Float[np.ndarray, "n dim"]:
        """Draws of the (tempered) posterior of the last round."""
        if self._proposals is None:
            raise InputError("nothing has been fitted yet; try add(simulations) first.")
        return self._proposals

    @property
    def fitting(self) -> Fitting:
        """The data and the bases of the last round."""
        if self._fitting is None:
            raise InputError("nothing has been fitted yet; try add(simulations) first.")
        return self._fitting

    @property
    def proposed(self) -> int:
        """How many draws of the (tempered) posterior are made: one number for all rounds, for one compilation."""
        return max([PROPOSED, *self.sizes[1:]])

    def _fit(self, key, box: Box) -> Fitting:
        """Fit bases to the valid simulations of a region, as far as they are near x_o."""
        sims = self.simulations
        theta, x = sims.valid_theta, sims.valid_x
        first_theta, first_x = self._first_spaces(theta, x)
        everywhere = np.asarray(apply_space(first_theta, theta), float)
        key_base, key_validity = jr.split(key)
        self._neighbourhood = self._around_x_o()
        self.validity = self._fit_validity(key_validity)
        near = self.near(sims)[sims.valid]
        inside = box.contains(everywhere) & near
        if inside.sum() < FEWEST:  # a region that few simulations lie in: better too large than too small
            inside = near
        within = np.random.default_rng((self.seed, WITHIN_CELLS)).uniform(size=x.shape)  # a row has the same always
        theta, x, within = theta[inside], x[inside], within[inside]
        theta_space, x_space = restandardise_theta(first_theta, theta), _standardised_anew(first_x, x, within)
        t = apply_space(theta_space, theta)
        w = _moving(spread_and_standardise(x_space, x, within), self.seed)
        capacity, key_split = sum(self.sizes), jr.fold_in(jr.key(self.seed), HELD_OUT)
        among = np.flatnonzero(inside), max(capacity, len(inside))
        splits = make_splits(key_split, len(theta), members=self.members, among=among)
        bases = self.base.fit(key_base, t, w, splits, capacity=capacity)
        ensemble = Ensemble(theta_space, x_space, TiltedModel(bases, NoEnergy()), on_device(np.zeros(self.members)))
        low, high = (getattr(np, end)(everywhere[inside], axis=0) for end in ("min", "max"))
        self._region = Region(first_theta, on_device(low), on_device(high))
        return Fitting(theta_space, x_space, t, w, splits, np.flatnonzero(inside), bases, ensemble)

    def _whole(self, x: Float[np.ndarray, "n dim_x"]) -> Bool[np.ndarray, " dim_x"]:
        """Return which coordinates are whole numbers in all these data and in x_o."""
        return np.all(x == np.round(x), axis=0) & np.all(self.x_o == np.round(self.x_o), axis=0)

    def _first_spaces(self, theta: np.ndarray, x: np.ndarray) -> tuple[ThetaSpace, XSpace]:
        """Return the coordinates of the first round, which later ones only shift and scale."""
        if self._spaces is None:
            self._spaces = fit_theta_space(theta), fit_x_space(x)
            for row in self.x_o[:20]:
                for message in self._spaces[1].check_observation(row):
                    warnings.warn(f"{message}: later rounds may come closer.", UnleWarning, stacklevel=5)
        return self._spaces

    def focused(self, likelihood: Any) -> Any:
        """Return what its members agree on, in the region of the last fit, times the chance of a valid simulation."""
        validity = AlwaysValid() if self.validity is None else self.validity.validity
        return with_validity(with_validity(over_cells(geometric_mean(likelihood)), self._region), validity)

    def near(self, simulations: Simulations) -> Bool[np.ndarray, " n"]:
        """Return which simulations are valid and near x_o: those that count as valid in the last fit."""
        counts = np.array(simulations.valid)
        if self._neighbourhood is not None:
            _, first_x = self._first_spaces(self.simulations.valid_theta, self.simulations.valid_x)
            w = np.asarray(apply_space(first_x, simulations.valid_x), float)
            counts[counts] = self._neighbourhood.contains(w)
        return counts

    def _around_x_o(self) -> Neighbourhood | None:
        """Return where data are near x_o, in coordinates of the first round; None for everywhere.

        As long as no simulation has failed there is no P(valid | theta) to take what is far off the likelihood's hands.
        """
        sims, enough = self.simulations, 2 * FEWEST  # half of them are near at least
        if sims.valid.all() or sims.valid.sum() < enough:
            return None
        _, first_x = self._first_spaces(sims.valid_theta, sims.valid_x)
        latest = sims.valid_x[-max(self._latest, enough) :]
        return Neighbourhood.of(*(np.asarray(apply_space(first_x, x), float) for x in (self.x_o, latest)))

    def _fit_validity(self, key) -> ValidityFit | None:
        sims = self.simulations
        if sims.valid.all():
            return None
        fit = fit_validity(key, sims.theta, self.near(sims), x=sims.x, capacity=sum(self.sizes))
        if fit.depends or self._neighbourhood is None:
            return fit
        self._neighbourhood = None  # too few data to learn where they come out near: all of them are the likelihood's
        return self._fit_validity(key)

    def _proposed(self, key, refined: TractableLikelihood | None, *, cautiously: bool) -> tuple[float, np.ndarray]:
        """Draw from the posterior with the largest power of the likelihood that the valid simulations support.

        After a loss, `cautiously`, twice as many of them must do so, and again twice as many after the next.

        P(valid | theta) is not tempered but squared: see `unle.methods.proposals`.
        """
        before = sum(back is not None for back in setbacks(self.history))
        wanted = FEWEST_EFFECTIVE * 2 ** (before + 1) if cautiously else FEWEST_EFFECTIVE
        if refined is None:
            likelihood = over_cells(geometric_mean(self.fitting.likelihood))
            beta = self._supported(likelihood, wanted)
        else:  # outside of the region, where they were not trained, energies say nothing
            likelihood = over_cells(geometric_mean(refined))
            beta = self._supported(with_validity(likelihood, self._region), wanted)
        target = Tempered(likelihood, on_device(beta))
        cautious = self.focused(target)
        if self.validity is not None:
            # One factor more for all rows of x_o together; none for draws that nobody will simulate.
            power = on_device(0.0 if self.is_last else 1 / len(self.x_o))
            cautious = with_validity(cautious, ValidPower(self.validity.validity, power))
        posterior = Posterior(self.prior, cautious, TemperedSmc())
        return beta, draw_proposals(key, posterior, self.x_o, self.proposed)

    def _supported(self, likelihood: Any, effective: int) -> float:
        """Return the largest power of the likelihood that so many valid simulations support."""
        sims = self.simulations
        theta = sims.theta[self.near(sims)]
        rows = on_device(self.x_o)
        capacity = sum(self.sizes)
        padded = np.resize(theta, (max(capacity, len(theta)), theta.shape[1]))
        values = np.asarray(_log_likelihoods(likelihood, on_device(padded), rows))[: len(theta)]
        return supported_temperature(values, effective)

    def _record(self, simulations: Simulations, beta: float, proposals: np.ndarray) -> Round:
        theta_space, x_space = self._first_spaces(simulations.theta, simulations.x)
        distance = float("nan")
        if simulations.valid.any():
            w = np.asarray(apply_space(x_space, simulations.valid_x), float)
            w_o = np.asarray(apply_space(x_space, self.x_o), float)
            distance = float(np.median(np.sqrt(np.mean((w - w_o.mean(axis=0)) ** 2, axis=1))))
        t = np.asarray(apply_space(theta_space, proposals), float)
        width = float(np.exp(np.mean(np.log(np.maximum(t.std(axis=0), 1e-12)))))
        return Round(
            self.number,
            len(simulations),
            float(simulations.valid.mean()),
            len(self.fitting.t),
            beta,
            distance,
            width,
            seconds=0.0,
        )


def _standardised_anew(first: XSpace, x: Float[np.ndarray, "n dim_x"], u: Float[np.ndarray, "n dim_x"]) -> XSpace:
    """Return the space with means and scales of these data, none of which is due to rounding.

    Close to x_o a coordinate may be the same in nearly all simulations.  Its spread without the few outliers is then
    that of rounding, and dividing by it would put the outliers a million standard deviations away: it is scaled by
    the spread with outliers, and a coordinate that no longer varies at all by a part of its first scale.
    """
    space = restandardise_x(first, x, u)
    places, old = np.array((*first.modelled, *first.redundant)), space.standardiser
    spread = np.std(old.forward_table(first.cells.spread(x, u)[:, places]), axis=0)
    part = STUCK * np.asarray(first.standardiser.scale) / np.asarray(old.scale)
    wider = np.where(spread < ROUNDING, part, np.where(spread > 1 / ROUNDING, spread, 1.0))
    modelled, redundant = np.split(wider, [first.dim])
    weights, offset = np.asarray(space.weights) * modelled / redundant[:, None], np.asarray(space.offset) / redundant
    return eqx.tree_at(
        lambda s: (s.standardiser.scale, s.weights, s.offset),
        space,
        tuple(on_device(value, old.scale.dtype) for value in (np.asarray(old.scale) * wider, weights, offset)),
    )


def _moving(w: Float[Array, "n data"], seed: int) -> Float[Array, "n data"]:
    """Give coordinates that no longer vary noise of one standard deviation: nothing can be learned from them."""
    values = np.asarray(w)
    stuck = np.std(values, axis=0) < ROUNDING
    if not stuck.any():
        return w
    noise = np.random.default_rng((seed, WITHIN_CELLS)).normal(size=values.shape)
    return on_device(np.where(stuck, values + noise, values))


def _rows_in(rows: Float[np.ndarray, "n dim"], among: Float[np.ndarray, "m dim"]) -> Bool[np.ndarray, " n"]:
    """Return which rows are equal to one of the others, in single precision."""
    known = {row.tobytes() for row in among.astype(np.float32)}
    return np.array([row.tobytes() in known for row in rows.astype(np.float32)], dtype=bool)


@eqx.filter_jit
def _log_likelihoods(likelihood: TractableLikelihood, thetas, rows) -> Float[Array, " n"]:
    prepared = jax.vmap(likelihood.prepare)(rows)

    def one(theta):
        return jnp.sum(jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared))

    return jax.lax.map(one, thetas, batch_size=2048)
