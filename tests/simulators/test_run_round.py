import subprocess
import sys

import numpy as np
import pytest

import unle
from unle.errors import InputError, StoreError, UnleWarning
from unle.simulators import Simulations, batched, simulate, simulate_at
from unle.store import SimulationStore


class Box:
    """A stand-in prior, with no jax in it."""

    def sample(self, n, *, seed=0):
        return np.random.default_rng(seed).uniform(-1, 1, size=(n, 2)).astype(np.float32)


def noisy(theta, rng):
    return theta + rng.normal(size=2)


@pytest.fixture
def store(tmp_path):
    with SimulationStore(tmp_path / "simulations.sqlite") as store:
        yield store


# --- seeds


def test_every_simulation_has_its_own_documented_generator():
    sims = simulate(noisy, Box(), 30, seed=5, round=2)
    for i in (0, 7, 29):
        sequence = np.random.SeedSequence(5, spawn_key=(2, i))
        rng = np.random.Generator(np.random.PCG64(sequence))
        np.testing.assert_array_equal(sims.x[i], noisy(sims.theta[i], rng))
    assert len(np.unique(sims.x, axis=0)) == 30


def test_seeds_and_rounds_decide_the_result():
    base = simulate(noisy, Box(), 10, seed=1)
    np.testing.assert_array_equal(base.x, simulate(noisy, Box(), 10, seed=1).x)
    assert (base.x != simulate(noisy, Box(), 10, seed=2).x).all()
    assert (base.x != simulate(noisy, Box(), 10, seed=1, round=1).x).all()


def test_a_failure_does_not_change_the_others():
    def sometimes(theta, rng):
        if theta[0] > 0:
            raise RuntimeError("boom")
        return noisy(theta, rng)

    good, patchy = simulate(noisy, Box(), 50), simulate(sometimes, Box(), 50)
    assert 0 < patchy.valid.sum() < 50
    np.testing.assert_array_equal(patchy.valid_x, good.x[patchy.valid])


# --- what a simulator may return


@pytest.mark.parametrize(
    ("result", "expected"),
    [(3, [3.0]), ([1, 2], [1.0, 2.0]), (np.float32(0.5), [0.5]), (np.array(True), [1.0]), ((1.5,), [1.5])],
)
def test_numbers_lists_and_arrays_are_data(result, expected):
    sims = simulate(lambda theta, rng: result, Box(), 3)
    np.testing.assert_array_equal(sims.x, [expected] * 3)
    assert sims.valid.all()
    assert sims.x.dtype == np.float64


def test_a_buffer_that_is_reused_is_copied_and_theta_cannot_be_changed():
    buffer = np.zeros(2)

    def simulator(theta, rng):
        buffer[:] = rng.normal(size=2)
        theta[:] = np.nan
        return buffer

    sims = simulate(simulator, Box(), 5)
    assert len(np.unique(sims.x, axis=0)) == 5
    assert np.isfinite(sims.theta).all()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: sys.exit(3), "SystemExit: 3"),
        (lambda: np.array([1.0, np.nan]), "not finite: 1 of 2 values, the first at position 1"),
        (lambda: [np.inf, 0.0], "not finite: 1 of 2 values, the first at position 0"),
        (lambda: np.nan, "not finite: 1 of 1 values"),
        (lambda: [1.0, 2.0, 3.0], "wrong length: 3 values instead of 2"),
        (lambda: np.zeros((2, 1)), "wrong shape: expected one data vector; got an array of shape (2, 1)"),
        (lambda: [], "wrong shape: expected one data vector; got an array of shape (0,)"),
        (lambda: None, "returned nothing"),
        (lambda: {"x": 1}, "other names: x"),
        (lambda: {}, "wrong shape: expected some data; got an empty dictionary"),
        (lambda: "text", "not numbers: expected numbers; got str"),
        (lambda: [[1.0], [1.0, 2.0]], "not numbers"),
        (lambda: 1j, "not numbers: expected real numbers; got complex ones"),
    ],
)
def test_a_failure_becomes_an_invalid_row_with_a_reason(store, bad, reason):
    calls = iter(range(100))

    def simulator(theta, rng):
        return bad() if next(calls) == 3 else theta

    sims = simulate(simulator, Box(), 6, store=store)
    np.testing.assert_array_equal(sims.valid, [True, True, True, False, True, True])
    assert sims.reasons[3].startswith(reason)
    assert sims.reasons[0] == ""
    assert f"5 valid, 1 invalid (1 {reason.partition(':')[0]})" in sims.summary()
    assert len(sims.valid_theta) == len(sims.valid_x) == 5
    rows = store.read()
    np.testing.assert_array_equal(rows.valid, sims.valid)
    np.testing.assert_array_equal(rows.x[rows.valid], sims.valid_x)
    assert rows.reasons == sims.reasons


def test_a_nan_in_place_of_the_first_vector_does_not_fix_the_length():
    calls = iter(range(100))
    sims = simulate(lambda theta, rng: np.nan if next(calls) == 0 else theta, Box(), 5)
    np.testing.assert_array_equal(sims.valid, [False, True, True, True, True])
    assert np.isnan(sims.x[0]).all()


def test_the_first_traceback_is_kept():
    def simulator(theta, rng):
        raise ValueError("too stiff\nsecond line")

    with pytest.warns(UnleWarning, match="no simulation is valid"):
        sims = simulate(simulator, Box(), 4)
    assert sims.reasons == ("ValueError: too stiff",) * 4
    assert sims.first_traceback is not None
    assert "in simulator" in sims.first_traceback
    assert sims.x.shape == (4, 0)


def test_a_hundred_failures_in_a_row_stop_the_run_with_advice(store):
    calls = []

    def simulator(theta, rng):
        calls.append(1)
        raise KeyError("parameter 'beta'")

    with pytest.raises(InputError, match=r"none among the first 100 \(100 KeyError\).*by itself") as caught:
        simulate(simulator, Box(), 1000, store=store)
    assert "in simulator" in str(caught.value)
    assert len(calls) == 100
    assert store.count() == 100


def test_one_success_among_the_first_hundred_goes_on():
    calls = iter(range(200))
    sims = simulate(lambda theta, rng: theta if next(calls) == 99 else np.nan, Box(), 150)
    assert sims.valid.sum() == 1


# --- the store


def test_an_interrupted_run_loses_nothing(store):
    calls = iter(range(100))

    def simulator(theta, rng):
        if next(calls) == 7:
            raise KeyboardInterrupt
        return noisy(theta, rng)

    with pytest.raises(KeyboardInterrupt):
        simulate(simulator, Box(), 20, seed=3, store=store)
    rows = store.read()
    whole = simulate(noisy, Box(), 20, seed=3)
    np.testing.assert_array_equal(rows.id, range(7))
    np.testing.assert_array_equal(rows.x, whole.x[:7])
    np.testing.assert_array_equal(rows.theta, whole.theta[:7])


def test_rows_are_written_as_they_come(store, monkeypatch):
    monkeypatch.setattr(sys.modules["unle.simulators.run_round"], "SECONDS_BETWEEN_WRITES", -1.0)
    seen = []

    def simulator(theta, rng):
        seen.append(store.count())
        return theta

    simulate(simulator, Box(), 5, store=store)
    assert seen == [0, 1, 2, 3, 4]


def test_a_round_is_simulated_once(store):
    first = simulate(noisy, Box(), 3, store=store)
    again = simulate(lambda theta, rng: 1 / 0, Box(), 3, store=store)  # nothing is left to do
    np.testing.assert_array_equal(first.x, again.x)
    simulate(noisy, Box(), 3, round=1, store=store)
    assert store.count() == 6


def test_a_round_is_not_mixed_with_another(store):
    simulate(noisy, Box(), 3, store=store)
    with pytest.raises(StoreError, match="other simulations of round 0: another seed, theta"):
        simulate(noisy, Box(), 3, seed=1, store=store)
    with pytest.raises(StoreError, match="3 of them, and 2 were asked for"):
        simulate(noisy, Box(), 2, store=store)  # more of them would be a top-up
    Simulations.from_arrays(np.zeros((2, 2)), np.zeros((2, 2))).append_to(store, round=5)
    with pytest.raises(StoreError, match="from elsewhere"):
        simulate(noisy, Box(), 2, round=5, store=store)


def test_an_interrupted_run_goes_on_with_what_is_missing(store):
    calls = iter(range(100))

    def stopping(theta, rng):
        if next(calls) == 7:
            raise KeyboardInterrupt
        return noisy(theta, rng)

    with pytest.raises(KeyboardInterrupt):
        simulate(stopping, Box(), 20, store=store)
    rest = []
    sims = simulate(lambda theta, rng: (rest.append(1), noisy(theta, rng))[1], Box(), 20, store=store)
    assert len(rest) == 13
    np.testing.assert_array_equal(sims.x, simulate(noisy, Box(), 20).x)


def test_the_most_frequent_length_is_the_right_one_whoever_comes_first():
    calls = iter(range(100))
    sims = simulate(lambda theta, rng: [1.0] if next(calls) == 0 else theta, Box(), 5)
    np.testing.assert_array_equal(sims.valid, [False, True, True, True, True])
    assert sims.reasons[0] == "wrong length: 1 values instead of 2"
    assert sims.x.shape == (5, 2)


def test_named_outputs_are_flattened_in_the_order_of_their_names(store):
    def simulator(theta, rng):
        return {"mean": theta.mean(), "both": theta, "matrix": np.ones((2, 2))}

    sims = simulate(simulator, Box(), 4, store=store)
    assert sims.x_names == (
        "mean",
        "both[0]",
        "both[1]",
        "matrix[0, 0]",
        "matrix[0, 1]",
        "matrix[1, 0]",
        "matrix[1, 1]",
    )
    np.testing.assert_allclose(sims.x[:, 0], sims.theta.mean(axis=1))
    assert Simulations.from_store(store).x_names == sims.x_names
    block = simulate(batched(lambda theta, rng: {"a": theta[:, 0], "b": theta}), Box(), 4)
    assert block.x_names == ("a", "b[0]", "b[1]")
    np.testing.assert_array_equal(block.x[:, 1:], block.theta)


# --- batched simulators


def test_a_batched_simulator_gets_chunks_seeded_by_their_first_row():
    sizes = []

    @batched
    def simulator(theta, rng):
        sizes.append(len(theta))
        return theta + rng.normal(size=theta.shape)

    sims = simulate(simulator, Box(), 600, seed=4)
    assert sizes == [256, 256, 88]
    for start in (0, 256, 512):
        theta = sims.theta[start : start + 256]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(4, spawn_key=(0, start))))
        noise = rng.normal(size=theta.shape)
        np.testing.assert_array_equal(sims.x[start : start + 256], theta + noise)


def test_a_batched_failure_costs_only_the_rows_that_fail():
    @batched
    def simulator(theta, rng):
        if (theta[:, 0] > 0.9).any():
            raise FloatingPointError("diverged")
        return theta.sum(axis=1, keepdims=True)

    sims = simulate(simulator, Box(), 300)
    np.testing.assert_array_equal(sims.valid, sims.theta[:, 0] <= 0.9)
    assert 0 < sims.valid.sum() < 300
    np.testing.assert_allclose(sims.valid_x[:, 0], sims.valid_theta.sum(axis=1))


def test_a_batched_nan_costs_one_row():
    @batched
    def simulator(theta, rng):
        return np.where(theta > 0.9, np.nan, theta)

    sims = simulate(simulator, Box(), 300)
    np.testing.assert_array_equal(sims.valid, (sims.theta <= 0.9).all(axis=1))


def test_a_batched_simulator_with_the_wrong_number_of_rows_is_stopped_with_advice():
    with pytest.raises(InputError, match="wrong shape: expected 1 rows"):
        simulate(batched(lambda theta, rng: theta.ravel()), Box(), 300)


# --- arguments


@pytest.mark.parametrize("n", [0, -1])
def test_a_wrong_number_is_refused(n):
    with pytest.raises(InputError, match="positive number of simulations"):
        simulate(noisy, Box(), n)


def test_wrong_parameters_and_seeds_are_refused():
    with pytest.raises(InputError, match=r"finite parameters of shape \(n, dim\)"):
        simulate_at(noisy, np.array([[np.nan, 1.0]]))
    with pytest.raises(InputError, match="zero or larger"):
        simulate(noisy, Box(), 3, seed=-1)


def test_workers_need_no_jax(tmp_path):
    """What a simulator's process imports is numpy and the simulator."""
    code = (
        "import sys, types, pathlib;"
        "package = types.ModuleType('unle'); package.__path__ = [sys.argv[1]]; sys.modules['unle'] = package;"
        "import unle.simulators;"
        "sys.exit('jax' in sys.modules)"
    )
    source = sys.modules["unle.simulators"].__path__[0] + "/.."
    assert subprocess.run([sys.executable, "-c", code, source], check=False).returncode == 0


# --- progress


def test_the_last_line_counts_all_invalid_simulations(monkeypatch, capsys):
    def fails_late(theta, rng):
        return theta if rng.bit_generator.seed_seq.spawn_key[-1] < 10 else theta + np.nan

    monkeypatch.setenv("UNLE_PROGRESS", "1")
    simulate(fails_late, Box(), 36)
    assert capsys.readouterr().err.splitlines()[-1].endswith(", 26 invalid")


# --- the record


def test_from_arrays_marks_rows_and_reads_vectors_as_columns():
    sims = Simulations.from_arrays(np.arange(3), [[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0]])
    assert sims.theta.shape == (3, 1)
    assert len(sims) == 3
    np.testing.assert_array_equal(sims.valid, [True, False, True])
    assert sims.summary() == "3 simulations: 2 valid, 1 invalid (1 not finite)."
    assert Simulations.from_arrays(np.zeros((2, 1)), [0.0, 1.0]).summary() == "2 simulations: 2 valid, 0 invalid."


@pytest.mark.parametrize(
    ("theta", "x", "complaint"),
    [
        (np.zeros((3, 2)), np.zeros((2, 2)), "got 2 and 3"),
        (np.zeros((3, 2, 1)), np.zeros((3, 2)), r"`theta` of shape \(n, d\); got \(3, 2, 1\)"),
        (np.array([[0.0], [np.nan]]), np.zeros(2), "in row 1"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "one row per simulation"),
        (np.zeros((1, 2)), [["a"]], "array of numbers"),
    ],
)
def test_from_arrays_refuses(theta, x, complaint):
    with pytest.raises(InputError, match=complaint):
        Simulations.from_arrays(theta, x)


def test_they_are_unpacked_as_parameters_and_data():
    simulations = Simulations.from_arrays(np.zeros((3, 2)), np.array([[1.0], [np.nan], [2.0]]))
    theta, x = simulations
    assert theta.shape == (3, 2)
    np.testing.assert_array_equal(x, simulations.x)


def test_rounds_are_joined():
    one, two = simulate(noisy, Box(), 4), simulate(noisy, Box(), 3, round=1)
    both = Simulations.joined([one, two])
    np.testing.assert_array_equal(both.x, np.concatenate([one.x, two.x]))
    with pytest.raises(InputError, match="equal dimensions"):
        Simulations.joined([one, Simulations.from_arrays(np.zeros((2, 3)), np.zeros((2, 2)))])
    with pytest.raises(InputError, match="equal dimensions"):
        Simulations.joined([])


def test_stored_runs_go_on_with_the_numbers_they_began_with():
    """Numbers of an earlier version: a resumed run must not mix two kinds of seeds."""
    sims = simulate_at(lambda theta, rng: rng.normal(size=2), np.zeros((3, 1)), seed=7, round=2)
    np.testing.assert_array_equal(
        sims.x,
        [
            [0.49007210333205337, -0.035643046965087195],
            [0.7277188570688675, -0.3700160729949427],
            [-0.09992043539487541, -0.8322043606145318],
        ],
    )
    rows = simulate_at(batched(lambda theta, rng: rng.normal(size=(len(theta), 1))), np.zeros((300, 1)), seed=7)
    np.testing.assert_array_equal(
        rows.x[[0, 1, 255, 256, 299], 0],
        [0.1489874334251287, -0.6382234586634595, -0.4072785174296101, -1.1353249850966252, 0.013591113281556646],
    )


def of_a_batch_alone(theta):
    return theta


@pytest.mark.parametrize("simulator", [of_a_batch_alone, unle.batched(of_a_batch_alone), lambda: 0.0])
@pytest.mark.parametrize("function", [unle.simulate, unle.dry_run])
def test_a_simulator_without_a_generator_is_told_what_it_should_take(simulator, function):
    """As simulators for other libraries are written: one sentence, in place of a hundred failures."""
    arguments = (100,) if function is unle.simulate else ()
    with pytest.raises(unle.InputError, match=r"theta and a random generator.*unle\.batched") as caught:
        function(simulator, unle.Prior.uniform(low=[0.0], high=[1.0]), *arguments)
    assert "Traceback" not in str(caught.value)


def test_simulators_with_more_than_they_need_are_taken():
    prior = unle.Prior.uniform(low=[0.0], high=[1.0])
    for simulator in (lambda theta, rng, scale=2.0: scale * theta, lambda *both: both[0], max):
        assert unle.simulators.check_simulator(simulator, prior) is None


def test_simulator_and_prior_the_other_way_round():
    with pytest.raises(unle.InputError, match="simulator before the prior"):
        unle.simulators.check_simulator(unle.Prior.uniform(low=[0.0], high=[1.0]), lambda theta, rng: theta)
