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
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from unle.arrays import as_array
from unle.diagnose.c2st_classifier import N_FOLDS, WIDTH_PER_DIM, Folds, train_group
from unle.errors import InputError

# Standard deviations of the reference.  Draws farther off are told apart as surely there; those of a chain that
# diverged, at 1e30, would overflow in the classifier, whose guesses then mean nothing.
FARTHEST = 1000.0


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
    references: ArrayLike | Sequence[ArrayLike],  # b sets of true draws, (b, n, d)
    approximations: ArrayLike | Sequence[ArrayLike],  # b sets of approximate draws, (b, n, d)
    *,
    seed: int = 1,  # as in `c2st`, the same for every pair
    max_epochs: int = 10_000,  # as in `c2st_fast`
    # threads on a CPU; all available cores by default.  Ignored on an accelerator, where all pairs and folds train side
    # by side and the slowest one sets the time.
    jobs: int | None = None,
) -> Float[np.ndarray, " b"]:
    """Score b pairs of equal shape at once; entry i is `c2st_fast(references[i], approximations[i])`."""
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
        values = as_array(values, name).astype(np.float32)
        if values.ndim != 2:
            raise InputError(f"expected `{name}` of shape (n, dim); got {values.shape}; try one draw per row.")
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
        raise InputError(f"expected a reference that varies; got constant columns {constant}; try leaving them out.")
    pooled = np.concatenate([(first - mean) / std, (second - mean) / std])
    return np.clip(pooled, -FARTHEST, FARTHEST)


def _score_pairs(
    pairs: Float[np.ndarray, "b rows dim"], *, seed: int, max_epochs: int, jobs: int | None
) -> Float[np.ndarray, " b"]:
    """Train the 5 b classifiers and return the mean accuracy of each pair."""
    folds = Folds(rows=pairs.shape[1], dim=pairs.shape[2], seed=seed)
    every_fold = list(range(N_FOLDS))
    if jax.default_backend() != "cpu":
        return train_group(jnp.asarray(pairs), folds, every_fold, max_epochs).mean(axis=1)
    # On a CPU a classifier per thread beats vectorising: nobody waits for the slowest member of a group.
    tasks = [(i, fold) for i in range(len(pairs)) for fold in every_fold]
    train_group(jnp.asarray(pairs[:1]), folds, every_fold[:1], 0)  # compile once, before the threads ask for it

    def one(task: tuple[int, int]) -> float:
        i, fold = task
        return float(train_group(jnp.asarray(pairs[i : i + 1]), folds, [fold], max_epochs)[0, 0])

    with ThreadPoolExecutor(_cores() if jobs is None else jobs) as pool:
        return np.array(list(pool.map(one, tasks))).reshape(len(pairs), N_FOLDS).mean(axis=1)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
