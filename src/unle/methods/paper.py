r"""AUNLE and SUNLE as the paper prints them, algorithms 1 and 2, with their settings and nothing else.

`AUNLE.paper` makes the first:

1. Standardise theta and x by their means and standard deviations.
2. Train one energy on a fixed measure by maximum likelihood of the tilted joint model, followed by persistent chains or
   by SMC.
3. The likelihood is f = exp(-E) N(0, 10^2 I), up to a constant: the posterior p(theta) f(x_o | theta) is an ordinary
   one.

`SUNLE.paper` makes the second.  A round

1. standardises theta and x by means and standard deviations of its own simulations, as the authors' code does;
2. trains the conditional energy on the simulations of all rounds, from the energy and the particles of the round
   before, in the new coordinates; those whose parameters lie beyond three standard deviations of the round's own are
   left out, which a conditional likelihood allows;
3. deals with Z(theta): by exchange, by DIVI after training, or online, together with the energy;
4. draws the next parameters from the posterior.

If simulations failed, P(valid | theta) is learned from those of all rounds and multiplies the likelihood.

docs/paper.md has the equations, the settings and these lines side by side.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.arrays import entry_names
from unle.compiling import on_device, split
from unle.errors import InputError, UnleWarning, warn_user
from unle.methods.abstract_method import (
    AbstractAmortised,
    AbstractSequential,
    SequentialRun,
    no_metrics,
    record_printed_fit,
    round_sizes,
    warn_of_divergence,
)
from unle.methods.normalisers import AbstractNormaliser, ByExchange, Divi, Online
from unle.methods.round_state import (
    FEWEST_COMPARED,
    AbstractRoundState,
    Round,
    distance_and_width,
    lost,
    observed_rows,
    outlying,
)
from unle.methods.training_pairs import FEWEST, apply_space, order_of_rows, valid_pairs
from unle.models import (
    AlwaysValid,
    ConditionalLikelihood,
    EnergyLikelihood,
    EnergyModel,
    LogNormaliser,
    MlpEnergy,
    Normalised,
    with_validity,
)
from unle.posterior import AbstractPosteriorSampler, Posterior, TemperedSmc, WalkingExchange, WarmChains
from unle.samplers import ChainInner, Mala
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
from unle.store import SimulationStore
from unle.train import (
    DiviChains,
    JointSpace,
    PairedChains,
    PaperFit,
    PaperTraining,
    PersistentChains,
    Rows,
    WarmSmc,
    data_change,
    fit_as_printed,
    fit_divi,
    fit_validity,
    make_splits,
    measure,
)

HALF = Mala(target_acceptance=0.5)  # of the proposals are accepted, as printed
JOINT_CHAINS = PersistentChains(n=1000, moves=60, kernel=HALF, at_data=False, fresh=False, own_steps=True)
PAIRED_CHAINS = PairedChains(n=1, moves=50, kernel=HALF, fresh=False, own_steps=True)
LARGEST_DISTANCE = 3.0  # standard deviations of the latest parameters; older simulations farther off are left out
HELD_OUT_STREAM = 20_000  # a row is held out in all rounds, or the energy would know it
MOST_KNOWN = 1000  # parameters at which DIVI has chains
FEWEST_PROPOSALS = 500  # draws of the posterior after each round, if rounds are smaller


class PaperAUNLE(AbstractAmortised):
    """The amortised method of the paper."""

    prior: Prior  # the prior that the simulations were drawn from
    training: PaperTraining = PaperTraining(JOINT_CHAINS)  # how the energy is trained
    sampler: AbstractPosteriorSampler = TemperedSmc()  # how the posterior is sampled

    def _fit(self, simulations, seed, metrics, memory):
        if memory is not None:
            raise InputError("expected no `memory`: the paper's method holds all simulations in memory; try without.")
        key_split, key_fit = split(jr.key(seed), 2)
        if isinstance(simulations, SimulationStore):
            simulations = Simulations.from_store(simulations)
        theta, x = valid_pairs(simulations, self.prior)
        rows = order_of_rows(np.asarray(theta, float), np.asarray(x, float))
        theta, x = np.asarray(theta, float)[rows], np.asarray(x, float)[rows]
        theta_space, x_space = fit_theta_space(theta, plain=True), fit_x_space(x, plain=True)
        splits = make_splits(key_split, len(theta), members=1)
        fit = fit_as_printed(
            key_fit,
            JointSpace.of(self.prior, theta_space),
            Rows(apply_space(theta_space, theta), apply_space(x_space, x), splits),
            settings=self.training,
            on_chunk=lambda record: metrics(stage="training", **record),
        )
        record_printed_fit(metrics, fit, recoveries=fit.recoveries)
        warn_of_divergence([fit], instead="AUNLE(prior)")
        model = EnergyModel(measure(x_space.dim), fit.energy)
        likelihood = EnergyLikelihood(theta_space, x_space, model, on_device(0.0))
        # Failures need no other factor: trained on valid rows under the prior, the model has P(valid | theta) in it.
        return Posterior(self.prior, likelihood, self.sampler)


def joint_particles(particles: PersistentChains | WarmSmc) -> PersistentChains | WarmSmc:
    """Return particles that move in theta and x, under the prior, with no move that the paper does not have."""
    return replace(particles, at_data=False, fresh=False)


class PaperFrame(NamedTuple):
    """The simulations that a round trains on, in its coordinates."""

    theta_space: ThetaSpace  # standardises theta
    x_space: XSpace  # standardises x
    rows: Int[np.ndarray, " row"]  # which of the valid simulations of all rounds these are
    t: Float[Array, "row dim"]  # standardised parameters
    w: Float[Array, "row data"]  # standardised data


class PaperCarried(eqx.Module):
    """What one round leaves for the next."""

    theta_space: ThetaSpace  # standardises theta
    x_space: XSpace  # standardises x
    energy: MlpEnergy  # as trained
    log_normaliser: LogNormaliser | None  # log Z(theta), if it is learned
    rows: Int[Array, " row"]  # which of the valid simulations of all rounds have particles
    particles: Float[Array, "row particle data"]  # of each, standardised
    chains: Float[Array, "chain dim"]  # theta at the end of the chains that sampled the posterior
    steps_back: int  # how often trainings so far had to go back to a healthy state


@dataclass(frozen=True)
class PaperState(AbstractRoundState):
    """The state of `SUNLE.paper` between rounds."""

    spaces: tuple[ThetaSpace, XSpace] | None = None  # standardise theta and x by the first round; None before it
    posterior: Posterior | None = None  # of the latest round
    fits: tuple[PaperFit, ...] = ()  # trainings of the rounds of this process

    def with_simulations(self, simulations: Any) -> tuple["PaperState", Simulations]:
        """Return the state with the simulations of this round; distances are in standard deviations of the first."""
        state, simulations = super().with_simulations(simulations)
        if state.spaces is None:
            theta, x = (np.asarray(part, float) for part in (simulations.valid_theta, simulations.valid_x))
            state = replace(state, spaces=(fit_theta_space(theta, plain=True), fit_x_space(x, plain=True)))
        return state, simulations


class PaperSUNLE(AbstractSequential):
    """The sequential method of the paper."""

    prior: Prior  # of theta
    # as for `unle.simulate`; None if simulations are brought by hand (see `begin`)
    simulator: Callable | None = eqx.field(static=True, default=None)
    # what is done about Z(theta): `ByExchange()`, `Divi()` or `Online()`.  The kind decides; of its settings, those of
    # the network that learns log Z(theta) are taken.
    normaliser: AbstractNormaliser = ByExchange()
    training: PaperTraining = PaperTraining(PAIRED_CHAINS, iterations=500, chunk=10)  # of the energy in each round
    # how a posterior is sampled whose Z(theta) is not learned; steps of chains as in the authors' code, here and below
    exchange: WalkingExchange = WalkingExchange(chains=1000, warm_up=100, thin=100)
    inner_moves: int = eqx.field(static=True, default=100)  # steps of the chain behind each auxiliary draw
    divi: DiviChains = DiviChains()  # chains behind the gradients of log Z(theta)
    # how a posterior is sampled whose Z(theta) is learned
    sampler: WarmChains = WarmChains(chains=1000, warm_up=100, thin=100)

    def __check_init__(self):
        if not isinstance(self.normaliser, ByExchange | Divi | Online):
            raise InputError(
                "expected normaliser to be ByExchange(), Divi() or Online(): conditional energies are trained; got "
                f"{type(self.normaliser).__name__}()."
            )
        if not isinstance(self.training.particles, PairedChains):
            raise InputError("expected particles of each simulated pair; try PaperTraining(PairedChains()).")

    def begin(self, x_o: Any, *, budget: int | float, rounds: int | Sequence[int] = 10, seed: int = 0) -> PaperState:
        rows = observed_rows(x_o, complete=True)
        return PaperState(self.prior, rows, tuple(round_sizes(budget, rounds)), seed, x_names=entry_names(x_o))

    def update(self, state: PaperState, simulations: Any) -> PaperState:
        """Return the state after a round: train on all simulations, and draw the next proposals."""
        started = time.perf_counter()
        state, simulations = state.with_simulations(simulations)
        key_fit, key_z, key_valid, key_propose = split(jr.fold_in(jr.key(state.seed), state.number), 4)
        frame = _standardise(state)
        fit = self._train(key_fit, state, frame)
        log_z = self._log_normaliser(key_z, state, frame, fit)
        posterior = self._posterior(key_valid, state, frame, fit, log_z)
        proposals, chains = _draw(key_propose, state, posterior)
        carried = PaperCarried(
            frame.theta_space,
            frame.x_space,
            fit.energy,
            log_z,
            on_device(frame.rows, np.int32),
            fit.particles.positions[: len(frame.rows)],
            chains,
            (0 if state.carried is None else state.carried.steps_back) + fit.recoveries,
        )
        assert state.spaces is not None
        distance, width = distance_and_width(state.spaces, simulations, state.x_o, proposals)
        latest = state.simulations.valid_x[-max(state.latest, FEWEST_COMPARED) :]
        outside = outlying(*(state.spaces[1].forward_table(np.asarray(x, float)) for x in (state.x_o, latest)))
        valid, seconds = float(simulations.valid.mean()), time.perf_counter() - started
        facts = state.number, len(simulations), valid, len(frame.rows), 1.0, distance, width, seconds
        done = Round(*facts, energies=True, outlying=outside)
        return replace(state, carried=carried, posterior=posterior, fits=(*state.fits, fit))._after(done, proposals)

    def finish(self, state: PaperState, *, on_metrics: Callable[..., None] | None = None) -> SequentialRun:
        """Return the posterior of the last round."""
        if state.posterior is None:
            raise InputError("nothing has been fitted yet; try update(state, simulations) first.")
        metrics = no_metrics if on_metrics is None else on_metrics
        record_printed_fit(metrics, state.fits[-1], recoveries=state.carried.steps_back)
        warn_of_divergence(state.fits, instead="SUNLE(prior, simulator)")
        reason = lost(state.history)
        if reason is not None:
            warn_user(reason)
        posterior = replace(state.posterior, x_names=state.simulations.x_names)
        return SequentialRun(posterior, state.simulations, state.history)

    def _train(self, key: PRNGKeyArray, state: PaperState, frame: PaperFrame) -> PaperFit:
        """Train the energy, from that of the round before."""
        key_split = jr.fold_in(jr.key(state.seed), HELD_OUT_STREAM)
        among = frame.rows, max(state.budget, len(state.simulations))
        splits = make_splits(key_split, len(frame.rows), members=1, among=among)
        rows = Rows(frame.t, frame.w, splits).padded(state.budget)
        energy = known = log_z = None
        if state.carried is not None:
            energy, log_z = _in_coordinates(state.carried, frame)
            known = _known_particles(state.carried, frame, len(rows.t))
        training = self.training
        if isinstance(self.normaliser, Online):
            training = replace(training, online=self.normaliser.online)
        joint = JointSpace.of(self.prior, frame.theta_space)
        return fit_as_printed(key, joint, rows, settings=training, start=energy, known=known, log_normaliser=log_z)

    def _log_normaliser(
        self, key: PRNGKeyArray, state: PaperState, frame: PaperFrame, fit: PaperFit
    ) -> LogNormaliser | None:
        """Return log Z(theta) as DIVI or training itself learned it; None for the exchange."""
        if not isinstance(self.normaliser, Divi):
            return fit.log_normaliser
        from scipy.spatial import KDTree  # takes long to import

        key_nu, key_fit = split(key, 2)
        rng = np.random.default_rng(np.asarray(jr.key_data(key_nu)))
        # Parameters of the simulations that were trained on, and of the previous posterior where these are few.
        own, more = np.asarray(frame.t)[rng.permutation(len(frame.t))[:MOST_KNOWN]], self._drawn_before(state, frame)
        t = np.concatenate([own, more[rng.permutation(len(more))]])[:MOST_KNOWN]
        t = t[rng.permutation(len(t))]
        nearest = KDTree(np.asarray(frame.t)).query(t)[1]
        w = np.asarray(fit.particles.positions)[nearest, 0]
        model = EnergyModel(measure(frame.x_space.dim), fit.energy)
        settings = self.normaliser.training
        return fit_divi(key_fit, model, on_device(t), on_device(w), chains=self.divi, settings=settings).log_normaliser

    def _drawn_before(self, state: PaperState, frame: PaperFrame) -> Float[np.ndarray, "n dim"]:
        """Return standardised draws of nu: of the prior at first, of the posterior of the round before later."""
        theta = state.next_proposals
        theta = self.prior.sample(MOST_KNOWN, seed=state.seed + 2) if theta is None else theta
        t = frame.theta_space.forward_table(np.asarray(theta, float))
        near = t[np.all(np.abs(t) <= LARGEST_DISTANCE, axis=1)]
        return np.resize(near if len(near) else np.asarray(frame.t), (MOST_KNOWN, t.shape[1]))

    def _posterior(
        self, key: PRNGKeyArray, state: PaperState, frame: PaperFrame, fit: PaperFit, log_z: LogNormaliser | None
    ) -> Posterior:
        """Return the posterior: an ordinary one if log Z(theta) was learned, else for the exchange algorithm."""
        model = EnergyModel(measure(frame.x_space.dim), fit.energy)
        likelihood = ConditionalLikelihood(frame.theta_space, frame.x_space, model)
        sims, validity = state.simulations, AlwaysValid()
        if not sims.valid.all():
            validity = fit_validity(key, sims.theta, sims.valid, x=sims.x, capacity=state.budget).validity
        starts = self._starts(state)
        if log_z is not None:
            sampler = replace(self.sampler, starts=jax.vmap(self.prior.unconstrain)(starts))
            return Posterior(self.prior, with_validity(Normalised(likelihood, log_z), validity), sampler)
        # Auxiliary data start at the observation, as in the authors' code.
        inner = ChainInner(points=apply_space(frame.x_space, state.x_o), moves=self.inner_moves)
        sampler = replace(self.exchange, inner=inner, starts=starts)
        return Posterior(self.prior, with_validity(likelihood, validity), sampler)

    def _starts(self, state: PaperState) -> Float[Array, "chain dim"]:
        """Return where chains over theta start: at draws of the prior that did not fail, or where they last ended."""
        if state.carried is not None:
            return state.carried.chains
        chains = self.exchange.chains if isinstance(self.normaliser, ByExchange) else self.sampler.chains
        theta = state.simulations.valid_theta
        order = np.random.default_rng(state.seed).permutation(len(theta))
        return on_device(np.resize(theta[order], (chains, self.prior.dim)))


def _standardise(state: PaperState) -> PaperFrame:
    """Standardise by the latest simulations, and choose those that are not far from them."""
    theta, x = (np.asarray(part, float) for part in (state.simulations.valid_theta, state.simulations.valid_x))
    latest = slice(-max(state.latest, FEWEST), None)
    assert state.spaces is not None
    first_theta, first_x = state.spaces
    theta_space = restandardise_theta(first_theta, theta[latest], plain=True)
    x_space = restandardise_x(first_x, x[latest], plain=True)
    t = theta_space.forward_table(theta)
    rows = np.flatnonzero(np.all(np.abs(t) <= LARGEST_DISTANCE, axis=1) | (state.number == 0))
    return PaperFrame(theta_space, x_space, rows, apply_space(theta_space, theta[rows]), apply_space(x_space, x[rows]))


def _draw(key: PRNGKeyArray, state: PaperState, posterior: Posterior) -> tuple[np.ndarray, Array]:
    """Return draws of the posterior, and where its chains ended."""
    n = max([FEWEST_PROPOSALS, *state.sizes[1:]])
    seed = int(np.random.default_rng(np.asarray(jr.key_data(key))).integers(2**31))
    with warnings.catch_warnings():
        if state.number:  # x_o outside of the simulations is said once
            warnings.simplefilter("ignore", UnleWarning)
        draws = posterior.sample(state.x_o, n, seed=seed)
    return np.asarray(draws, float), on_device(draws.values[:, -1])


def _in_coordinates(carried: PaperCarried, frame: PaperFrame) -> tuple[MlpEnergy, LogNormaliser | None]:
    """Return the energy and log Z(theta) of the round before as the same functions of the new coordinates.

    Both only change by an affine map, which the first layer takes in.
    """
    changes = [
        affine_change(carried.theta_space.standardiser, frame.theta_space.standardiser),
        data_change(carried.x_space, frame.x_space),
    ]
    shift, scale = (np.concatenate([np.asarray(change[k], float) for change in changes]) for k in (0, 1))
    net = carried.energy.net
    weights, bias = np.asarray(net.weights[0], float), np.asarray(net.biases[0], float)
    first = on_device(scale[:, None] * weights), on_device(bias + shift @ weights)
    energy = eqx.tree_at(lambda e: (e.net.weights[0], e.net.biases[0]), carried.energy, first)
    b = carried.log_normaliser
    return energy, None if b is None else b.in_coordinates(*changes[0])


def _known_particles(carried: PaperCarried, frame: PaperFrame, length: int) -> Float[Array, "pair particle data"]:
    """Return particles of the round before in the new coordinates; NaN where a pair has none."""
    shift, scale = (np.asarray(part, float) for part in data_change(carried.x_space, frame.x_space))
    known = (np.asarray(carried.particles, float) - shift) / scale
    place = {int(row): k for k, row in enumerate(np.asarray(carried.rows))}
    moved = np.full((length, *known.shape[1:]), np.nan)
    for k, row in enumerate(frame.rows):
        if int(row) in place:
            moved[k] = known[place[int(row)]]
    return on_device(moved)
