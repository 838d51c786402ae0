r"""The rounds of SUNLE as the paper prints them: algorithm 2, with nothing else.

A round

1. standardises theta and x by means and standard deviations of its own simulations, as the authors' code does;
2. trains the conditional energy on the simulations of all rounds, from the energy and the particles of the round
   before, in the new coordinates; those whose parameters lie beyond three standard deviations of the round's own are
   left out, which no conditional likelihood minds;
3. deals with Z(theta): by exchange, by DIVI after training, or online, together with the energy;
4. draws the next parameters from the posterior.

If simulations failed, P(valid | theta) is learned from those of all rounds and multiplies the likelihood.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.spatial import KDTree

from unle.errors import InputError, UnleWarning
from unle.methods.abstract_rounds import AbstractRounds
from unle.methods.history import Round
from unle.methods.inputs import FEWEST, apply_space
from unle.models import (
    AlwaysValid,
    ConditionalLikelihood,
    LogNormaliser,
    MlpEnergy,
    Normalised,
    TiltedModel,
    with_validity,
)
from unle.posterior import Posterior, WalkingExchange, WarmChains
from unle.samplers import FollowingInner
from unle.simulators import Simulations
from unle.space import (
    Prior,
    ThetaSpace,
    XSpace,
    affine_change,
    fit_theta_space,
    fit_x_space,
    restandardise_theta,
    restandardise_x,
)
from unle.space.host_device import on_device, split
from unle.train import (
    DiviChains,
    JointSpace,
    LogNormaliserTraining,
    PaperFit,
    PaperTraining,
    fit_as_printed,
    fit_divi,
    fit_validity,
    make_splits,
    measure,
    pad,
)

BEYOND = 3.0  # standard deviations of the latest parameters, beyond which older simulations are left out
HELD_OUT = 20_000  # of the seed: rows are held out in all rounds, or the energy would know them
KNOWN = 1000  # particles of training from which auxiliary data start, and parameters at which DIVI has chains
FEWEST_PROPOSED = 500  # draws of the posterior after each round, if rounds are smaller


class PaperCarried(eqx.Module):
    """What one round leaves for the next.

    Attributes:
        theta_space: standardises theta.
        x_space: standardises x.
        energy: as trained.
        log_normaliser: log Z(theta), if it is learned.
        rows: which of the valid simulations of all rounds have particles.
        particles: of each, standardised.
        chains: theta at the end of the chains that sampled the posterior.
        steps_back: how often trainings so far had to go back to a healthy state.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    energy: MlpEnergy
    log_normaliser: LogNormaliser | None
    rows: Int[Array, " row"]
    particles: Float[Array, "row particle data"]
    chains: Float[Array, "chain dim"]
    steps_back: int


class ZPart(NamedTuple):
    """What is done about Z(theta).

    Attributes:
        exchange: the sampler, if auxiliary data cancel it; None if it is learned.
        moves: of the chain behind each of these.
        chains: of DIVI after training; None if it is learned online alone, or not.
        network: of DIVI.
    """

    exchange: WalkingExchange | None
    moves: int
    chains: DiviChains | None
    network: LogNormaliserTraining


class _Frame(NamedTuple):
    theta_space: ThetaSpace
    x_space: XSpace
    rows: Int[np.ndarray, " row"]
    t: Float[Array, "row dim"]
    w: Float[Array, "row data"]


class PaperRounds(AbstractRounds):
    """The state of a sequential inference.

    Args:
        prior: of theta.
        x_o: the observation, one vector or i.i.d. rows.
        sizes: simulations of each round.
        training: of the energy in each round.
        z: what is done about Z(theta).
        sampler: how a posterior is sampled whose Z(theta) was learned.
        seed: fixes everything but the simulations.
    """

    def __init__(
        self,
        prior: Prior,
        x_o: Any,
        sizes: list[int],
        *,
        training: PaperTraining,
        z: ZPart,
        sampler: WarmChains,
        seed: int,
    ):
        self.prior, self.sizes, self.training, self.z, self.sampler = prior, sizes, training, z, sampler
        self.x_o, self.seed = np.atleast_2d(np.asarray(x_o, float)), seed
        self.history: list[Round] = []
        self.carried: PaperCarried | None = None
        self.posterior: Posterior | None = None
        self.fits: list[PaperFit] = []
        self.on_look: Callable[[dict[str, Any]], None] | None = None
        self._simulations: Simulations | None = None
        self._latest = 0  # valid simulations of the latest round
        self._first: tuple[ThetaSpace, XSpace] | None = None
        self._proposals: np.ndarray | None = None

    @property
    def simulations(self) -> Simulations:
        """Of all rounds so far."""
        if self._simulations is None:
            raise InputError("there are no simulations yet; try add(simulations) first.")
        return self._simulations

    @property
    def proposals(self) -> Float[np.ndarray, "n dim"]:
        """Draws of the posterior of the last round."""
        if self._proposals is None:
            raise InputError("nothing has been fitted yet; try add(simulations) first.")
        return self._proposals

    def propose(self) -> Float[np.ndarray, "n dim"]:
        """Return draws of the prior at first, of the latest posterior later."""
        if self.number >= len(self.sizes):
            raise InputError(f"all {len(self.sizes)} rounds are done; try more rounds or a larger budget.")
        n = self.sizes[self.number]
        if self._proposals is None:
            return np.asarray(self.prior.sample(n, seed=self.seed), float)
        return self._proposals[np.random.default_rng((self.seed, self.number)).permutation(len(self._proposals))[:n]]

    def add(self, simulations: Any) -> Round:
        """Take the simulations of this round, train on them with all others, and draw the next proposals."""
        start = time.perf_counter()
        simulations = self._take(simulations)
        key = jr.fold_in(jr.key(self.seed), self.number)
        key_fit, key_z, key_valid, key_propose = split(key, 4)
        frame = self._frame()
        fit = self._train(key_fit, frame)
        self.fits.append(fit)
        learned = self._log_normaliser(key_z, frame, fit)
        self.posterior = self._posterior(key_valid, frame, fit, learned)
        proposals, chains = self._draw(key_propose, self.posterior)
        before = 0 if self.carried is None else self.carried.steps_back
        self.carried = PaperCarried(
            frame.theta_space,
            frame.x_space,
            fit.energy,
            learned,
            on_device(frame.rows, np.int32),
            fit.particles.positions[: len(frame.rows)],
            chains,
            before + fit.steps_back,
        )
        done = self._record(simulations, frame, proposals)._replace(seconds=time.perf_counter() - start)
        self.history.append(done)
        self._proposals = proposals
        return done

    def recall(self, simulations, done, proposals, carried=None) -> None:
        """Take a round that was fitted before."""
        self._take(simulations)
        self.carried = carried
        self.history.append(done)
        self._proposals = np.asarray(proposals, float)

    def _take(self, simulations: Any) -> Simulations:
        if not isinstance(simulations, Simulations):
            simulations = Simulations.from_arrays(*simulations)
        if simulations.theta.shape[1] != self.prior.dim or simulations.x.shape[1] != self.x_o.shape[1]:
            raise InputError(
                f"expected {self.prior.dim} parameters and data of length {self.x_o.shape[1]}, as x_o; got "
                f"{simulations.theta.shape[1]} and {simulations.x.shape[1]}."
            )
        joined = Simulations.joined([s for s in (self._simulations, simulations) if s is not None])
        if joined.valid.sum() < FEWEST:
            raise InputError(
                f"expected at least {FEWEST} valid simulations by now; got {int(joined.valid.sum())}: "
                f"{joined.summary()} Try larger rounds."
            )
        self._simulations, self._latest = joined, int(simulations.valid.sum())
        return simulations

    def _frame(self) -> _Frame:
        """Standardise by the latest simulations, and choose those that are not far from them."""
        theta, x = (np.asarray(part, float) for part in (self.simulations.valid_theta, self.simulations.valid_x))
        latest = slice(-max(self._latest, FEWEST), None)
        if self._first is None:
            self._first = fit_theta_space(theta, plain=True), fit_x_space(x, plain=True)
        first_theta, first_x = self._first
        theta_space = restandardise_theta(first_theta, theta[latest], plain=True)
        x_space = restandardise_x(first_x, x[latest], plain=True)
        t = theta_space.forward_table(theta)
        rows = np.flatnonzero(np.all(np.abs(t) <= BEYOND, axis=1) | (len(self.history) == 0))
        return _Frame(theta_space, x_space, rows, apply_space(theta_space, theta[rows]), apply_space(x_space, x[rows]))

    def _train(self, key: PRNGKeyArray, frame: _Frame) -> PaperFit:
        key_split = jr.fold_in(jr.key(self.seed), HELD_OUT)
        capacity = sum(self.sizes)
        among = frame.rows, max(capacity, len(self.simulations))
        splits = make_splits(key_split, len(frame.rows), members=1, among=among)
        data = pad(frame.t, frame.w, splits, capacity)
        energy = known = b = None
        if self.carried is not None:
            energy, b = _in_coordinates(self.carried, frame)
            known = _known_particles(self.carried, frame, len(data[0]))
        joint = JointSpace.of(self.prior, frame.theta_space)
        how = {"start": energy, "known": known, "log_normaliser": b, "on_look": self.on_look}
        return fit_as_printed(key, joint, *data, settings=self.training, **how)

    def _log_normaliser(self, key: PRNGKeyArray, frame: _Frame, fit: PaperFit) -> LogNormaliser | None:
        """Return log Z(theta) as DIVI or training itself learned it; None for the exchange."""
        if self.z.chains is None:
            return fit.log_normaliser
        key_nu, key_fit = split(key, 2)
        rng = np.random.default_rng(np.asarray(jr.key_data(key_nu)))
        # Parameters of the simulations that were trained on, and of the previous posterior where these are few.
        own, more = np.asarray(frame.t)[rng.permutation(len(frame.t))[:KNOWN]], self._drawn_before(frame)
        t = np.concatenate([own, more[rng.permutation(len(more))]])[:KNOWN]
        t = t[rng.permutation(len(t))]
        w = np.asarray(fit.particles.positions)[_nearest(t, np.asarray(frame.t)), 0]
        model = TiltedModel(measure(frame.x_space.dim), fit.energy)
        parts = on_device(t), on_device(w)
        return fit_divi(key_fit, model, *parts, chains=self.z.chains, settings=self.z.network).log_normaliser

    def _drawn_before(self, frame: _Frame) -> Float[np.ndarray, "n dim"]:
        """Return standardised draws of nu: of the prior at first, of the posterior of the round before later."""
        theta = self._proposals if self._proposals is not None else self.prior.sample(KNOWN, seed=self.seed + 2)
        t = frame.theta_space.forward_table(np.asarray(theta, float))
        near = t[np.all(np.abs(t) <= BEYOND, axis=1)]
        return np.resize(near if len(near) else np.asarray(frame.t), (KNOWN, t.shape[1]))

    def _posterior(self, key, frame: _Frame, fit: PaperFit, learned: LogNormaliser | None) -> Posterior:
        key_valid, key_rows = split(key, 2)
        model = TiltedModel(measure(frame.x_space.dim), fit.energy)
        likelihood = ConditionalLikelihood(frame.theta_space, frame.x_space, model)
        sims, validity = self.simulations, AlwaysValid()
        if not sims.valid.all():
            validity = fit_validity(key_valid, sims.theta, sims.valid, x=sims.x, capacity=sum(self.sizes)).validity
        starts = self._starts()
        if learned is not None:
            sampler = replace(self.sampler, starts=jax.vmap(self.prior.unconstrain)(starts))
            return Posterior(self.prior, with_validity(Normalised(likelihood, learned), validity), sampler)
        assert self.z.exchange is not None
        rows = self._some(key_rows, len(frame.rows))
        points = fit.particles.positions[rows, 0]
        inner = FollowingInner(conditions=frame.t[rows], points=points, moves=self.z.moves)
        sampler = replace(self.z.exchange, inner=inner, starts=starts)
        return Posterior(self.prior, with_validity(likelihood, validity), sampler)

    def _starts(self) -> Float[Array, "chain dim"]:
        """Return where chains over theta start: at draws of the prior that did not fail, or where they last ended."""
        if self.carried is not None:
            return self.carried.chains
        chains = self.sampler.chains if self.z.exchange is None else self.z.exchange.chains
        theta = self.simulations.valid_theta
        return on_device(
            np.resize(theta[np.random.default_rng(self.seed).permutation(len(theta))], (chains, self.prior.dim))
        )

    def _some(self, key: PRNGKeyArray, n: int) -> Int[Array, " some"]:
        """Return some rows in random order, as many in every round: programs compile once."""
        most = min(KNOWN, sum(self.sizes))
        order = np.random.default_rng(np.asarray(jr.key_data(key))).permutation(n)
        return on_device(np.resize(order, most), np.int32)

    def _draw(self, key: PRNGKeyArray, posterior: Posterior) -> tuple[np.ndarray, Array]:
        """Return draws of the posterior, and where its chains ended."""
        n = max([FEWEST_PROPOSED, *self.sizes[1:]])
        seed = int(np.random.default_rng(np.asarray(jr.key_data(key))).integers(2**31))
        with warnings.catch_warnings():
            if self.number:  # x_o outside of the simulations is said once
                warnings.simplefilter("ignore", UnleWarning)
            draws = posterior.sample(self.x_o, n, seed=seed)
        return np.asarray(draws, float), on_device(draws.values[:, -1])

    def _record(self, simulations: Simulations, frame: _Frame, proposals: np.ndarray) -> Round:
        assert self._first is not None
        theta_space, x_space = self._first
        distance = float("nan")
        if simulations.valid.any():
            w = x_space.forward_table(np.asarray(simulations.valid_x, float))
            w_o = x_space.forward_table(self.x_o)
            distance = float(np.median(np.sqrt(np.mean((w - w_o.mean(axis=0)) ** 2, axis=1))))
        widths = theta_space.forward_table(proposals).std(axis=0)
        width = float(np.exp(np.mean(np.log(np.maximum(widths, 1e-12)))))
        valid = float(simulations.valid.mean())
        return Round(
            self.number, len(simulations), valid, len(frame.rows), 1.0, distance, width, seconds=0.0, energies=True
        )


def _in_coordinates(carried: PaperCarried, frame: _Frame) -> tuple[MlpEnergy, LogNormaliser | None]:
    """Return the energy and log Z(theta) of the round before as the same functions of the new coordinates.

    Both only change by an affine map, which the first layer takes in.
    """
    changes = [
        affine_change(carried.theta_space.standardiser, frame.theta_space.standardiser),
        _data_change(carried, frame),
    ]
    shift, scale = (np.concatenate([np.asarray(change[k], float) for change in changes]) for k in (0, 1))
    net = carried.energy.net
    weights, bias = np.asarray(net.weights[0], float), np.asarray(net.biases[0], float)
    first = on_device(scale[:, None] * weights), on_device(bias + shift @ weights)
    energy = eqx.tree_at(lambda e: (e.net.weights[0], e.net.biases[0]), carried.energy, first)
    b = carried.log_normaliser
    return energy, None if b is None else b.in_coordinates(*changes[0])


def _known_particles(carried: PaperCarried, frame: _Frame, length: int) -> Float[Array, "pair particle data"]:
    """Return particles of the round before in the new coordinates; NaN where a pair has none."""
    shift, scale = (np.asarray(part, float) for part in _data_change(carried, frame))
    known = (np.asarray(carried.particles, float) - shift) / scale
    place = {int(row): k for k, row in enumerate(np.asarray(carried.rows))}
    moved = np.full((length, *known.shape[1:]), np.nan)
    for k, row in enumerate(frame.rows):
        if int(row) in place:
            moved[k] = known[place[int(row)]]
    return on_device(moved)


def _data_change(carried: PaperCarried, frame: _Frame) -> tuple[Array, Array]:
    a, b = affine_change(carried.x_space.standardiser, frame.x_space.standardiser)
    return a[: carried.x_space.dim], b[: carried.x_space.dim]  # redundant coordinates are not modelled


def _nearest(t: Float[np.ndarray, "n dim"], known: Float[np.ndarray, "m dim"]) -> Int[np.ndarray, " n"]:
    """Return which of the known parameters is nearest to each."""
    return np.asarray(KDTree(known).query(t)[1])
