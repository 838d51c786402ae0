"""The classifier two-sample test: the benchmark's number, the fast one, and what must turn bad."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

import unle.diagnose
from unle.diagnose import c2st, c2st_classifier, c2st_fast, c2st_fast_batch
from unle.diagnose.c2st_scores import _pooled as pooled_by_reference
from unle.errors import InputError


def _pair(n, dim, *, shift=0.0, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)), shift + scale * rng.normal(size=(n, dim))


def _as_the_benchmark_writes_it(reference, approximation, seed=1):
    """Straight from the metric's definition, one process, for comparison."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    first, second = np.asarray(reference, np.float32), np.asarray(approximation, np.float32)
    mean, std = first.mean(0), first.std(0, ddof=1)
    data = np.concatenate([(first - mean) / std, (second - mean) / std])
    target = np.concatenate([np.zeros(len(first)), np.ones(len(second))])
    width = 10 * first.shape[1]
    network = MLPClassifier(hidden_layer_sizes=(width, width), max_iter=10000, random_state=seed)
    folds = KFold(n_splits=5, shuffle=True, random_state=seed)
    return float(cross_val_score(network, data, target, cv=folds, scoring="accuracy").mean())


def test_c2st_is_the_benchmarks_number_in_one_process_and_in_two():
    reference, approximation = _pair(200, 1, shift=0.5)
    one_process = c2st(reference, approximation, jobs=1)
    # Means of float32 columns may differ in their last bit, so a borderline row may change sides.
    assert one_process == pytest.approx(_as_the_benchmark_writes_it(reference, approximation), abs=2 / 400)
    assert c2st(reference, approximation, jobs=2) == one_process


def test_folds_initial_weights_and_batches_are_those_of_scikit_learn():
    from sklearn.model_selection import KFold
    from sklearn.neural_network import MLPClassifier

    rows, dim = 514, 2  # does not divide by five: the last fold trains on one row more
    folds = c2st_classifier.Folds(rows=rows, dim=dim, seed=1)
    data = np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)
    for fold, (train, test) in enumerate(KFold(5, shuffle=True, random_state=1).split(data)):
        np.testing.assert_array_equal(folds.train[fold], train)
        np.testing.assert_array_equal(folds.test[fold][folds.test[fold] >= 0], test)

    theirs = MLPClassifier(hidden_layer_sizes=(20, 20), max_iter=1, random_state=1)
    generator = np.random.RandomState(1)
    theirs._random_state = generator  # scikit-learn's own draw of the first layer, from a fresh generator
    weights, bias = theirs._init_coef(dim, 20, np.float32)
    np.testing.assert_array_equal(folds.initial[0][0], weights)
    np.testing.assert_array_equal(folds.initial[0][1], bias)

    for fold in (0, 4):
        epochs = folds.batches([fold], 0)[0].reshape(c2st_classifier.EPOCHS_PER_CALL, -1)
        for epoch in (0, 1):
            used = epochs[epoch][epochs[epoch] >= 0]
            np.testing.assert_array_equal(np.sort(used), folds.train[fold])  # every row once
        assert (epochs[0] != epochs[1]).any()


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_training_follows_scikit_learn_epoch_by_epoch():
    """Same weights, same batches, same Adam: losses agree until rounding has been amplified."""
    from sklearn.neural_network import MLPClassifier

    reference, approximation = _pair(257, 3, shift=0.4)
    pooled = pooled_by_reference(reference, approximation)
    folds = c2st_classifier.Folds(rows=len(pooled), dim=3, seed=1)
    labels = np.repeat([0.0, 1.0], len(reference))
    for epochs in (1, 4):
        for fold in (0, 4):
            rows = folds.train[fold]
            theirs = MLPClassifier(hidden_layer_sizes=(30, 30), max_iter=epochs, random_state=1)
            theirs.fit(pooled[rows], labels[rows])
            add_axes = lambda leaf: leaf[None, None]  # noqa: E731
            layers = jax.tree.map(add_axes, folds.initial)
            zeros = jax.tree.map(np.zeros_like, layers)
            count = np.zeros((1, 1), np.int32)
            steps, best_loss = np.zeros((1, 1), np.float32), np.full((1, 1), np.inf, np.float32)
            start = c2st_classifier.Classifier(layers, zeros, zeros, steps, count, best_loss, count)
            ours = c2st_classifier.train_block(start, pooled[None], folds.batches([fold], 0), epochs)
            assert float(ours.best_loss[0, 0]) == pytest.approx(min(theirs.loss_curve_), abs=1e-5)
            for (weights, bias), coefficients, intercepts in zip(
                ours.layers, theirs.coefs_, theirs.intercepts_, strict=True
            ):
                np.testing.assert_allclose(weights[0, 0], coefficients, atol=1e-4)
                np.testing.assert_allclose(bias[0, 0], intercepts, atol=1e-4)


@pytest.mark.parametrize(("dim", "change"), [(2, {}), (2, {"shift": 0.3}), (2, {"scale": 1.5}), (2, {"shift": 2.0})])
def test_fast_agrees_with_scikit_learn(dim, change):
    reference, approximation = _pair(500, dim, **change)
    assert c2st_fast(reference, approximation) == pytest.approx(c2st(reference, approximation, jobs=1), abs=0.011)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 5])
@pytest.mark.parametrize("change", [{}, {"shift": 0.2}, {"scale": 1.3}, {"shift": 2.0}])
def test_fast_agrees_with_scikit_learn_at_length(dim, change):
    reference, approximation = _pair(2000, dim, **change)
    assert c2st_fast(reference, approximation) == pytest.approx(c2st(reference, approximation), abs=0.011)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "blur", "about"),
    [("gaussian_mixture", 0.0, 0.5), ("gaussian_mixture", 0.3, 0.65), ("two_moons", 1.0, 0.99)],
)
def test_fast_agrees_on_pairs_of_the_benchmark(name, blur, about):
    """Three of the twenty pairs of scripts/c2st_agreement.py, whose other numbers are in docs/benchmark.md."""
    path = Path(__file__).parents[2] / "scripts" / "c2st_agreement.py"
    spec = importlib.util.spec_from_file_location("c2st_agreement", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    sets = script.pair(name, blur, 10_000)
    exact = c2st(*sets)
    assert exact == pytest.approx(about, abs=0.02)
    assert c2st_fast(*sets) == pytest.approx(exact, abs=0.01)


def test_null_is_chance_and_a_far_set_is_certain():
    n = 500
    chance = c2st_fast(*_pair(n, 2))
    # accuracy of a fair coin over 2 n held-out rows, z = 4; over-fitting pulls slightly below 1/2
    assert abs(chance - 0.5) < 4 * 0.5 / np.sqrt(2 * n)
    assert c2st_fast(*_pair(n, 2, shift=6.0)) > 0.999


@pytest.mark.parametrize("size", [1e5, 1e36])
def test_draws_of_a_diverged_chain_are_told_apart(size):
    reference, other = _pair(300, 4)
    assert c2st_fast(reference, size * other) > 0.97
    half = np.where(np.arange(300)[:, None] % 2, size * other, other)
    assert 0.65 < c2st_fast(reference, half) < 0.85


def test_scores_what_a_gaussian_shift_can_reach():
    """Best possible accuracy for N(0, 1) against N(m, 1) is Phi(m / 2)."""
    score = c2st_fast(*_pair(2000, 1, shift=1.0))
    best = 0.6914624612740131
    assert abs(score - best) < 4 * np.sqrt(best * (1 - best) / 4000)


def test_batch_equals_one_by_one_and_side_by_side_equals_threads():
    pairs = [_pair(500, 2, shift=s, seed=i) for i, s in enumerate((0.0, 1.0))]
    references, approximations = (np.stack(sets) for sets in zip(*pairs, strict=True))
    batch = c2st_fast_batch(references, approximations)
    assert batch.shape == (2,)
    np.testing.assert_allclose(batch, [c2st_fast(r, a) for r, a in pairs])
    together = np.stack([pooled_by_reference(r, a) for r, a in pairs])
    folds = c2st_classifier.Folds(rows=1000, dim=2, seed=1)
    grouped = c2st_classifier.train_group(jax.numpy.asarray(together), folds, range(5), 10_000).mean(axis=1)
    np.testing.assert_allclose(batch, grouped, atol=2 / 200)  # sums in another order: a borderline row may move


def test_deterministic_and_seeded():
    reference, approximation = _pair(500, 2, shift=0.5)
    assert c2st_fast(reference, approximation) == c2st_fast(reference, approximation)
    assert c2st_fast(reference, approximation, seed=3) != c2st_fast(reference, approximation, seed=1)


@pytest.mark.parametrize("score", [c2st, c2st_fast])
def test_refuses_what_would_mislead(score):
    reference, approximation = _pair(50, 2)
    with pytest.raises(InputError, match="equal shape"):
        score(reference, approximation[:40])
    with pytest.raises(InputError, match="one draw per row"):
        score(reference[:, 0], approximation[:, 0])
    spoiled = approximation.copy()
    spoiled[3, 0] = np.nan
    with pytest.raises(InputError, match="1 rows of `approximation` with NaN"):
        score(reference, spoiled)
    with pytest.raises(InputError, match=r"constant columns \[1\]"):
        score(reference * [1.0, 0.0], approximation)
    with pytest.raises(InputError, match="at least 5"):
        score(reference[:3], approximation[:3])


def test_batch_refuses_unequal_pairs():
    reference, approximation = _pair(50, 2)
    with pytest.raises(InputError, match="as many approximations"):
        c2st_fast_batch([reference, reference], [approximation])
    with pytest.raises(InputError, match="one shape"):
        c2st_fast_batch([reference, reference[:40]], [approximation, approximation[:40]])


def test_public_names():
    assert {"c2st", "c2st_fast", "c2st_fast_batch"} <= set(unle.diagnose.__all__)
