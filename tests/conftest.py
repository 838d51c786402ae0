"""Fixtures for the whole suite: quiet, seeded, on the CPU, and strict where strictness costs nothing."""

import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # tolerances are for the CPU; set the variable to try others
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("UNLE_AHEAD", "0")  # two cores are busy with tests; most fits are never drawn from
os.environ.setdefault("UNLE_CACHE", "0")  # every run of the tests compiles by itself
os.environ["UNLE_STATE"] = tempfile.mkdtemp(prefix="unle-state-")  # not the one of whoever runs the tests
# Tests compile many programs and run them briefly: two thirds of their time would be the compiler's.  (Without any
# optimisation what runs takes longer than is won.  A flag that a later XLA does not know stops it, and is named.)
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false")

import jax
import jax.random as jr
import pytest


def pytest_configure(config):
    # Not in pyproject.toml: read there, it would import the package before the type checks are in place.
    config.addinivalue_line("filterwarnings", "error::unle.errors.UnleWarning")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """No progress lines in test output; a test of the bars sets the variable itself."""
    monkeypatch.setenv("UNLE_PROGRESS", "0")


@pytest.fixture
def key():
    """One typed key from a fixed seed: split it, never use it twice."""
    return jr.key(20230706)


@pytest.fixture
def strict_keys():
    """Fail on a PRNG key that is used twice. For our own code: third-party samplers trip over it."""
    with jax.debug_key_reuse(True):
        yield


@pytest.fixture
def strict_ranks():
    """Fail on an implicit broadcast between arrays of different rank."""
    with jax.numpy_rank_promotion("raise"):
        yield
