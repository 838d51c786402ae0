r"""AUNLE as the paper prints it: algorithm 1, with its settings and nothing else; made by `AUNLE.paper`.

1. Standardise theta and x by their means and standard deviations.
2. Train one energy on a fixed measure by maximum likelihood of the tilted joint model, followed by persistent chains or
   by SMC.
3. The likelihood is f = exp(-E) N(0, 10^2 I), up to a constant: the posterior p(theta) f(x_o | theta) is an ordinary
   one.

docs/paper.md has the equations, the settings and these lines side by side.
"""

from dataclasses import replace

import jax.random as jr
import numpy as np

from unle.errors import InputError
from unle.methods.abstract_method import AbstractAmortised, record_printed_fit, warn_of_divergence
from unle.methods.simulation_inputs import apply_space, valid_pairs
from unle.methods.training_pairs import order_of_rows
from unle.models import EnergyLikelihood, EnergyModel
from unle.posterior import AbstractPosteriorSampler, Posterior, TemperedSmc
from unle.samplers import Mala
from unle.simulators import Simulations
from unle.space import Prior, fit_theta_space, fit_x_space
from unle.space.host_device import on_device, split
from unle.store import SimulationStore
from unle.train import JointSpace, PaperTraining, PersistentChains, Rows, WarmSmc, fit_as_printed, make_splits, measure

HALF = Mala(target_acceptance=0.5)  # of the proposals are accepted, as printed
CHAINS = PersistentChains(n=1000, moves=60, kernel=HALF, at_data=False, fresh=False, own_steps=True)


class PaperAUNLE(AbstractAmortised):
    """The amortised method of the paper."""

    prior: Prior  # the prior that the simulations were drawn from
    training: PaperTraining = PaperTraining(CHAINS)  # how the energy is trained
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
