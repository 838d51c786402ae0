"""The one training loop: when it stops, what it keeps, and what it does with numbers that are not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from unle.train.loop import CHUNKS_BEFORE_GIVING_UP, Best, Look, Patience, begin, run, take_steps, update


def stops_after(scores, patience):
    """Return how many chunks are made if they have these scores, and the last patience."""
    seen = []

    def chunk(state, key, number):
        seen.append(number)
        return state + 1, Look(scores[number], "", {"score": scores[number]})

    ended = run(chunk, 0, scores, steps=1, patience=patience, title="Training")
    assert seen == list(range(ended.state))
    assert [record["score"] for record in ended.records] == list(scores[: ended.state])
    return ended.state, ended.patience


def test_training_stops_after_chunks_without_improvement():
    assert stops_after([1.0, 2.0, 2.0, 1.0, 3.0, 0.0], Patience(2))[0] == 4
    assert stops_after([1.0, 2.0, 2.0, 3.0, 0.0, 0.0, 9.0], Patience(2))[0] == 6


def test_all_keys_are_spent_while_scores_improve():
    made, patience = stops_after([1.0, 2.0, 3.0], Patience(1))
    assert made == 3
    assert not patience.is_over


def test_improvements_that_are_too_small_and_nan_do_not_count():
    assert stops_after([1.0, 1.04, 1.08, 9.0], Patience(2, worthwhile=0.1))[0] == 3
    assert stops_after([1.0, np.nan, np.nan, 9.0], Patience(2))[0] == 3


def test_small_improvements_add_up():
    assert stops_after([1.0, 1.06, 1.12, 1.18], Patience(3, worthwhile=0.1))[1].best == 1.12


@pytest.mark.parametrize(("aim", "chunks"), [(0.0, 12), (10.0, 12), (100.0, CHUNKS_BEFORE_GIVING_UP)])
def test_training_far_below_its_aim_has_less_patience(aim, chunks):
    scores = [10.0, 9.0, 9.0, 9.0] + [8.0] * 20
    assert stops_after(scores, Patience(11, best=0.0, aim=aim))[0] == chunks


def test_a_chunk_can_end_training():
    ended = run(
        lambda s, _, n: (n, Look(float(n), "", is_over=n == 2)), 0, range(9), steps=1, patience=Patience(9), title=""
    )
    assert ended.state == 2
    assert ended.records == []


def test_records_are_given_as_they_come():
    told = []
    run(
        lambda s, _, n: (n, Look(float(n), "", {"n": n, "told": len(told)})),
        0,
        range(3),
        steps=1,
        patience=Patience(9),
        title="",
        on_chunk=told.append,
    )
    assert told == [{"n": n, "told": n} for n in range(3)]


def quadratic(trained, target):
    return jnp.sum((trained - target) ** 2)


def test_steps_descend_and_the_average_follows():
    optimiser = optax.sgd(0.1)
    targets = jnp.ones((200, 2))
    weights, losses = take_steps(optimiser, begin(optimiser, jnp.zeros(2)), quadratic, targets, average=0.9)
    np.testing.assert_allclose(weights.trained, [1.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(weights.average, [1.0, 1.0], atol=1e-3)
    assert losses[0] == 2.0
    assert (np.diff(losses) <= 0).all()


def test_one_step_is_that_of_the_optimiser():
    optimiser = optax.sgd(1.0)
    start = begin(optimiser, jnp.array([1.0]))
    after = update(optimiser, start, jnp.array([0.5]), average=0.75, change=lambda updates: 2 * updates)
    np.testing.assert_allclose(after.trained, [0.0])  # 1 - 2 * 0.5
    np.testing.assert_allclose(after.average, [0.75])
    np.testing.assert_allclose(update(optimiser, start, jnp.array([0.5]), average=0.0).average, [0.5])


@pytest.mark.parametrize(("rows", "kept"), [([1.0, 3.0], 2.0), ([0.0, 1.0], 1.0), ([jnp.nan, 9.0], 1.0)])
def test_the_best_weights_are_kept(rows, kept):
    best = Best(jnp.asarray(1.0), jnp.asarray(1.0), jnp.asarray([1.0, 1.0]))
    after = jax.jit(lambda best, rows: best.or_better(jnp.asarray(2.0), rows))(best, jnp.asarray(rows))
    assert float(after.trained) == kept
    assert float(after.score) == kept
