r"""Log Z(theta) as the paper learns it: DIVI after a training, or online while it goes on.

**DIVI** (algorithm 3, appendix B.3) matches gradients along Markov chains:

    grad log Z(theta_i) = -E_{q(. | theta_i)}[grad_t E(t_i, w)]  ~  -1/M sum_m grad_t E(t_i, w_m)

at parameters theta_i of nu, the proposals so far.  The w_m are M states of a chain under q(. | theta_i) that starts at
the particle which training left there.  b is fitted to these gradients alone; the constant that they leave open is the
same for every theta.

**Online** (appendix B.4, where the sign of the energy's gradient is a misprint), from the particles that training makes
anyway.  It keeps a particle v_i of q(. | theta_i) for every pair, a one-sample estimate of the gradient of log Z:

    grad log Z(theta_i) = E_{q(. | theta_i)}[grad_t s(t_i, v)]   ~   grad_t s(t_i, v_i),

so one optimiser step on mean_i |grad b(t_i) - grad_t s(t_i, v_i)|^2 per step of training keeps b close to the current
log Z, at the price of one gradient per particle.  The running mean of the weights averages the noise of the single
particles.  It follows a moving model with a lag; `fit_log_normaliser(..., start=state.average)` finishes the job.

Reference: Glaser et al. (2023).
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import TRAINING_OPTIONS, large_program
from unle.models import EnergyModel, LogNormaliser
from unle.samplers import AbstractKernel, Mala, SharedStepSize, run_chains
from unle.train.log_normaliser_fit import LogNormaliserTraining, match_gradients
from unle.train.loop import LARGEST_NORM, Weights, update


class DiviChains(eqx.Module):
    """Settings of the chains behind the gradients."""

    # steps before the first state counts, in which the step size is tuned
    warm_up: int = eqx.field(static=True, default=300)
    states: int = eqx.field(static=True, default=500)  # M, of each chain
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


class OnlineTraining(eqx.Module):
    """Settings of online training."""

    width: int = eqx.field(static=True, default=64)  # units per hidden layer
    depth: int = eqx.field(static=True, default=2)  # hidden layers
    learning_rate: float = eqx.field(static=True, default=3e-3)  # of Adam, constant: the target keeps changing
    average: float = eqx.field(static=True, default=0.99)  # decay of the running mean of the weights
    # optimiser steps for each one of the energy, each on a part of the particles
    steps_per_iteration: int = eqx.field(static=True, default=20)


class OnlineState(NamedTuple):
    """Where online training stands."""

    log_normaliser: LogNormaliser  # b with the weights of the moment
    optimiser: optax.OptState  # the optimiser's state
    average: LogNormaliser  # b with the running mean of the weights; the one to use
    # mean squared distance of the gradients in the last step; most of it is the particles' noise
    loss: Float[Array, ""]


def online_start(
    key: PRNGKeyArray, dim: int, *, settings: OnlineTraining | None = None, start: LogNormaliser | None = None
) -> OnlineState:
    """Return the state from which online training begins.

    `start` is the log-normaliser of the previous round, in the coordinates t of this one; b = 0 by default.
    """
    settings = OnlineTraining() if settings is None else settings
    b = LogNormaliser.initial(key, dim, width=settings.width, depth=settings.depth) if start is None else start
    return OnlineState(b, _online_optimiser(settings).init(_trainable(b)), b, jnp.zeros(()))


def online_update(
    state: OnlineState,
    model: EnergyModel,
    t: Float[Array, "batch dim"],
    v: Float[Array, "batch data"],
    *,
    settings: OnlineTraining | None = None,
) -> OnlineState:
    """Make one optimiser step on a batch of particles.  Pure: for use inside `jax.jit` and `jax.lax.scan`.

    The model is the current one, and v a particle of q(. | t_i) for each t_i in the base's coordinates, that is,
    `model.base.whiten(t, w)`.
    """
    settings = OnlineTraining() if settings is None else settings
    targets = jax.vmap(jax.grad(model.log_tilt_whitened))(t, v)

    def loss(trained):
        b = eqx.tree_at(_trainable, state.log_normaliser, trained)
        return jnp.mean(jnp.sum(jnp.square(jax.vmap(jax.grad(b))(t) - targets), axis=1))

    trained = _trainable(state.log_normaliser)
    value, gradient = jax.value_and_grad(loss)(trained)
    before = Weights(trained, state.optimiser, trained)
    after = update(_online_optimiser(settings), before, gradient, average=0.0)
    finite = jnp.isfinite(value)  # steps with a loss that is not finite are skipped
    new, optimiser, _ = jax.tree.map(lambda a, b: jnp.where(finite, a, b), after, before)
    b = eqx.tree_at(_trainable, state.log_normaliser, new)
    average = jax.tree.map(lambda a, b: settings.average * a + (1 - settings.average) * b, state.average, b)
    return OnlineState(b, optimiser, average, value)


def _online_optimiser(settings: OnlineTraining) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(LARGEST_NORM), optax.adam(settings.learning_rate))


def _trainable(b: LogNormaliser) -> Any:
    """Gradients do not see the offset; coordinates and scale stay as they are."""
    return b.slope, b.net
