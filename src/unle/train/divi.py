r"""DIVI as the paper prints it: log Z(theta) by matching gradients along Markov chains (algorithm 3, appendix B.3).

    grad log Z(theta_i) = -E_{q(. | theta_i)}[grad_t E(t_i, w)]  ~  -1/M sum_m grad_t E(t_i, w_m)

at parameters theta_i of nu, the proposals so far.  The w_m are M states of a chain under q(. | theta_i) that starts at
the particle which training left there.  b is fitted to these gradients alone; the constant that they leave open is the
same for every theta.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import TRAINING_OPTIONS, large_program
from unle.models import EnergyModel, LogNormaliser
from unle.samplers import AbstractKernel, Mala, SharedStepSize, run_chains
from unle.train.log_normaliser_fit import LogNormaliserTraining, match_gradients


class DiviChains(eqx.Module):
    """Settings of the chains behind the gradients."""

    # steps before the first state counts, in which the step size is tuned
    warm_up: int = eqx.field(static=True, default=100)
    states: int = eqx.field(static=True, default=100)  # M, of each chain
    thin: int = eqx.field(static=True, default=2)  # steps between them
    kernel: AbstractKernel = Mala()  # MALA by default


class DiviFit(NamedTuple):
    """A fitted log-normaliser b(t), and how it was fitted.

    `error` is that of its gradients at held-out theta, as a share of their spread; the noise of the targets is in it.
    `acceptance` is that of the chains.
    """

    log_normaliser: LogNormaliser
    error: float
    acceptance: float


def fit_divi(
    key: PRNGKeyArray,
    model: EnergyModel,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    *,
    chains: DiviChains,
    settings: LogNormaliserTraining,
    start: LogNormaliser | None = None,
) -> DiviFit:
    """Fit log Z(theta) at parameters t in random order, with a chain for each that begins at w."""
    key_chains, key_fit = jr.split(key)
    gradients, acceptance = _gradients(key_chains, model, t, w, chains)
    b, error = match_gradients(key_fit, t, gradients, settings=settings, start=start)
    return DiviFit(b, error, float(acceptance))


@partial(large_program, options=TRAINING_OPTIONS)
def _gradients(key: PRNGKeyArray, model: EnergyModel, t, w, chains: DiviChains) -> tuple[Array, Array]:
    key_warm, key_run = jr.split(key)

    def density(w, t):
        return model.log_density(t, w)

    move = partial(run_chains, log_density=density, kernel=chains.kernel, step_size=SharedStepSize(), conditions=t)
    warm = move(key_warm, w, steps=chains.warm_up)
    steps, state = chains.states * chains.thin, warm.step_state
    run = move(key_run, warm.positions, steps=steps, keep=chains.states, step_state=state, adapt=False)
    assert run.draws is not None

    def one(t, states):
        return jnp.mean(jax.vmap(lambda w: jax.grad(model.log_tilt)(t, w))(states), axis=0)

    return jax.lax.map(lambda pair: one(*pair), (t, run.draws), batch_size=min(64, len(t))), run.acceptance
