"""Many small classifiers trained side by side, each exactly as scikit-learn's `MLPClassifier` would be.

The network is d -> 10 d -> 10 d -> 1 with ReLU units and a logistic output.  Adam minimises the log loss plus
an L2 penalty over shuffled mini-batches until the training loss has not fallen by 1e-4 for more than ten
epochs.  The code is written for one classifier, that of one pair of sets and one fold; `vmap` makes all folds
of many pairs.

scikit-learn's own takes 7 to 14 times as long on one core, over twenty pairs of five tasks
(`scripts/c2st_agreement.py`, numbers in docs/benchmark.md).  That factor is what this copy is kept for.
"""

import threading
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

N_FOLDS = 5
WIDTH_PER_DIM = 10  # hidden units per dimension, in each of the two hidden layers
# scikit-learn's defaults for `MLPClassifier(solver="adam")`
BATCH = 200
LEARNING_RATE = 1e-3
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
L2 = 1e-4
TOLERANCE = 1e-4
PATIENCE = 10
# how many epochs are compiled into one call; between calls the host checks whether any classifier is still training
EPOCHS_PER_CALL = 32

Layers = list[tuple[Float[Array, "..."], Float[Array, "..."]]]  # weights and biases


class Folds:
    """Everything random about the test, drawn on the host by the generator scikit-learn uses.

    scikit-learn seeds each fold's classifier alike: initial weights are the same in all folds, and the order
    of the mini-batches depends on the fold's number of training rows only.  Orders are drawn as they are
    needed and kept, since every pair and fold reads the same ones.
    """

    def __init__(self, *, rows: int, dim: int, seed: int):
        order = np.arange(rows)
        np.random.RandomState(seed).shuffle(order)
        sizes = np.full(N_FOLDS, rows // N_FOLDS)
        sizes[: rows % N_FOLDS] += 1
        held_out = np.split(order, np.cumsum(sizes)[:-1])
        self.test = np.full((N_FOLDS, sizes.max()), -1, dtype=np.int32)  # -1 marks padding, here and below
        self.train = []
        for fold, chosen in enumerate(held_out):
            self.test[fold, : len(chosen)] = np.sort(chosen)
            self.train.append(np.setdiff1d(np.arange(rows), chosen))
        most = max(len(rows_in) for rows_in in self.train)
        self.batch = min(BATCH, most)
        self.n_batches = -(-most // self.batch)
        self._shuffles = {len(rows_in): Shuffles(len(rows_in), dim, seed) for rows_in in self.train}
        self.initial = next(iter(self._shuffles.values())).initial

    def batches(self, folds: Sequence[int], call: int) -> Int[np.ndarray, "folds epochs batches batch"]:
        """Rows of every mini-batch in the call-th block of epochs."""
        blocks = []
        for fold in folds:
            rows_in = self.train[fold]
            block = np.full((EPOCHS_PER_CALL, self.n_batches * self.batch), -1, dtype=np.int32)
            block[:, : len(rows_in)] = rows_in[self._shuffles[len(rows_in)].block(call)]
            blocks.append(block.reshape(EPOCHS_PER_CALL, self.n_batches, self.batch))
        return np.stack(blocks)


class Shuffles:
    """Initial weights, then one order of n training rows per epoch, from one legacy generator."""

    def __init__(self, n: int, dim: int, seed: int):
        self._generator = np.random.RandomState(seed)
        width = WIDTH_PER_DIM * dim
        self.initial = [self._layer(*shape) for shape in ((dim, width), (width, width), (width, 1))]
        self._order = np.arange(n)
        self._blocks: list[np.ndarray] = []
        self._lock = threading.Lock()

    def _layer(self, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
        bound = np.sqrt(6.0 / (inputs + outputs))  # Glorot and Bengio (2010); the biases use it too
        weights = self._generator.uniform(-bound, bound, (inputs, outputs))
        return weights.astype(np.float32), self._generator.uniform(-bound, bound, outputs).astype(np.float32)

    def block(self, call: int) -> Int[np.ndarray, "epochs n"]:
        """Orders of the call-th block of epochs."""
        with self._lock:
            while len(self._blocks) <= call:
                orders = []
                for _ in range(EPOCHS_PER_CALL):
                    move = np.arange(len(self._order))
                    self._generator.shuffle(move)
                    self._order = self._order[move]  # each epoch shuffles the order of the one before
                    orders.append(self._order)
                self._blocks.append(np.stack(orders).astype(np.int32))
            return self._blocks[call]


class Classifier(NamedTuple):
    """State of one classifier's training."""

    layers: Layers
    first_moment: Layers
    second_moment: Layers
    steps: Float[Array, ""]  # taken by Adam; a float, for its powers
    epochs: Int[Array, ""]
    best_loss: Float[Array, ""]
    stalled: Int[Array, ""]  # consecutive epochs without an improvement of at least TOLERANCE


def training(state: Classifier, max_epochs: Int[Array, ""] | int) -> Bool[Array, "..."]:
    """Return whether the classifier has not stopped yet."""
    return (state.stalled <= PATIENCE) & (state.epochs < max_epochs)


def _logit(layers: Layers, point: Float[Array, " dim"]) -> Float[Array, ""]:
    *hidden, (weights, bias) = layers
    for w, b in hidden:
        point = jax.nn.relu(jnp.matmul(point, w, precision="highest") + b)
    return (jnp.matmul(point, weights, precision="highest") + bias)[0]


def _loss(layers: Layers, points: Float[Array, "batch dim"], labels: Array, weights: Array) -> tuple[Array, Array]:
    """Penalised log loss of a mini-batch: the one to differentiate and the one the stopping rule sees."""
    logits = jax.vmap(partial(_logit, layers))(points)
    losses = jax.nn.softplus(jnp.where(labels, -logits, logits))
    count = jnp.maximum(weights.sum(), 1.0)
    penalty = 0.5 * L2 * sum(jnp.sum(jnp.square(w)) for w, _ in layers) / count
    capped = jnp.minimum(losses, -jnp.log(jnp.finfo(losses.dtype).eps))  # probabilities are clipped at eps
    return (weights * losses).sum() / count + penalty, (weights * capped).sum() / count + penalty


def _epoch(state: Classifier, pooled: Float[Array, "rows dim"], batches: Int[Array, "batches batch"]) -> Classifier:
    """One pass over the training rows, then the stopping rule's bookkeeping."""

    def step(carry: tuple, rows: Int[Array, " batch"]) -> tuple[tuple, tuple[Array, Array]]:
        layers, first, second, t = carry
        weights = (rows >= 0).astype(pooled.dtype)
        labels = rows >= pooled.shape[0] // 2
        gradient, loss = jax.grad(_loss, has_aux=True)(layers, pooled[rows], labels, weights)
        filled = (weights.sum() > 0).astype(
            pooled.dtype
        )  # a fold with fewer rows may end in an empty batch: no step then
        t = t + filled
        keep_1, keep_2 = 1 - filled * (1 - BETA_1), 1 - filled * (1 - BETA_2)
        first = jax.tree.map(lambda m, g: keep_1 * m + (1 - keep_1) * g, first, gradient)
        second = jax.tree.map(lambda v, g: keep_2 * v + (1 - keep_2) * g * g, second, gradient)
        rate = filled * LEARNING_RATE * jnp.sqrt(1 - BETA_2**t) / (1 - BETA_1**t)
        layers = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + EPSILON), layers, first, second)
        return (layers, first, second, t), (loss, weights.sum())

    carry = (state.layers, state.first_moment, state.second_moment, state.steps)
    (layers, first, second, t), (losses, counts) = jax.lax.scan(step, carry, batches)
    loss = (losses * counts).sum() / counts.sum()
    stalled = jnp.where(loss > state.best_loss - TOLERANCE, state.stalled + 1, 0)
    best = jnp.minimum(loss, state.best_loss)
    return Classifier(layers, first, second, t, state.epochs + 1, best, stalled)


def _train_one(
    state: Classifier,
    pooled: Float[Array, "rows dim"],
    batches: Int[Array, "epochs batches batch"],
    max_epochs: Int[Array, ""],
) -> Classifier:
    """Train one classifier through a block of epochs or until it stops; under vmap, stopped ones stay put."""

    def go_on(carry: tuple[Array, Classifier]) -> Array:
        i, state = carry
        return (i < batches.shape[0]) & training(state, max_epochs)

    def body(carry: tuple[Array, Classifier]) -> tuple[Array, Classifier]:
        i, state = carry
        return i + 1, _epoch(state, pooled, batches[i])

    return jax.lax.while_loop(go_on, body, (jnp.zeros((), jnp.int32), state))[1]


def _correct_of_one(
    state: Classifier, pooled: Float[Array, "rows dim"], test: Int[Array, " held_out"]
) -> Int[Array, ""]:
    guesses = jax.vmap(partial(_logit, state.layers))(pooled[test]) > 0
    return ((guesses == (test >= pooled.shape[0] // 2)) & (test >= 0)).sum()


# inner axis: folds, which share the pair's draws; outer axis: pairs, which share the folds' mini-batches
train_block = jax.jit(jax.vmap(jax.vmap(_train_one, in_axes=(0, None, 0, None)), in_axes=(0, 0, None, None)))
count_correct = jax.jit(jax.vmap(jax.vmap(_correct_of_one, in_axes=(0, None, 0)), in_axes=(0, 0, None)))


def train_group(
    pairs: Float[Array, "b rows dim"], folds: Folds, chosen: Sequence[int], max_epochs: int
) -> Float[np.ndarray, "b folds"]:
    """Train the classifiers of all given pairs and chosen folds together; score them on the held-out rows."""
    lead = (len(pairs), len(chosen))
    layers = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, lead + leaf.shape), folds.initial)
    zeros = jax.tree.map(jnp.zeros_like, layers)
    count = jnp.zeros(lead, jnp.int32)
    steps, best_loss = jnp.zeros(lead, pairs.dtype), jnp.full(lead, jnp.inf, pairs.dtype)
    state = Classifier(layers, zeros, zeros, steps, count, best_loss, count)
    for call in range(max(1, -(-max_epochs // EPOCHS_PER_CALL))):
        state = train_block(state, pairs, folds.batches(chosen, call), max_epochs)
        if not bool(jnp.any(training(state, max_epochs))):
            break
    test = folds.test[np.asarray(chosen)]
    return np.asarray(count_correct(state, pairs, test)) / (test >= 0).sum(axis=1)
