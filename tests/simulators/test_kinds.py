"""Simulators that are not plain functions: programs, JAX; and the dry run."""

import os
import sys
import time

import numpy as np
import pytest

from unle.errors import InputError, UnleWarning
from unle.simulators import batched, command, dry_run, jax_simulator, simulate, simulate_at
from unle.simulators.run_round import check_simulator
from unle.store import SimulationStore

THETA = np.array([[1.5, -2.0], [0.25, 1e-17], [3.0, 4.0]])


class Box:
    def sample(self, n, *, seed=0):
        return np.random.default_rng(seed).uniform(-1, 1, size=(n, 2))


def python(code, *arguments, **options):
    return command([sys.executable, "-S", "-c", code, *arguments], **options)


# --- programs


def test_a_program_finds_its_parameters_on_standard_input():
    code = "import json, sys; t = json.load(sys.stdin); print(json.dumps({'sum': sum(t['theta']), **t['parameters']}))"
    sims = simulate_at(python(code, names=["a", "b"]), THETA)
    assert sims.x_names == ("sum", "a", "b")
    np.testing.assert_array_equal(sims.x, np.column_stack([THETA.sum(axis=1), THETA]))


def test_a_program_finds_its_parameters_in_its_arguments_to_the_last_digit():
    code = "import sys; print(*sys.argv[1:4], sep=',')"
    sims = simulate_at(python(code, "{b}", "{theta[0]}", "{seed}", names=["a", "b"]), THETA, seed=5)
    np.testing.assert_array_equal(sims.x[:, :2], THETA[:, ::-1])
    assert len(np.unique(sims.x[:, 2])) == 3
    again = simulate_at(python(code, "{b}", "{theta[0]}", "{seed}", names=["a", "b"]), THETA, seed=5)
    np.testing.assert_array_equal(sims.x, again.x)


def test_a_program_reads_a_template_and_leaves_a_file(tmp_path):
    template = tmp_path / "template.cfg"
    template.write_text("{not_a_field} {a} {theta[1]}")
    code = "words = open('in.cfg').read().split(); assert words[0] == chr(123) + 'not_a_field}'; "
    code += "open('out.txt', 'w').write(' '.join(words[1:])); print('noise on standard output')"
    simulator = python(code, names=["a"], template=template, input_file="in.cfg", output_file="out.txt")
    np.testing.assert_array_equal(simulate_at(simulator, THETA).x, THETA)


def test_a_program_runs_in_an_empty_directory_that_vanishes():
    code = "import os; print(len(os.listdir('.'))); open('litter', 'w'); print(os.stat('.').st_ino)"
    sims = simulate_at(python(code), THETA)
    np.testing.assert_array_equal(sims.x[:, 0], 0)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; print('what a pity', file=sys.stderr); sys.exit(3)", "ended with status 3: what a pity"),
        ("import os; os.abort()", "ended with signal 6"),
        ("print('hello')", "expected numbers or JSON from the program; got 'hello'"),
        ("print()", "wrong shape"),
        ("print('[1, NaN]')", "not finite: 1 of 2"),
    ],
)
def test_a_program_that_fails_is_an_invalid_row(code, reason):
    sims = simulate_at(python(code), THETA[:1])
    assert reason in sims.reasons[0]


def test_a_missing_program_is_an_invalid_row():
    assert "could not be started" in simulate_at(command(["/nowhere/to/be/found"]), THETA[:1]).reasons[0]


def test_a_program_that_hangs_is_killed_with_its_descendants(tmp_path):
    mark = tmp_path / "mark"
    inner = f"import time; time.sleep(1.5); open({str(mark)!r}, 'w')"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    start = time.monotonic()
    sims = simulate_at(python(code, timeout=0.3), THETA[:1])
    assert time.monotonic() - start < 1.5
    assert sims.reasons[0] == "timed out: more than 0.3 s"
    time.sleep(1.5)
    assert not mark.exists()


def test_nothing_in_a_parameter_reaches_a_shell(tmp_path):
    code = "import sys; print(len(sys.argv))"
    sims = simulate_at(python(code, "$(touch x); {theta[0]} `id` | cat"), THETA[:1])
    np.testing.assert_array_equal(sims.x, [[2]])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [("program {a}", "a list"), ([], "a list"), (["program", "{b}"], "got {b}")],
)
def test_a_wrong_command_is_refused(arguments, complaint):
    with pytest.raises(InputError, match=complaint):
        command(arguments, names=["a"])


# --- JAX


def noise(key, theta):
    import jax.random as jr

    return theta + jr.normal(key, (2,))


@pytest.fixture(scope="module")
def on_device():
    return jax_simulator(noise, batch=16)


def test_a_jax_simulator_has_the_documented_keys(on_device):
    import jax.random as jr

    sims = simulate(on_device, Box(), 40, seed=7, round=2)
    for i in (0, 15, 16, 39):
        key = jr.fold_in(jr.fold_in(jr.key(7), 2), i)
        np.testing.assert_allclose(sims.x[i], noise(key, sims.theta[i]), rtol=1e-6)


def test_a_jax_simulator_does_not_depend_on_its_batch(on_device):
    other = simulate(jax_simulator(noise, batch=64), Box(), 40, seed=7)
    np.testing.assert_allclose(simulate(on_device, Box(), 40, seed=7).x, other.x, rtol=1e-6)


def test_a_jax_simulator_goes_on_where_it_stopped(on_device, tmp_path):
    whole = simulate(on_device, Box(), 40, seed=7)
    with SimulationStore(tmp_path / "s.sqlite") as store:
        simulate(on_device, Box(), 40, seed=7, store=store)
        store._database.change("DELETE FROM simulations WHERE id = ?", [(i,) for i in (3, 17, 18, 39)])
        again = simulate(on_device, Box(), 40, seed=7, store=store)
    np.testing.assert_array_equal(again.x, whole.x)


def test_a_jax_simulator_that_cannot_be_traced_says_why():
    with pytest.warns(UnleWarning, match="no simulation is valid"):
        sims = simulate(jax_simulator(lambda key, theta: theta if theta[0] > 0 else -theta, batch=8), Box(), 5)
    assert "TracerBoolConversionError" in sims.reasons[0]
    assert sims.first_traceback is not None


def test_workers_are_not_used_for_jax(on_device):
    with pytest.warns(UnleWarning, match="runs in this process"):
        simulate(on_device, Box(), 5, workers=2)


# --- the dry run


def test_a_dry_run_tells_what_to_expect():
    def simulator(theta, rng):
        time.sleep(0.002)
        if theta[0] > 0:
            raise ArithmeticError("stiff")
        return {"count": 3, "pair": theta}

    look = dry_run(simulator, Box(), budget=1000)
    assert (look.dim_theta, look.dim_x, look.names) == (2, 3, ("count", "pair[0]", "pair[1]"))
    assert look.dtype == "float64 and int64"
    assert 0 < look.valid < look.tried == 20
    assert "ArithmeticError" in look.reasons
    assert 0.0002 < look.seconds < 0.1
    assert look.total == pytest.approx(1000 * look.seconds)
    assert "estimate: " in str(look)
    assert "stiff" in look.first_traceback


def test_a_dry_run_of_a_slow_simulator_is_short(monkeypatch):
    monkeypatch.setattr(sys.modules["unle.simulators.dry_runs"], "MOST_SECONDS", 0.3)
    calls = []
    look = dry_run(lambda theta, rng: (calls.append(1), time.sleep(0.2), theta)[2], Box(), budget=10, workers=None)
    assert len(calls) == look.tried == 2
    assert look.seconds == pytest.approx(0.2, rel=0.5)


def test_a_dry_run_survives_a_crash(monkeypatch):
    monkeypatch.setattr(sys.modules["unle.simulators.dry_runs"], "MOST_SIMULATIONS", 3)
    look = dry_run(lambda theta, rng: os.abort(), Box(), workers=4, timeout=5.0)
    assert look.valid == 0
    assert "crashed" in look.reasons
    assert "nothing valid came back" in str(look)


def test_a_dry_run_of_other_kinds(on_device):
    assert dry_run(batched(lambda theta, rng: theta), Box()).dim_x == 2
    assert dry_run(on_device, Box()).dim_x == 2


def test_a_dry_run_notices_random_numbers_from_elsewhere():
    elsewhere = np.random.default_rng(0)
    assert "gave other data" in str(dry_run(lambda theta, rng: theta + elsewhere.normal(size=2), Box()))
    assert dry_run(lambda theta, rng: theta + rng.normal(size=2), Box()).repeatable


def test_a_dry_run_says_why_nothing_came_back():
    look = dry_run(lambda theta, rng: np.zeros((8, 3)), Box())
    assert (
        "the first invalid one: wrong shape: expected one data vector; got an array of shape (8, 3); try np.ravel(x)"
        in str(look)
    )
    assert "invalid one" not in str(dry_run(lambda theta, rng: theta, Box()))


# --- what simulators return, and how they are written


def test_a_series_and_a_table_of_pandas_keep_their_names():
    pandas = pytest.importorskip("pandas")
    series = simulate_at(lambda theta, rng: pandas.Series({"mean": theta[0], "sd": theta[1]}), THETA)
    assert series.x_names == ("mean", "sd")
    np.testing.assert_array_equal(series.x, THETA)
    unnamed = simulate_at(lambda theta, rng: pandas.Series(theta), THETA)
    assert unnamed.x_names == ()
    np.testing.assert_array_equal(unnamed.x, THETA)
    one_row = simulate_at(lambda theta, rng: pandas.DataFrame({"a": [theta[0]], "b": [theta[1]]}), THETA)
    assert one_row.x_names == ("a", "b")
    rows = simulate_at(lambda theta, rng: pandas.DataFrame({"a": theta, "b": theta}), THETA)
    assert rows.x_names == ("a[0]", "a[1]", "b[0]", "b[1]")
    many = simulate_at(batched(lambda theta, rng: pandas.DataFrame(theta, columns=["a", "b"])), THETA)
    assert many.x_names == ("a", "b")
    np.testing.assert_array_equal(many.x, THETA)


@pytest.mark.parametrize(
    ("simulator", "hint"),
    [
        (lambda rng, theta: theta[0] + rng.normal(size=3), "arguments of a simulator are theta and rng, in this order"),
        (lambda theta, rng: theta[:, :1] + rng.normal(size=(len(theta), 3)), "try @unle.batched above"),
        (lambda theta, rng: theta["a"] + rng.normal(size=3), "in the order of the prior's names: a, b = theta"),
        (lambda theta, rng: theta.a + rng.normal(size=3), "in the order of the prior's names: a, b = theta"),
    ],
)
def test_a_simulator_written_in_another_way_is_told_how(simulator, hint):
    with pytest.raises(InputError, match=hint):
        simulate(simulator, Box(), 200)
    with pytest.warns(UnleWarning, match=hint):
        simulate(simulator, Box(), 20)


def test_a_prior_that_is_none_is_refused():
    with pytest.raises(InputError, match=r"expected a Prior; got a list; try unle\.Prior"):
        check_simulator(lambda theta, rng: theta, [1.0, 2.0])
