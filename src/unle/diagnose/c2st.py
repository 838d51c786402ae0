r"""Classifier two-sample test: can a small network tell two sets of draws apart?

Label the reference draws 0 and the approximate ones 1, train a classifier on four fifths of the pooled rows,
score it on the rest, and average the accuracy over the five folds:

    C2ST = 1/5 sum_f mean_{i in fold f} 1[ c_f(v_i) = label_i ].

1/2 means that the classifier sees no difference, 1 that it always does.  The number depends on the classifier
and on the sample size (few draws flatter), so only values of one convention may be compared.  The convention
here is that of the `sbibm` benchmark: both sets z-scored by the *reference*, a multi-layer perceptron
d -> 10 d -> 10 d -> 1 with ReLU units, Adam on mini-batches of 200 until the training loss stalls, and
10 000 against 10 000 draws.

`c2st` calls scikit-learn and gives the benchmark's number.  `c2st_fast` re-implements the same training in
JAX, down to the random numbers: initial weights, folds and the order of every mini-batch are equal, so that
the two differ by floating-point rounding only (which training amplifies to about the spread between two
classifier seeds).  `c2st_fast_batch` scores many pairs at once: side by side on a GPU, one classifier per
thread on a CPU.

Reference: Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021.
"""

import os
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from unle.errors import InputError

N_FOLDS = 5
WIDTH_PER_DIM = 10  # hidden units per dimension, in each of the two hidden layers
# scikit-learn's defaults for `MLPClassifier(solver="adam")`
BATCH = 200
LEARNING_RATE = 1e-3
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
L2 = 1e-4
TOLERANCE = 1e-4
PATIENCE = 10
# how many epochs are compiled into one call; between calls the host looks whether anyone still trains
EPOCHS_PER_CALL = 32

Layers = list[tuple[Float[Array, "..."], Float[Array, "..."]]]  # weights and biases


def c2st(
    reference: ArrayLike,
    approximation: ArrayLike,
    *,
    seed: int = 1,
    jobs: int | None = None,
) -> float:
    """Score two sets of draws by the benchmark's classifier two-sample test (scikit-learn).

    Args:
        reference: draws of the distribution taken as the truth, (n, d); its mean and standard deviation
            (n - 1 in the denominator) z-score both sets, so the order of the arguments matters.
        approximation: as many draws of the approximation, (n, d).
        seed: fixes the folds, the initial weights and the mini-batches; published numbers use 1.
        jobs: worker processes for the five folds; all available cores by default, 1 stays in this process.

    Returns:
        Mean held-out accuracy, about 0.5 (indistinguishable) to 1.  Values slightly below 0.5 occur.

    Example:
        >>> import numpy as np
        >>> draws = np.random.default_rng(0).normal(size=(200, 1))
        >>> c2st(draws, draws + 10.0, jobs=1)
        1.0
    """
    import joblib
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    pooled = _pooled(reference, approximation)
    n, dim = len(pooled) // 2, pooled.shape[1]
    width = WIDTH_PER_DIM * dim
    classifier = MLPClassifier(
        activation="relu",
        hidden_layer_sizes=(width, width),
        max_iter=10_000,
        solver="adam",
        random_state=seed,
    )
    folds = KFold(n_splits=N_FOLDS, shuffle=True, random_state=seed)
    labels = np.repeat([0.0, 1.0], n)
    jobs = min(N_FOLDS, _cores()) if jobs is None else jobs
    # One BLAS thread per fold: the matrices are small, and the sums must not depend on the number of cores.
    with (
        threadpool_limits(1),
        joblib.parallel_config("loky", inner_max_num_threads=1),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores = cross_val_score(classifier, pooled, labels, cv=folds, scoring="accuracy", n_jobs=jobs)
    return float(np.mean(scores))


def c2st_fast(
    reference: ArrayLike,
    approximation: ArrayLike,
    *,
    seed: int = 1,
    max_epochs: int = 10_000,
    jobs: int | None = None,
) -> float:
    """Score two sets of draws by the same test as `c2st`, trained in JAX.

    Args:
        reference: draws of the distribution taken as the truth, (n, d).
        approximation: as many draws of the approximation, (n, d).
        seed: as in `c2st`.
        max_epochs: stop training there even if the loss still falls; scikit-learn's limit by default, never
            reached in practice (the loss stalls after 20 to 1000 epochs).
        jobs: threads on a CPU; all available cores by default.  Ignored on an accelerator.

    Returns:
        Mean held-out accuracy, within about 0.01 of `c2st`.

    Example:
        >>> import numpy as np
        >>> draws = np.random.default_rng(0).normal(size=(200, 1))
        >>> c2st_fast(draws, draws + 10.0)
        1.0
    """
    pairs = _pooled(reference, approximation)[None]
    return float(_score_pairs(pairs, seed=seed, max_epochs=max_epochs, jobs=jobs)[0])


def c2st_fast_batch(
    references: ArrayLike | Sequence[ArrayLike],
    approximations: ArrayLike | Sequence[ArrayLike],
    *,
    seed: int = 1,
    max_epochs: int = 10_000,
    jobs: int | None = None,
) -> Float[np.ndarray, " b"]:
    """Score b pairs of equal shape at once; entry i is `c2st_fast(references[i], approximations[i])`.

    Args:
        references: b sets of true draws, (b, n, d).
        approximations: b sets of approximate draws, (b, n, d).
        seed: as in `c2st`, the same for every pair.
        max_epochs: as in `c2st_fast`.
        jobs: threads on a CPU; all available cores by default.  Ignored on an accelerator, where all pairs
            and folds train side by side and the slowest one sets the time.

    Returns:
        Mean held-out accuracies, (b,).
    """
    firsts, seconds = list(references), list(approximations)  # type: ignore[arg-type]  # arrays iterate over sets
    if len(firsts) != len(seconds):
        raise InputError(
            f"expected as many approximations as references; got {len(seconds)} and {len(firsts)};"
            " try passing them in pairs."
        )
    pairs = [_pooled(*pair) for pair in zip(firsts, seconds, strict=True)]
    if not pairs:
        raise InputError("expected at least one pair of sets; got none; try a leading axis of length one.")
    if len({pair.shape for pair in pairs}) > 1:
        shapes = sorted({(len(pair) // 2, pair.shape[1]) for pair in pairs})
        raise InputError(f"expected sets of one shape; got {shapes}; try `c2st_fast` on each pair.")
    return _score_pairs(np.stack(pairs), seed=seed, max_epochs=max_epochs, jobs=jobs)


def _pooled(reference: ArrayLike, approximation: ArrayLike) -> Float[np.ndarray, "rows dim"]:
    """Check a pair, z-score it by the reference and stack it, reference rows first, in float32."""
    sets = []
    for name, values in (("reference", reference), ("approximation", approximation)):
        values = np.asarray(values, dtype=np.float32)
        if values.ndim != 2:
            raise InputError(
                f"expected `{name}` of shape (n, dim); got {values.shape}; try one draw per row."
            )
        if not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).any(axis=1).sum())
            raise InputError(
                f"expected finite draws; got {bad} rows of `{name}` with NaN or inf; try finding their cause."
            )
        sets.append(values)
    first, second = sets
    if first.shape != second.shape:
        raise InputError(
            f"expected two sets of equal shape (guessing the larger set would score above 1/2);"
            f" got {first.shape} and {second.shape}; try thinning the larger one."
        )
    if len(first) < N_FOLDS:
        raise InputError(f"expected at least {N_FOLDS} draws per set; got {len(first)}; try more draws.")
    wide = first.astype(np.float64)
    mean, std = wide.mean(axis=0).astype(np.float32), wide.std(axis=0, ddof=1).astype(np.float32)
    if not (std > 0).all():
        constant = np.flatnonzero(~(std > 0)).tolist()
        raise InputError(
            f"expected a reference that varies; got constant columns {constant}; try leaving them out."
        )
    return np.concatenate([(first - mean) / std, (second - mean) / std])


def _score_pairs(
    pairs: Float[np.ndarray, "b rows dim"], *, seed: int, max_epochs: int, jobs: int | None
) -> Float[np.ndarray, " b"]:
    """Train the 5 b classifiers and return the mean accuracy of each pair."""
    folds = _Folds(rows=pairs.shape[1], dim=pairs.shape[2], seed=seed)
    every_fold = list(range(N_FOLDS))
    if jax.default_backend() != "cpu":
        return _train_group(jnp.asarray(pairs), folds, every_fold, max_epochs).mean(axis=1)
    # On a CPU a classifier per thread beats vectorising: nobody waits for the slowest member of a group.
    tasks = [(i, fold) for i in range(len(pairs)) for fold in every_fold]
    _train_group(
        jnp.asarray(pairs[:1]), folds, every_fold[:1], 0
    )  # compile once, before the threads ask for it

    def one(task: tuple[int, int]) -> float:
        i, fold = task
        return float(_train_group(jnp.asarray(pairs[i : i + 1]), folds, [fold], max_epochs)[0, 0])

    with ThreadPoolExecutor(_cores() if jobs is None else jobs) as pool:
        return np.array(list(pool.map(one, tasks))).reshape(len(pairs), N_FOLDS).mean(axis=1)


class _Folds:
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
        self._shuffles = {len(rows_in): _Shuffles(len(rows_in), dim, seed) for rows_in in self.train}
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


class _Shuffles:
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


class _Classifier(NamedTuple):
    """State of one classifier's training."""

    layers: Layers
    first_moment: Layers
    second_moment: Layers
    steps: Int[Array, ""]
    epochs: Int[Array, ""]
    best_loss: Float[Array, ""]
    stalled: Int[Array, ""]  # consecutive epochs without an improvement of at least TOLERANCE


def _training(state: _Classifier, max_epochs: Int[Array, ""] | int) -> Bool[Array, "..."]:
    return (state.stalled <= PATIENCE) & (state.epochs < max_epochs)


def _logit(layers: Layers, point: Float[Array, " dim"]) -> Float[Array, ""]:
    *hidden, (weights, bias) = layers
    for w, b in hidden:
        point = jax.nn.relu(jnp.matmul(point, w, precision="highest") + b)
    return (jnp.matmul(point, weights, precision="highest") + bias)[0]


def _loss(
    layers: Layers, points: Float[Array, "batch dim"], labels: Array, weights: Array
) -> tuple[Array, Array]:
    """Penalised log loss of a mini-batch: the one to differentiate and the one the stopping rule sees."""
    logits = jax.vmap(partial(_logit, layers))(points)
    losses = jax.nn.softplus(jnp.where(labels, -logits, logits))
    count = jnp.maximum(weights.sum(), 1.0)
    penalty = 0.5 * L2 * sum(jnp.sum(jnp.square(w)) for w, _ in layers) / count
    capped = jnp.minimum(losses, -jnp.log(jnp.finfo(losses.dtype).eps))  # probabilities are clipped at eps
    return (weights * losses).sum() / count + penalty, (weights * capped).sum() / count + penalty


def _epoch(
    state: _Classifier, pooled: Float[Array, "rows dim"], batches: Int[Array, "batches batch"]
) -> _Classifier:
    """One pass over the training rows, then the stopping rule's bookkeeping."""

    def step(carry: tuple, rows: Int[Array, " batch"]) -> tuple[tuple, tuple[Array, Array]]:
        layers, first, second, t = carry
        weights = (rows >= 0).astype(pooled.dtype)
        labels = rows >= pooled.shape[0] // 2
        gradient, loss = jax.grad(_loss, has_aux=True)(layers, pooled[rows], labels, weights)
        filled = weights.sum() > 0  # a fold with fewer rows may end in an empty batch: no step then
        t = t + filled
        keep_1, keep_2 = jnp.where(filled, BETA_1, 1.0), jnp.where(filled, BETA_2, 1.0)
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
    return _Classifier(layers, first, second, t, state.epochs + 1, best, stalled)


def _train_one(
    state: _Classifier,
    pooled: Float[Array, "rows dim"],
    batches: Int[Array, "epochs batches batch"],
    max_epochs: Int[Array, ""],
) -> _Classifier:
    """Train one classifier through a block of epochs or until it stops; under vmap, stopped ones stay put."""

    def go_on(carry: tuple[Array, _Classifier]) -> Array:
        i, state = carry
        return (i < batches.shape[0]) & _training(state, max_epochs)

    def body(carry: tuple[Array, _Classifier]) -> tuple[Array, _Classifier]:
        i, state = carry
        return i + 1, _epoch(state, pooled, batches[i])

    return jax.lax.while_loop(go_on, body, (jnp.zeros((), jnp.int32), state))[1]


def _right_one(
    state: _Classifier, pooled: Float[Array, "rows dim"], test: Int[Array, " held_out"]
) -> Int[Array, ""]:
    guesses = jax.vmap(partial(_logit, state.layers))(pooled[test]) > 0
    return ((guesses == (test >= pooled.shape[0] // 2)) & (test >= 0)).sum()


# inner axis: folds, which share the pair's draws; outer axis: pairs, which share the folds' mini-batches
_train = jax.jit(jax.vmap(jax.vmap(_train_one, in_axes=(0, None, 0, None)), in_axes=(0, 0, None, None)))
_right = jax.jit(jax.vmap(jax.vmap(_right_one, in_axes=(0, None, 0)), in_axes=(0, 0, None)))


def _train_group(
    pairs: Float[Array, "b rows dim"], folds: _Folds, chosen: Sequence[int], max_epochs: int
) -> Float[np.ndarray, "b folds"]:
    """Train the classifiers of all given pairs and chosen folds together; score them on the held-out rows."""
    lead = (len(pairs), len(chosen))
    layers = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, lead + leaf.shape), folds.initial)
    zeros = jax.tree.map(jnp.zeros_like, layers)
    count = jnp.zeros(lead, jnp.int32)
    state = _Classifier(layers, zeros, zeros, count, count, jnp.full(lead, jnp.inf, pairs.dtype), count)
    for call in range(max(1, -(-max_epochs // EPOCHS_PER_CALL))):
        state = _train(state, pairs, folds.batches(chosen, call), max_epochs)
        if not bool(jnp.any(_training(state, max_epochs))):
            break
    test = folds.test[np.asarray(chosen)]
    return np.asarray(_right(state, pairs, test)) / (test >= 0).sum(axis=1)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
