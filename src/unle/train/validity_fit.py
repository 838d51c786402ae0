r"""Fit P(valid | theta) to which simulations failed, as a calibrated probability.

A few small networks of theta minimise the plain cross-entropy

    -mean_i [ y_i log p(theta_i) + (1 - y_i) log(1 - p(theta_i)) ],

whose minimum is the true probability.  No class is weighted up: weights would multiply the odds by their ratio, and
the posterior with it.

A simulation often fails in part: a cell that never fired has no phase, but a period all the same.  So for every entry
of x the networks have two more outputs, the logit a_j of its being finite and its value b_j, with the loss

    C mean_j CE(a_j, finite_j) + mean_j finite_j huber(b_j - z_j),

z_j the value in robust units.  These outputs are discarded after training; learning them shapes the layers below, which
the probability of a valid simulation shares.

Training stops where the cross-entropy of held-out rows, which no network saw, is lowest.  The same rows decide whether
the networks are better than the overall rate at all, and whether the probabilities are as extreme as they claim: a
logistic regression on the logit (Platt scaling), kept only if it helps on rows it was not fitted to.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray
from scipy.special import expit

from unle.compiling import on_device
from unle.errors import InputError
from unle.models import AbstractValidity, AlwaysValid, Mlp, ValidityNet
from unle.space import fit_theta_space
from unle.train.loop import Best, Fit, Look, Patience, adamw, begin, run, take_chunk
from unle.train.rows import batch_size
from unle.train.validation import is_better

PLATT_PRECISION = 10.0  # of the prior that pulls the recalibration towards none
BINS = 10  # of the calibration error
HELD_OUT = 0.2
SMALLEST_BATCH = 256
MOST_ENTRIES = 20  # of x that are taken; evenly spaced where there are more
LARGEST_VALUE = 4.0  # robust units at which values are cut off
FINITE_WEIGHT = 5.0  # C: failures are what the network is to learn about


class ValidityTraining(eqx.Module):
    """Settings of the fit.

    Args:
        members: networks whose probabilities are averaged.
        width: units per hidden layer.
        depth: hidden layers.
        iterations: most optimiser steps.
        batch: most rows per step; one in forty where that is fewer, but not below 256 (fewer if there are fewer).
        learning_rate: peak of the cosine schedule.
        weight_decay: decoupled decay of the weights.
        average: decay of the running mean of the weights that is validated and returned.
        chunk: steps between looks at the held-out rows.
        patience: chunks without improvement after which the fit stops.
    """

    members: int = eqx.field(static=True, default=10)
    width: int = eqx.field(static=True, default=64)
    depth: int = eqx.field(static=True, default=4)
    iterations: int = eqx.field(static=True, default=10_000)
    batch: int = eqx.field(static=True, default=1024)
    learning_rate: float = eqx.field(static=True, default=0.02)
    weight_decay: float = eqx.field(static=True, default=0.03)
    average: float = eqx.field(static=True, default=0.99)
    chunk: int = eqx.field(static=True, default=100)
    patience: int = eqx.field(static=True, default=20)


class AuxiliaryTargets(NamedTuple):
    """Targets beside the validity of each simulation."""

    finite: Bool[np.ndarray, "n entries"] | Bool[Array, "n entries"]  # which entries of x are
    values: Float[np.ndarray, "n entries"] | Float[Array, "n entries"]  # in robust units; 0 where they are not finite

    @classmethod
    def of(cls, x: Float[np.ndarray, "n dim_x"]) -> "AuxiliaryTargets":
        """Return the targets that data give, with NaN or infinities where there are none."""
        columns = np.unique(np.linspace(0, x.shape[1] - 1, MOST_ENTRIES).round().astype(int)) if x.shape[1] else []
        x = x[:, columns]
        finite = np.isfinite(x)
        values = np.zeros(x.shape, np.float32)
        for j in range(x.shape[1]):
            column = x[finite[:, j], j]
            if len(column):
                low, middle, high = np.quantile(column, [0.16, 0.5, 0.84])
                unit = 0.5 * (high - low)
                scaled = (column - middle) / unit if unit > 0 else np.zeros_like(column)
                values[finite[:, j], j] = np.clip(scaled, -LARGEST_VALUE, LARGEST_VALUE)
        return cls(finite, values)

    @property
    def outputs(self) -> int:
        """How many outputs they ask of a network."""
        return 2 * self.values.shape[1]

    def loss(self, outputs: Float[Array, "n outputs"]) -> Float[Array, ""]:
        """Return the loss of outputs on the targets of the same rows."""
        entries = self.values.shape[1]
        if entries == 0:
            return jnp.zeros(())
        entropy = optax.sigmoid_binary_cross_entropy(outputs[:, :entries], self.finite.astype(outputs.dtype))
        errors = jnp.where(self.finite, optax.huber_loss(outputs[:, entries:], self.values), 0.0)
        return FINITE_WEIGHT * jnp.mean(entropy) + jnp.mean(errors)


class ValidityFit(NamedTuple):
    """A fitted probability, and how far it can be trusted."""

    validity: AbstractValidity  # log P(valid | theta); `AlwaysValid` if every row was
    rate: float  # share of valid rows
    cross_entropy: float  # of held-out rows in nats; 0 if every row was valid
    # mean |share of valid rows - predicted probability| over ten groups of held-out rows with similar predictions
    calibration_error: float
    calibration_noise: float  # what that number would be for perfect probabilities, from the size of the groups alone
    depends: bool  # whether it depends on theta, that is, the networks were clearly better than the overall rate


def fit_validity(
    key: PRNGKeyArray,  # randomness of split, networks and batches
    # parameters of all simulations, of all rounds: nothing depends on what they were drawn from
    theta: Float[np.ndarray, "n dim"] | Float[Array, "n dim"],
    valid: Bool[np.ndarray, " n"] | Bool[Array, " n"],  # which simulations were valid
    *,
    x: Float[np.ndarray, "n dim_x"] | None = None,  # their data, with what there is of it where they were not
    settings: ValidityTraining | None = None,  # of the fit
    # simulations that there will be in the end, when more are to come: fits up to there compile once
    capacity: int | None = None,
) -> ValidityFit:
    """Fit P(valid | theta)."""
    settings = ValidityTraining() if settings is None else settings
    theta, valid = np.asarray(theta, float), np.asarray(valid, bool)
    if theta.ndim != 2 or valid.shape != theta.shape[:1]:
        raise InputError(f"expected theta (n, d) and n flags; got shapes {theta.shape} and {valid.shape}.")
    if not valid.any():
        raise InputError(f"no simulation of {len(valid)} is valid: there is no theta at which x can be learned.")
    rate = float(valid.mean())
    if valid.all():
        return ValidityFit(AlwaysValid(), 1.0, 0.0, 0.0, 0.0, depends=False)

    key_split, key_net, key_fit = jr.split(key, 3)
    held, train = _stratified(key_split, valid)
    space = fit_theta_space(theta)
    auxiliary = AuxiliaryTargets.of(np.empty((len(theta), 0)) if x is None else np.asarray(x, float))
    order, rows = _padded(len(theta), train, held, max(capacity or 0, len(theta)))
    t = _apply(space, jnp.asarray(theta[order], jnp.float32))
    data = t, jnp.asarray(valid[order]), jax.tree.map(lambda part: jnp.asarray(part[order]), auxiliary)
    # A rate of 0 or 1 among few training rows is pulled towards 1/2.
    share = jnp.asarray((valid[train].sum() + 0.5) / (len(train) + 1), t.dtype)
    constant = _initial(jr.split(key_net, settings.members), t.shape[1], auxiliary.outputs, share, settings)
    trained = _train(key_fit, constant, data, rows, settings)

    def held_out(nets):
        net = ValidityNet(space, _without_auxiliary(nets), jnp.ones(()), jnp.zeros(()))
        return np.asarray(_logits(net, jnp.asarray(theta, jnp.float32)[rows[1]]), float)[: len(held)]

    nets, logits = trained, held_out(trained)
    gains = _row_entropies(held_out(constant), valid[held]) - _row_entropies(logits, valid[held])
    depends = is_better(gains)  # a few failures may be chance
    if not depends:
        nets, logits = constant, held_out(constant)
    temper, shift, recalibrated = _recalibrate(logits, valid[held])
    probability = expit(recalibrated)
    error, noise = group_calibration(probability, valid[held])
    return ValidityFit(
        ValidityNet(space, _without_auxiliary(nets), jnp.asarray(temper, t.dtype), jnp.asarray(shift, t.dtype)),
        rate,
        float(_cross_entropy(recalibrated, valid[held])),
        error,
        noise,
        depends,
    )


def _stratified(key: PRNGKeyArray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose held-out rows, of each class in the same proportion: failures may be few."""
    order = np.asarray(jr.permutation(key, len(valid)))
    held = np.concatenate(
        [rows[: max(1, round(HELD_OUT * len(rows)))] for rows in (order[valid[order]], order[~valid[order]])]
    )
    return held, np.setdiff1d(order, held)


def _padded(n: int, train: np.ndarray, held: np.ndarray, capacity: int):
    """Repeat rows, and training and held-out indices, cyclically up to lengths that depend on the capacity alone.

    Rows 0 to n - 1 come first, so that indices of the data before stay right.
    """
    held_length = max(len(held), round(HELD_OUT * capacity))
    rows = np.resize(train, max(len(train), capacity - held_length)), np.resize(held, held_length)
    return np.resize(np.arange(n), capacity), tuple(map(jnp.asarray, rows))


@eqx.filter_jit
def _initial(
    keys: Key[Array, " member"], dim: int, auxiliary: int, rate: Float[Array, ""], settings: ValidityTraining
) -> Mlp:
    """Return networks that predict the overall rate everywhere."""

    def one(key):
        net = Mlp(key, dim, 1 + auxiliary, width=settings.width, depth=settings.depth, output_scale=0.01)
        return eqx.tree_at(lambda n: n.biases[-1], net, net.biases[-1].at[0].set(jnp.log(rate) - jnp.log1p(-rate)))

    return eqx.filter_vmap(one)(keys)


def _without_auxiliary(nets: Mlp) -> Mlp:
    """Return the networks with their first output alone."""
    last = nets.weights[-1][..., :1], nets.biases[-1][..., :1]
    return eqx.tree_at(lambda n: (n.weights[-1], n.biases[-1]), nets, last)


def _train(key, nets: Mlp, data, rows, settings: ValidityTraining) -> Mlp:
    """Train all networks; return them as they were when their mean predicted the held-out rows best."""

    def chunk(state: Fit, number: int, _: int) -> tuple[Fit, Look]:
        state = _chunk(state, data, rows, jr.split(jr.fold_in(key, number), settings.members), settings)
        score = float(np.asarray(state.best.score)[0])  # that of the ensemble, the same for all members
        return state, Look(score, f"held-out cross-entropy {-score:.3f}")

    numbers = range(-(-settings.iterations // settings.chunk))
    lowest = on_device(np.full(settings.members, -np.inf), data[0].dtype)
    state = Fit(eqx.filter_vmap(partial(begin, _optimiser(settings)))(nets), Best(nets, lowest, lowest))
    patience, title = Patience(settings.patience), "Fitting P(valid)"
    return run(chunk, state, numbers, steps=settings.chunk, patience=patience, title=title).state.best.trained


def _optimiser(settings: ValidityTraining) -> optax.GradientTransformation:
    return adamw(settings.learning_rate, settings.iterations, weight_decay=settings.weight_decay, final_rate=0.01)


@eqx.filter_jit
def _chunk(state: Fit, data, rows, keys, settings: ValidityTraining) -> Fit:
    (t, y, auxiliary), (train, held) = data, rows
    batch = min(settings.batch, batch_size(SMALLEST_BATCH, train.shape[0]))

    def loss(net, key):
        rows = train[jr.randint(key, (batch,), 0, train.shape[0])]
        outputs = jax.vmap(net)(t[rows])
        entropy = optax.sigmoid_binary_cross_entropy(outputs[:, 0], y[rows].astype(t.dtype))
        return jnp.mean(entropy) + jax.tree.map(lambda part: part[rows], auxiliary).loss(outputs[:, 1:])

    def score(net):
        own = jax.nn.log_sigmoid(jax.vmap(net)(t[held])[:, 0])
        # the geometric mean, as in `ValidityNet`
        probability = jnp.clip(jnp.exp(jax.lax.pmean(own, "member")), 1e-6, 1 - 1e-6)
        return jnp.mean(jnp.log(jnp.where(y[held], probability, 1 - probability)))

    def one_member(fit, key):
        steps = jr.split(key, settings.chunk)
        return take_chunk(_optimiser(settings), fit, loss, steps, score, average=settings.average)[0]

    return eqx.filter_vmap(one_member, axis_name="member")(state, keys)


def _row_entropies(logits: np.ndarray, valid: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, np.where(valid, -logits, logits))


def _cross_entropy(logits: np.ndarray, valid: np.ndarray) -> float:
    return float(np.mean(_row_entropies(logits, valid)))


def _platt(logits: np.ndarray, valid: np.ndarray) -> tuple[float, float]:
    """Fit valid ~ sigmoid(temper logit + shift) with a prior around (1, 0)."""

    def cost(parameters):
        temper, shift = parameters
        prior = 0.5 * PLATT_PRECISION * ((temper - 1) ** 2 + shift**2)
        return len(logits) * _cross_entropy(temper * logits + shift, valid) + prior

    from scipy.optimize import minimize  # takes long to import

    temper, shift = minimize(cost, [1.0, 0.0], method="Nelder-Mead").x
    return float(temper), float(shift)


def _recalibrate(logits: np.ndarray, valid: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Return the recalibration, and held-out logits as it makes them.

    Each half of the rows is predicted by the recalibration of the other half, so that the returned logits are
    out-of-sample.
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
