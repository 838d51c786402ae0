"""The paper's algorithms with one setting changed at a time, and the way from them to the defaults.

    unle bench --with scripts/paper_variants.py --methods ablation-base,ablation-ensemble --tasks two_moons,slcp

`aunle-paper-last` and others stop as the paper does, or have its settings of single tasks.  `ablation-...` add to the
paper's algorithm what the default has, one addition at a time; the last of them is `aunle`.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import PRNGKeyArray

from unle.compiling import split
from unle.methods import AUNLE, SUNLE, ByExchange, Divi, Online
from unle.methods.energy_selection import Choice, Selected, select_energy
from unle.methods.paper import JOINT_CHAINS
from unle.methods.training_pairs import Pairs, apply_space
from unle.models import AbstractBase, EnergyModel, in_two_views
from unle.posterior import Chains
from unle.samplers import Mala
from unle.space import fit_theta_space, fit_x_space
from unle.train import EnergyTraining, JointSpace, WarmSmc, fit_energies
from unle_bench.methods.method_adapter import AbstractMethodAdapter, Amortised, SequentialTogether

SMC = WarmSmc(temperatures=20)
OVER_BOTH = WarmSmc(temperatures=20, at_data=False, fresh=False)  # over theta and x, as printed
LAST = {"largest_loss": None}  # always the last energy


class Ablated(AUNLE):
    """The default without some of its parts.

    Args:
        transforms: whether marginal transforms are chosen; standardised by mean and standard deviation otherwise.
        gate: whether energies are chosen among three kinds, and dropped, by held-out likelihood; otherwise the full
            ones are kept whenever their training raised it at all.
    """

    transforms: bool = eqx.field(static=True, default=True, kw_only=True)
    gate: bool = eqx.field(static=True, default=True, kw_only=True)

    def _standardise(self, key: PRNGKeyArray, simulations: Any, memory: int | float | str | None) -> Pairs:
        pairs = super()._standardise(key, simulations, memory)
        if self.transforms:
            return pairs
        theta, x = pairs.theta[pairs.valid], pairs.x[pairs.valid]
        theta_space, x_space = fit_theta_space(theta, plain=True), fit_x_space(x, plain=True)
        rows = pairs.rows._replace(t=apply_space(theta_space, theta), w=apply_space(x_space, x))
        return pairs._replace(theta_space=theta_space, x_space=x_space, rows=rows, cuts=())

    def _train_energies(
        self, key: PRNGKeyArray, pairs: Pairs, bases: AbstractBase, metrics: Callable[..., None]
    ) -> Selected:
        if self.gate:
            return super()._train_energies(key, pairs, bases, metrics)
        joint, (key_fit, key_z), seen = JointSpace.of(self.prior, pairs.theta_space), split(key, 2), in_two_views(bases)
        fit = fit_energies(key_fit, joint, seen, pairs.rows, settings=self.training, sees_theta=True)
        if fit.validation is None:
            alone, why = select_energy(key_z, joint, seen, fit, pairs.rows, self.training.particles)
            return Selected(alone, fit, "none", why)
        choice = Choice(
            EnergyModel(seen, fit.energies), fit.validation.log_z, fit.gain, np.asarray(fit.validation.rows)
        )
        return Selected(choice, fit, "full", "no gate")


def changed(**settings: Any) -> Amortised:
    """Return the paper's AUNLE with other settings."""
    return Amortised(lambda task: AUNLE.paper(task.prior, **settings))


def changed_in_rounds(normaliser: Any, **settings: Any) -> SequentialTogether:
    """Return the paper's SUNLE with other settings."""
    return SequentialTogether(
        lambda task, simulator: SUNLE.paper(task.prior, simulator, normaliser=normaliser, **settings)
    )


def ablated(particles: Any = JOINT_CHAINS, *, autoregressive: bool = False, **parts: Any) -> Amortised:
    """Return the default without some of its parts, followed by the paper's chains."""
    training = EnergyTraining(particles)
    return Amortised(lambda task: Ablated(task.prior, training=training, autoregressive=autoregressive, **parts))


METHODS: dict[str, AbstractMethodAdapter] = {
    "aunle-paper-last": changed(**LAST),
    "aunle-paper-smc-last": changed(particles=SMC, **LAST),
    "aunle-paper-100": changed(iterations=100, **LAST),  # the authors' on Gaussian Linear Uniform
    "aunle-paper-smc-100": changed(particles=SMC, iterations=100, **LAST),
    "aunle-paper-mcmc": changed(sampler=Chains(Mala())),
    "sunle-paper-last": changed_in_rounds(ByExchange(), **LAST),
    "sunle-paper-divi-last": changed_in_rounds(Divi(), **LAST),
    "sunle-paper-online-last": changed_in_rounds(Online(), **LAST),
    "sunle-paper-10": changed_in_rounds(ByExchange(), iterations=10, **LAST),  # on Gaussian Linear Uniform
    "sunle-paper-slow": changed_in_rounds(ByExchange(), learning_rate=1e-3),  # on Lotka-Volterra
    "sunle-paper-divi-slow": changed_in_rounds(Divi(), learning_rate=1e-3),  # on Lotka-Volterra
    "ablation-base": ablated(members=1, transforms=False, gate=False, repetition=False),
    "ablation-ensemble": ablated(transforms=False, gate=False, repetition=False),
    "ablation-transforms": ablated(gate=False, repetition=False),
    "ablation-gate": ablated(repetition=False),
    "ablation-repetition": ablated(),
    "ablation-repetition-smc": ablated(OVER_BOTH),
    "ablation-autoregressive": ablated(OVER_BOTH, autoregressive=True),
}
