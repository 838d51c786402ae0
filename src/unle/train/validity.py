r"""Fit P(valid | theta) to which simulations failed, as a calibrated probability.

A few small networks of theta minimise the plain cross-entropy

    -mean_i [ y_i log p(theta_i) + (1 - y_i) log(1 - p(theta_i)) ],

whose minimum is the true probability.  No class is weighted up: weights would multiply the odds by their ratio, and
the posterior with it.  Training stops where the cross-entropy of held-out rows, which no network saw, is lowest.  The
same rows decide whether the networks are better than the overall rate at all, and whether the probabilities are as
extreme as they claim: a logistic regression on the logit (Platt scaling), kept only if it helps on rows it was not
fitted to.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray
from scipy.optimize import minimize

from unle.errors import InputError
from unle.models import AbstractValidity, AlwaysValid, Mlp, ValidityNet
from unle.progress import progress
from unle.space import fit_theta_space

CLIP = 5.0  # global norm of a gradient
PLATT_PRECISION = 10.0  # of the prior that pulls the recalibration towards none
BINS = 10  # of the calibration error
HELD_OUT = 0.2


class ValidityTraining(eqx.Module):
    """Settings of the fit.

    Args:
        members: networks whose probabilities are averaged.
        width: units per hidden layer.
        depth: hidden layers.
        iterations: most optimiser steps.
        batch: rows per step (fewer if there are fewer).
        learning_rate: peak of the cosine schedule.
        weight_decay: decoupled decay of the weights.
        chunk: steps between looks at the held-out rows.
        patience: chunks without improvement after which the fit stops.
    """

    members: int = eqx.field(static=True, default=5)
    width: int = eqx.field(static=True, default=32)
    depth: int = eqx.field(static=True, default=2)
    iterations: int = eqx.field(static=True, default=10_000)
    batch: int = eqx.field(static=True, default=1024)
    learning_rate: float = eqx.field(static=True, default=0.01)
    weight_decay: float = eqx.field(static=True, default=0.1)
    chunk: int = eqx.field(static=True, default=100)
    patience: int = eqx.field(static=True, default=10)


class ValidityFit(NamedTuple):
    """A fitted probability, and how far it can be trusted.

    Attributes:
        validity: log P(valid | theta); `AlwaysValid` if every row was.
        rate: share of valid rows.
        cross_entropy: of held-out rows in nats; 0 if every row was valid.
        calibration_error: mean |share of valid rows - predicted probability| over ten groups of held-out rows with
            similar predictions.
        calibration_noise: what that number would be for perfect probabilities, from the size of the groups alone.
    """

    validity: AbstractValidity
    rate: float
    cross_entropy: float
    calibration_error: float
    calibration_noise: float


def fit_validity(
    key: PRNGKeyArray,
    theta: Float[np.ndarray, "n dim"] | Float[Array, "n dim"],
    valid: Bool[np.ndarray, " n"] | Bool[Array, " n"],
    *,
    settings: ValidityTraining | None = None,
    capacity: int | None = None,
) -> ValidityFit:
    """Fit P(valid | theta).

    Args:
        key: randomness of split, networks and batches.
        theta: parameters of all simulations, of all rounds: nothing depends on what they were drawn from.
        valid: which simulations were valid.
        settings: of the fit.
        capacity: simulations that there will be in the end, when more are to come: fits up to there compile once.
    """
    settings = ValidityTraining() if settings is None else settings
    theta, valid = np.asarray(theta, float), np.asarray(valid, bool)
    if theta.ndim != 2 or valid.shape != theta.shape[:1]:
        raise InputError(f"expected theta (n, d) and n flags; got shapes {theta.shape} and {valid.shape}.")
    if not valid.any():
        raise InputError(f"no simulation of {len(valid)} is valid: there is no theta at which x can be learned.")
    rate = float(valid.mean())
    if valid.all():
        return ValidityFit(AlwaysValid(), 1.0, 0.0, 0.0, 0.0)

    key_split, key_net, key_fit = jr.split(key, 3)
    held, train = _stratified(key_split, valid)
    space = fit_theta_space(theta)
    t, y, rows = _padded(theta, valid, train, held, max(capacity or 0, len(theta)))
    t = _apply(space, t)
    # A rate of 0 or 1 among few training rows is not taken at its word.
    share = jnp.asarray((valid[train].sum() + 0.5) / (len(train) + 1), t.dtype)
    constant = _initial(jr.split(key_net, settings.members), t.shape[1], share, settings)
    trained = _train(key_fit, constant, t, y, rows, settings)

    def held_out(nets):
        net = ValidityNet(space, nets, jnp.ones(()), jnp.zeros(()))
        return np.asarray(_logits(net, jnp.asarray(theta, jnp.float32)[rows[1]]), float)[: len(held)]

    nets, logits = trained, held_out(trained)
    if not _clearly_better(logits, held_out(constant), valid[held]):
        nets, logits = constant, held_out(constant)
    temper, shift, recalibrated = _recalibrate(logits, valid[held])
    probability = 1 / (1 + np.exp(-recalibrated))
    error, noise = group_calibration(probability, valid[held])
    return ValidityFit(
        ValidityNet(space, nets, jnp.asarray(temper, t.dtype), jnp.asarray(shift, t.dtype)),
        rate,
        float(_cross_entropy(recalibrated, valid[held])),
        error,
        noise,
    )


def _stratified(key: PRNGKeyArray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Deal rows into held-out and training ones, each class in the same proportion: failures may be few."""
    order = np.asarray(jr.permutation(key, len(valid)))
    held = np.concatenate(
        [rows[: max(1, round(HELD_OUT * len(rows)))] for rows in (order[valid[order]], order[~valid[order]])]
    )
    return held, np.setdiff1d(order, held)


def _padded(theta: np.ndarray, valid: np.ndarray, train: np.ndarray, held: np.ndarray, capacity: int):
    """Repeat rows and indices in turn up to lengths that depend on the capacity alone."""
    order = np.resize(np.arange(len(theta)), capacity)
    held_length = max(len(held), round(HELD_OUT * capacity))
    rows = np.resize(train, max(len(train), capacity - held_length)), np.resize(held, held_length)
    return jnp.asarray(theta[order], jnp.float32), jnp.asarray(valid[order]), tuple(map(jnp.asarray, rows))


@eqx.filter_jit
def _initial(keys: Key[Array, " member"], dim: int, rate: Float[Array, ""], settings: ValidityTraining) -> Mlp:
    """Return networks that predict the overall rate everywhere."""

    def one(key):
        net = Mlp(key, dim, 1, width=settings.width, depth=settings.depth, output_scale=0.01)
        return eqx.tree_at(lambda n: n.biases[-1], net, (jnp.log(rate) - jnp.log1p(-rate))[None])

    return eqx.filter_vmap(one)(keys)


def _train(key, nets: Mlp, t, y, rows, settings: ValidityTraining) -> Mlp:
    """Train all networks; return them as they were when their mean predicted the held-out rows best."""
    optimiser = eqx.filter_vmap(_optimiser(settings).init)(nets)
    best, lowest, since = nets, np.inf, 0
    chunks = -(-settings.iterations // settings.chunk)
    with progress("Fitting P(valid)", total=chunks * settings.chunk) as bar:
        for chunk in range(chunks):
            keys = jr.split(jr.fold_in(key, chunk), settings.members)
            nets, optimiser, score = _chunk(nets, optimiser, t, y, rows, keys, settings)
            score = float(score)
            bar.advance(settings.chunk, note=f"held-out cross-entropy {score:.3f}")
            best, lowest, since = (nets, score, 0) if score < lowest else (best, lowest, since + 1)
            if since >= settings.patience:
                break
    return best


def _optimiser(settings: ValidityTraining) -> optax.GradientTransformation:
    schedule = optax.cosine_decay_schedule(settings.learning_rate, settings.iterations, alpha=0.01)
    return optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(schedule, weight_decay=settings.weight_decay))


@eqx.filter_jit
def _chunk(nets: Mlp, optimisers: Any, t, y, rows, keys, settings: ValidityTraining):
    train, held = rows
    optimiser = _optimiser(settings)
    batch = min(settings.batch, train.shape[0])

    def loss(net, rows):
        logits = jax.vmap(net)(t[rows])[:, 0]
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, y[rows].astype(t.dtype)))

    def one_member(net, opt, key):
        def step(carry, key):
            net, opt = carry
            rows = train[jr.randint(key, (batch,), 0, train.shape[0])]
            updates, opt = optimiser.update(jax.grad(loss)(net, rows), opt, net)
            return (eqx.apply_updates(net, updates), opt), None

        (net, opt), _ = jax.lax.scan(step, (net, opt), jr.split(key, settings.chunk))
        return net, opt, jax.nn.sigmoid(jax.vmap(net)(t[held])[:, 0])

    nets, optimisers, probabilities = eqx.filter_vmap(one_member)(nets, optimisers, keys)
    probability = jnp.clip(jnp.mean(probabilities, axis=0), 1e-6, 1 - 1e-6)
    score = -jnp.mean(jnp.log(jnp.where(y[held], probability, 1 - probability)))
    return nets, optimisers, score


def _row_entropies(logits: np.ndarray, valid: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, np.where(valid, -logits, logits))


def _cross_entropy(logits: np.ndarray, valid: np.ndarray) -> float:
    return float(np.mean(_row_entropies(logits, valid)))


def _clearly_better(logits: np.ndarray, constant: np.ndarray, valid: np.ndarray) -> bool:
    """Return whether networks beat the overall rate by more than a standard error: a few failures may be chance."""
    gain = _row_entropies(constant, valid) - _row_entropies(logits, valid)
    return bool(gain.mean() > gain.std() / np.sqrt(len(gain)))


def _platt(logits: np.ndarray, valid: np.ndarray) -> tuple[float, float]:
    """Fit valid ~ sigmoid(temper logit + shift) with a prior around (1, 0)."""

    def cost(parameters):
        temper, shift = parameters
        prior = 0.5 * PLATT_PRECISION * ((temper - 1) ** 2 + shift**2)
        return len(logits) * _cross_entropy(temper * logits + shift, valid) + prior

    temper, shift = minimize(cost, [1.0, 0.0], method="Nelder-Mead").x
    return float(temper), float(shift)


def _recalibrate(logits: np.ndarray, valid: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Return the recalibration, and held-out logits as it makes them.

    Each half of the rows is predicted by the recalibration of the other half, so that the logits returned are honest.
    """
    parity = np.arange(len(valid)) % 2 == 0  # classes lie in order, so both halves have the same share of each
    crossed = np.empty_like(logits)
    for part in (parity, ~parity):
        if len(np.unique(valid[~part])) < 2:
            return 1.0, 0.0, logits
        temper, shift = _platt(logits[~part], valid[~part])
        crossed[part] = temper * logits[part] + shift
    if _cross_entropy(crossed, valid) >= _cross_entropy(logits, valid):
        return 1.0, 0.0, logits
    temper, shift = _platt(logits, valid)
    return temper, shift, crossed


def group_calibration(probability: np.ndarray, valid: np.ndarray) -> tuple[float, float]:
    """Return the calibration error over groups of equal size, and its expectation for perfect probabilities."""
    groups = np.array_split(np.argsort(probability), min(BINS, len(valid)))
    error = noise = 0.0
    for rows in groups:
        share = len(rows) / len(valid)
        error += share * abs(valid[rows].mean() - probability[rows].mean())
        spread = np.sqrt(np.sum(probability[rows] * (1 - probability[rows]))) / len(rows)
        noise += share * np.sqrt(2 / np.pi) * spread  # the mean of |N(0, spread^2)|
    return float(error), float(noise)


@eqx.filter_jit
def _apply(space, theta: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    return jax.vmap(space.forward)(theta)


@eqx.filter_jit
def _logits(net: ValidityNet, theta: Float[Array, "n dim"]) -> Float[Array, " n"]:
    return jax.vmap(net.logit)(theta)
