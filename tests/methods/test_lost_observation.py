"""Rounds notice when their simulations no longer contain the observation, step back, and say so if in vain."""

from collections.abc import Callable

import equinox as eqx
import numpy as np
import pytest

from unle.cli.sequential import describe_round
from unle.errors import UnleWarning
from unle.methods import AbstractSequential
from unle.methods.abstract_method import SequentialRun, record_losses, round_sizes
from unle.methods.proposals import Box, draw_around
from unle.methods.round_state import MOST_SETBACKS, OUTSIDE, Round, lost, nearest, outlying, recovered, setbacks_of
from unle.methods.rounds import RoundState, close_round, open_round
from unle.space import Prior
from unle.train import GaussianTraining

PRIOR = Prior.normal([0.0], [1.0], names=["a"])
NOISE = 0.05
SIZE, BUDGET = 60, 240  # one budget for all: what is compiled for it serves again


class OnlyRounds(AbstractSequential):
    """Rounds of bases, and no posterior in the end: it takes time, and is not what is tested here."""

    prior: Prior = PRIOR
    simulator: Callable | None = eqx.field(static=True, default=None)

    def begin(self, x_o, *, budget, rounds=4, seed=0):
        return RoundState.begin(self.prior, x_o, round_sizes(budget, rounds), seed=seed)

    def update(self, state, simulations):
        base = GaussianTraining(width=8, depth=1, iterations=100, batch=64, chunk=50)
        return close_round(open_round(state, simulations, base=base, members=2))

    def finish(self, state, *, on_metrics=None):
        return SequentialRun(None, state.simulations, state.history)  # pyright: ignore[reportArgumentType]


METHOD = OnlyRounds()


def curved(theta, seed):
    return theta + 0.2 * theta**3 + NOISE * np.random.default_rng(seed).normal(size=theta.shape)


def misled(x_o, rounds=4, seed=0) -> RoundState:
    """Return rounds whose first one proposed a narrow range of wrong parameters, around -1."""
    state = OnlyRounds().begin(x_o, budget=BUDGET, rounds=rounds, seed=seed)
    theta = state.propose()
    wrong = np.random.default_rng(seed).normal(-1.0, 0.03, size=(1000, 1))
    done = Round(0, SIZE, 1.0, SIZE, 1.0, 1.0, 1.0, 0.0, outlying=0.1)
    return state.recall((theta, curved(theta, seed)), done, wrong)


def test_rounds_that_lost_the_observation_come_back():
    """Exact: theta is 1.0 within 0.03 for x_o = 1.2."""
    state = misled([1.2])
    theta = state.propose()
    state = METHOD.update(state, (theta, curved(theta, 1)))
    done = state.history[-1]
    assert not done.contains
    assert setbacks_of(state.history) == [None, 0]
    assert lost(state.history) is not None
    assert done.used == 2 * SIZE  # everywhere again: simulations of all rounds
    assert "x_o outside of them" in describe_round(done, 4)

    theta = state.propose()
    around = theta[-SIZE // 5 :]  # simulated whatever the likelihood says
    assert np.abs(around - 1.0).mean() < 0.5
    state = METHOD.update(state, (theta, curved(theta, 2)))
    assert state.history[-1].contains
    theta = state.propose()
    state = METHOD.update(state, (theta, curved(theta, 3)))
    assert state.history[-1].contains
    assert lost(state.history) is None
    assert "round 2," in (recovered(state.history) or "")
    assert state.proposals.mean() == pytest.approx(1.0, abs=0.1)

    notes = []
    record_losses(lambda **record: notes.append(record), state.history)
    assert notes == [{"stage": "lost", "reason": recovered(state.history), "recovered": True}]


def test_rounds_that_were_interrupted_after_a_loss_give_the_same():
    state = misled([1.2])
    theta = state.propose()
    simulations = theta, curved(theta, 1)
    state = METHOD.update(state, simulations)
    again = misled([1.2]).recall(simulations, state.history[-1], state.proposals, state.carried)
    np.testing.assert_array_equal(again.propose(), state.propose())
    theta = state.propose()
    state, again = (METHOD.update(one, (theta, curved(theta, 2))) for one in (state, again))
    assert state.history[-1]._replace(seconds=0.0) == again.history[-1]._replace(seconds=0.0)
    np.testing.assert_array_equal(state.proposals, again.proposals)
    np.testing.assert_array_equal(state.propose(), again.propose())


def test_a_loss_in_the_last_round_is_reported():
    state = misled([1.2], rounds=[SIZE, BUDGET - SIZE])
    theta = state.propose()
    with pytest.warns(UnleWarning, match=r"was among those of round 1: do not trust"):
        state = METHOD.update(state, (theta, curved(theta, 1)))
    run = OnlyRounds().finish(state)
    assert run.lost == lost(state.history)
    assert "do not trust the posterior" in (run.lost or "")


@pytest.mark.parametrize(
    ("second", "sentence", "backs"),
    [(-40.0, "the simulator may be unable to produce it", 0), (-4.5, "but was among those of round", 3)],
    ids=["beyond all simulations", "between simulations of the first round"],
)
def test_an_impossible_observation_is_reported_and_not_fought_for_without_end(second, sentence, backs):
    """The second number is the first plus one, whatever theta is; in x_o it is far less."""

    def simulated(theta, number):
        x = curved(theta, number)
        return theta, np.column_stack([x, x + 1.0 + NOISE * np.random.default_rng(number + 9).normal(size=x.shape)])

    notes = []
    with pytest.warns(UnleWarning) as caught:
        run = OnlyRounds().run_rounds(
            OnlyRounds().begin([0.5, second], budget=BUDGET, rounds=4, seed=0),
            simulated,
            on_metrics=lambda **record: notes.append(record),
        )
    assert run.lost is not None
    assert sentence in run.lost
    assert str(caught[-1].message) == run.lost
    assert sum(back is not None for back in setbacks_of(run.rounds)) == backs
    noted = next(record for record in notes if record["stage"] == "lost")
    assert (noted["reason"], noted["recovered"]) == (run.lost, False)


def test_steps_back_come_to_an_end():
    def history(*values):
        return [Round(i, 1, 1.0, 1, 1.0, 0.0, 1.0, 0.0, outlying=value) for i, value in enumerate(values)]

    assert setbacks_of(history(0.0, 9.0, 9.0, 1.0, 9.0, 9.0, 9.0)) == [None, 0, 0, None, 3, None, None]
    assert MOST_SETBACKS == 3
    assert setbacks_of(history(9.0, 9.0, 1.0)) == [None, None, None]  # closing in is no loss
    assert lost([]) is None
    assert recovered(history(0.0, 9.0, 9.0)) is None
    assert "among those of round 1:" in (lost(history(0.0, 9.0, 9.0, 9.0, 9.0)) or "")
    assert "2, 3," in (recovered(history(0.0, 9.0, 9.0, 1.0)) or "")


def test_records_of_before_can_be_read():
    assert Round(0, 1, 1.0, 1, 1.0, 0.0, 1.0, 0.0).contains


@pytest.mark.parametrize("x_o", [-1.4, -0.3, 0.0, 0.7, 2.5])
def test_an_ordinary_run_is_left_alone(x_o):
    notes = []
    run = OnlyRounds().run_rounds(
        OnlyRounds().begin([x_o], budget=BUDGET, rounds=4, seed=0),
        lambda theta, number: (theta, curved(theta, number)),
        on_metrics=lambda **record: notes.append(record["stage"]),
    )
    assert all(done.contains for done in run.rounds)
    assert run.lost is None
    assert "lost" not in notes


def test_counts_that_are_zero_close_to_the_observation():
    """Of ten Poisson counts over five decades, half are zero in nearly all simulations close to x_o.

    A density of the zeros themselves would lead the rounds away from x_o.
    """
    prior = Prior.uniform([-3.0], [3.0])

    def simulated(theta, number):
        rates = np.exp(theta * np.linspace(4, 0, 10) - np.where(np.arange(10) < 5, 0.0, 5.0))
        return theta, np.random.default_rng(number).poisson(np.minimum(rates, 1e6)).astype(float)

    x_o = np.array([20.0, 8, 5, 3, 1, 0, 0, 0, 0, 0])
    method = OnlyRounds(prior)
    state = method.begin(x_o, budget=BUDGET, rounds=4, seed=0)
    for number in range(4):
        state = method.update(state, simulated(state.propose(), number))
    run = method.finish(state)
    assert run.lost is None
    assert setbacks_of(run.rounds)[1] in (None, 0)  # never left, or found again
    grid = np.linspace(-3, 3, 6001)[:, None]
    log_rates = grid * np.linspace(4, 0, 10) - np.where(np.arange(10) < 5, 0.0, 5.0)
    weights = np.exp((x_o * log_rates - np.exp(log_rates)).sum(axis=1))
    mean = np.average(grid[:, 0], weights=weights)
    sd = np.sqrt(np.average((grid[:, 0] - mean) ** 2, weights=weights))
    assert abs(state.proposals.mean() - mean) < 2 * sd
    assert np.asarray(state.fitting.rows.w).std(axis=0).min() > 0.1
    assert np.abs(np.asarray(state.fitting.rows.w)).max() < 100


def test_coordinates_that_stop_varying_have_noise_and_a_scale():
    state = OnlyRounds().begin([0.3, 0.5], budget=BUDGET, rounds=[SIZE, BUDGET - SIZE], seed=0)

    def simulated(theta, number):
        x = curved(theta, number)
        return theta, np.column_stack([x, np.where(np.abs(x) < 0.8, 0.5, x)])

    for number in range(2):
        state = METHOD.update(state, simulated(state.propose(), number))
    w = np.asarray(state.fitting.rows.w)
    assert np.isfinite(w).all()
    assert 0.5 < w[:, 1].std() < 2
    assert np.abs(w).max() < 100


@pytest.mark.parametrize("dim", [1, 10, 100])
@pytest.mark.parametrize("kind", ["normal", "counts", "heavy", "constant"])
def test_data_like_the_others_are_inside_and_far_ones_outside(dim, kind):
    rng = np.random.default_rng(dim)
    draw = {
        "normal": lambda n: rng.normal(size=(n, dim)),
        "counts": lambda n: rng.poisson(0.02, size=(n, dim)).astype(float),
        "heavy": lambda n: np.arcsinh(rng.standard_t(2, size=(n, dim))),  # as a marginal transform would have it
        "constant": lambda n: np.column_stack([rng.normal(size=(n, dim)), np.full(n, 3.0)]),
    }[kind]
    step = np.full(draw(1).shape[1], 1.0 if kind == "counts" else 0.0)
    data = draw(200)
    values = np.array([outlying(row[None], data, step) for row in draw(200)])
    assert (values > OUTSIDE).sum() <= 2
    far = draw(1)
    far[0, -1] += 15.0
    assert outlying(far, data, step) > OUTSIDE


def test_an_observation_off_the_curve_is_outside_though_no_coordinate_is():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(200, 1))
    data = theta * np.ones(5) + 0.02 * rng.normal(size=(200, 5))
    assert outlying(np.full((1, 5), 0.7), data) < OUTSIDE
    assert outlying(np.array([[0.7, -0.7, 0.7, -0.7, 0.7]]), data) > OUTSIDE


def test_rows_of_an_observation_are_judged_together():
    rng = np.random.default_rng(0)
    data, rows = rng.normal(size=(200, 2)), rng.normal(size=(30, 2))
    assert outlying(np.concatenate([rows, [[30.0, 0.0]]]), data) < OUTSIDE  # one outlier among them
    assert outlying(rows + 30.0, data) > OUTSIDE


def test_draws_around_a_few_parameters_have_twice_their_covariance_more():
    rng = np.random.default_rng(0)
    t = rng.normal(size=(15, 2)) @ np.array([[1.0, 0.5], [0.0, 0.2]])
    drawn, centres = draw_around(rng, t, 20_000)
    assert {tuple(row) for row in centres} <= {tuple(row) for row in t}
    found, exact = np.cov(drawn - centres, rowvar=False), 2 * np.cov(t, rowvar=False)
    error = np.sqrt((np.outer(np.diagonal(exact), np.diagonal(exact)) + exact**2) / len(drawn))  # of a normal sample
    assert np.all(np.abs(found - exact) < 4 * error)
    assert np.all(np.abs(found - exact / 2) > 4 * error)


def test_the_nearest_data_are_found_at_their_own_scale():
    """Among values up to a million those near 20 are all alike, unless the scale shrinks on the way."""
    rng = np.random.default_rng(0)
    w = np.column_stack([10 ** rng.uniform(0, 6, 2000), rng.normal(size=2000)])
    rows = nearest(np.array([[20.0, 0.0]]), w, np.zeros(2), 15)
    assert len(rows) == 15
    assert np.all(np.abs(w[rows, 0] - 20) < 50)
    np.testing.assert_array_equal(nearest(np.zeros((1, 2)), w[:5], np.zeros(2), 15), np.arange(5))


def test_boxes_joined_hold_both():
    one, other = Box(np.array([0.0, 2.0]), np.array([1.0, 3.0])), Box(np.array([-1.0, 2.5]), np.array([0.5, 4.0]))
    np.testing.assert_array_equal(one.joined(other), [[-1.0, 2.0], [1.0, 4.0]])
