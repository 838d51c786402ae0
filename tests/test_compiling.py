"""Programs are compiled next to other work, where that is wanted and worth while."""

import threading

import jax
import jax.numpy as jnp
import pytest

from unle.compiling import LARGE_BATCH_OPTIONS, SAMPLING_OPTIONS, large_program, meanwhile


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setenv("UNLE_AHEAD", "1")
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def test_it_happens_while_the_block_runs_and_is_done_when_it_ends(two_cores):
    begun, finish, done = threading.Event(), threading.Event(), []

    def compile_program():
        begun.set()
        finish.wait(10)
        done.append(threading.current_thread())

    with meanwhile(compile_program):
        assert begun.wait(10)
        assert not done
        finish.set()
    assert done
    assert done[0] is not threading.current_thread()


def test_a_program_that_does_not_compile_is_left_to_whoever_calls_it(two_cores):
    tried, trained = [], []

    def compile_program():
        tried.append(1)
        raise ValueError("no such shape")

    with meanwhile(compile_program):
        trained.append(1)
    assert tried
    assert trained


def test_what_goes_wrong_in_the_block_is_not_hidden(two_cores):
    with pytest.raises(KeyError), meanwhile(lambda: None):
        raise KeyError("training")


@pytest.mark.parametrize(("switch", "cores"), [("0", 8), ("1", 1)])
def test_nothing_happens_where_it_is_unwanted_or_would_only_delay(monkeypatch, switch, cores):
    monkeypatch.setenv("UNLE_AHEAD", switch)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    done = []
    with meanwhile(lambda: done.append("compiled")):
        done.append("trained")
    assert done == ["trained"]


def test_how_to_compile_is_asked_at_the_first_call_and_depends_on_the_machine(monkeypatch):
    asked, given = [], []

    def filter_jit(function, compiler_options):
        given.append(compiler_options)
        return function

    monkeypatch.setattr("jax.default_backend", lambda: asked.append(1) or "gpu")
    monkeypatch.setattr("equinox.filter_jit", filter_jit)
    program = large_program(lambda x: x + 1)
    assert not asked
    assert [program(1), program(2)] == [2, 3]
    large_program(lambda x: x, options=LARGE_BATCH_OPTIONS)(1)
    assert given == [SAMPLING_OPTIONS["gpu"], LARGE_BATCH_OPTIONS["gpu"]]
    assert all(options["xla_gpu_deterministic_ops"] for options in given)  # the same fit twice is the same
    assert SAMPLING_OPTIONS["gpu"] != SAMPLING_OPTIONS["cpu"]


def test_an_option_that_the_compiler_does_not_have_is_left_out(monkeypatch):
    given = []
    monkeypatch.setattr("equinox.filter_jit", lambda function, compiler_options: given.append(compiler_options))
    known = {"xla_backend_optimization_level": 1}
    large_program(abs, options={jax.default_backend(): {**known, "xla_which_nobody_has": True}}).jit(abs)
    assert given == [known]


def test_a_program_can_be_compiled_before_it_is_called():
    traced = []

    @large_program
    def program(x):
        traced.append(1)
        return 2 * x

    program.lower(jnp.ones(3)).compile()
    assert traced == [1]
    assert program(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert traced == [1]
    program(jnp.ones(4))
    assert traced == [1, 1]
