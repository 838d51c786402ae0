"""Wherever simulations run, they are the same; whatever they do, the run goes on."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import cloudpickle
import numpy as np
import pytest

from unle.errors import InputError, SimulationError
from unle.simulators import batched, simulate
from unle.simulators.dispatch import LARGEST_PIECE, Plan
from unle.store import SimulationStore

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers cannot import a test


class Box:
    def sample(self, n, *, seed=0):
        return np.random.default_rng(seed).uniform(-1, 1, size=(n, 2))


def noisy(theta, rng):
    return theta + rng.normal(size=2)


@batched
def noisy_rows(theta, rng):
    return theta + rng.normal(size=theta.shape)


def share(theta):
    """Return a number between 0 and 1 that decides a simulation's fate."""
    return (theta[0] + 1) / 2


def mischievous(theta, rng):
    u = share(theta)
    if u < 0.10:
        raise ValueError("a tenth raises")
    if u < 0.12:
        time.sleep(1000)
    if u < 0.22:
        return [np.nan, 0.0]
    if u < 0.24:
        os.abort()
    return noisy(theta, rng)


def fates(theta):
    u = share(theta.T)
    limits = [(0.10, "ValueError"), (0.12, "timed out"), (0.22, "not finite"), (0.24, "crashed")]
    return [next((word for limit, word in limits if value < limit), "") for value in u]


@pytest.fixture(scope="module")
def serial():
    return simulate(noisy, Box(), 300, seed=3)


def test_processes_and_threads_simulate_the_same_bits(serial):
    np.testing.assert_array_equal(simulate(noisy, Box(), 300, seed=3, workers=2).x, serial.x)
    with ThreadPoolExecutor(3) as executor:
        for isolate in (False, True):
            again = simulate(noisy, Box(), 300, seed=3, executor=executor, isolate=isolate)
            np.testing.assert_array_equal(again.x, serial.x)


def test_batched_simulators_keep_their_blocks_on_workers():
    here = simulate(noisy_rows, Box(), 600, seed=3)
    there = simulate(noisy_rows, Box(), 600, seed=3, workers=2)
    np.testing.assert_array_equal(here.x, there.x)


def test_a_mischievous_simulator_costs_its_own_rows_and_nothing_else(serial):
    sims = simulate(mischievous, Box(), 300, seed=3, workers=2, timeout=0.3)
    assert [reason.partition(":")[0] for reason in sims.reasons] == fates(sims.theta)
    assert {"ValueError", "timed out", "not finite", "crashed", ""} == set(fates(sims.theta))
    np.testing.assert_array_equal(sims.valid_x, serial.x[sims.valid])
    crashed = next(reason for reason in sims.reasons if reason.startswith("crashed"))
    assert crashed == "crashed: killed by SIGABRT"
    assert "a tenth raises" in sims.first_traceback


def test_a_block_that_crashes_costs_the_rows_that_crash():
    @batched
    def simulator(theta, rng):
        if (theta[:, 0] > 0.97).any():
            os.kill(os.getpid(), signal.SIGSEGV)
        return theta + rng.normal(size=theta.shape)

    sims = simulate(simulator, Box(), 260, workers=1)
    np.testing.assert_array_equal(sims.valid, sims.theta[:, 0] <= 0.97)
    assert 0 < (~sims.valid).sum() < 20


def test_a_worker_killed_from_outside_is_replaced_and_its_simulation_done_again(tmp_path):
    def simulator(theta, rng):
        mark = tmp_path / "killed"
        if theta[0] > 0 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)  # as the system does when memory runs out
        return noisy(theta, rng)

    sims = simulate(simulator, Box(), 20, workers=1)
    assert (tmp_path / "killed").exists()
    np.testing.assert_array_equal(sims.x, simulate(noisy, Box(), 20).x)


class Unreliable(Executor):
    """Loses a fifth of the work, as a cluster whose nodes vanish."""

    def __init__(self):
        self.submitted, self.rng = 0, np.random.default_rng(0)

    def submit(self, function, /, *args, **kwargs):
        self.submitted += 1
        future = Future()
        if self.rng.uniform() < 0.2:
            future.set_exception(ConnectionError("the node has gone"))
        else:
            future.set_result(function(*args, **kwargs))
        return future


def test_work_that_an_executor_loses_is_done_again():
    executor = Unreliable()
    sims = simulate(noisy, Box(), 50, executor=executor, isolate=False)
    assert executor.submitted > 3
    np.testing.assert_array_equal(sims.x, simulate(noisy, Box(), 50).x)


def test_an_executor_that_does_nothing_but_fail_is_given_up():
    class Hopeless(Executor):
        def submit(self, function, /, *args, **kwargs):
            future = Future()
            future.set_exception(ConnectionError("nobody there"))
            return future

    with pytest.raises(SimulationError, match="ConnectionError: nobody there"):
        simulate(noisy, Box(), 50, executor=Hopeless(), isolate=False)


def test_a_broken_executor_says_that_what_was_simulated_is_kept(tmp_path):
    class Breaks(Unreliable):
        def submit(self, function, /, *args, **kwargs):
            if self.submitted >= 10:
                raise BrokenExecutor("the pool is broken")
            self.submitted += 1
            future = Future()
            future.set_result(function(*args, **kwargs))
            return future

    with SimulationStore(tmp_path / "s.sqlite") as store:
        with pytest.raises(SimulationError, match="What was simulated is kept"):
            simulate(noisy, Box(), 5000, executor=Breaks(), isolate=False, store=store)
        assert store.count() > 5


def test_everything_failing_stops_the_run_on_workers_too():
    with pytest.raises(InputError, match=r"none among the first \d+ .*ZeroDivisionError"):
        simulate(lambda theta, rng: 1 / 0, Box(), 100_000, workers=2)


def test_a_simulator_that_cannot_travel_is_refused_in_one_sentence():
    lock = threading.Lock()
    with pytest.raises(InputError, match="can be sent to other processes.*lock"):
        simulate(lambda theta, rng: [lock.locked()], Box(), 5, workers=1)


def test_a_simulator_that_cannot_be_loaded_is_refused_in_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def simulator(theta, rng):\n    return theta\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    simulator = only_here.simulator
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    with pytest.raises(InputError, match="loaded by another process; got ModuleNotFoundError"):
        simulate(simulator, Box(), 5, workers=1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"workers": 0}, "positive whole number"),
        ({"workers": 1, "executor": ThreadPoolExecutor(1)}, "got both"),
        ({"timeout": 0.0}, "larger than zero"),
        ({"timeout": 1.0, "isolate": False, "executor": ThreadPoolExecutor(1)}, "isolate=True"),
    ],
)
def test_wrong_arguments_are_refused(arguments, complaint):
    with pytest.raises(InputError, match=complaint):
        simulate(noisy, Box(), 5, **arguments)


def test_workers_never_import_jax():
    sims = simulate(lambda theta, rng: ["jax" in sys.modules], Box(), 2, workers=1)
    np.testing.assert_array_equal(sims.x, 0)


def test_a_task_built_in_travels_without_jax():
    """In fresh interpreters: here the functions are wrapped by the type checker, which does not travel."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pack = (
        "import sys, unle; from unle.simulators.workers import serialise; "
        "sys.stdout.buffer.write(serialise(unle.task('two_moons').simulator))"
    )
    blob = subprocess.run([sys.executable, "-c", pack], capture_output=True, check=True, env=environment).stdout
    unpack = (
        "import sys, cloudpickle, numpy as np; simulator = cloudpickle.loads(sys.stdin.buffer.read()); "
        "simulator(np.zeros(2), np.random.default_rng(0)); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", unpack], input=blob, check=False, env=environment).returncode == 0


SCRIPT = """
import sys, time, pathlib, numpy as np
import unle
from unle.store import SimulationStore

class Box:
    def sample(self, n, *, seed=0):
        return np.random.default_rng(seed).uniform(size=(n, 2))

def simulator(theta, rng):
    with open(sys.argv[2], "a") as file:
        file.write("x")
    time.sleep(0.01)
    return theta

with SimulationStore(sys.argv[1]) as store:
    unle.simulate(simulator, Box(), 1000, store=store, workers=2)
"""


def test_workers_die_with_a_driver_that_is_killed(tmp_path):
    calls = tmp_path / "calls"
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, tmp_path / "script.py", tmp_path / "s.sqlite", calls]
    driver = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while (not calls.exists() or calls.stat().st_size < 50) and time.monotonic() < deadline:
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    time.sleep(0.5)
    size = calls.stat().st_size
    assert 50 <= size < 1000
    time.sleep(0.5)
    assert calls.stat().st_size == size  # nobody goes on


# --- the plan


def test_pieces_of_work_grow_to_about_a_second_and_shrink_towards_the_end():
    plan = Plan(np.arange(100_000), None)
    sizes = []
    while len(plan):
        ids, _ = plan.take(4)
        plan.learn(len(ids), 0.001 * len(ids))
        sizes.append(len(ids))
    assert sizes[:3] == [1, 8, 64]
    assert max(sizes) == 1000
    assert sizes[-1] == 1
    assert sum(sizes) == 100_000


def test_pieces_of_trivial_work_are_bounded():
    plan = Plan(np.arange(10**6), None)
    for _ in range(10):
        ids, _ = plan.take(4)
        plan.learn(len(ids), 0.0)
    assert len(plan.take(4)[0]) == LARGEST_PIECE


def test_lost_work_is_split_into_single_simulations():
    plan = Plan(np.arange(10), None)
    plan.learn(1, 0.001)
    ids, tries = plan.take(1)
    plan.retry(ids, tries)
    again = [plan.take(1) for _ in ids]
    assert [(piece.tolist(), tries) for piece, tries in again] == [([i], 1) for i in ids]
