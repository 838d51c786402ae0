"""A sequential run compiles its training once or twice, however many rounds it has.

Each new signature of a jitted function is traced and compiled, so traces are counted.  Bases are of one of two kinds
in each round, a polynomial or a network: a training that is given both compiles twice.  `test_sunle.py` has a quick
version on a run that it makes anyway.
"""

import equinox as eqx
import pytest

from unle.methods import SUNLE, Divi, Tilted
from unle.posterior import TemperedSmc
from unle.samplers import Sweep
from unle.simulators import batched
from unle.space import Prior
from unle.train import (
    DataParticles,
    EnergyTraining,
    GaussianTraining,
    LogNormaliserTraining,
    PairedChains,
    Rows,
    energy_fit,
    gaussian_training,
)

PRIOR = Prior.normal([0.0], [1.0], names=["a"])


@batched
def two_peaks(theta, rng):
    return theta + rng.choice([-2.0, 2.0], theta.shape) + 0.3 * rng.normal(size=theta.shape)


QUICK = {"width": 8, "depth": 1, "iterations": 20, "chunk": 20}
PAIRED = EnergyTraining(PairedChains(moves=1, importance=16), **QUICK)
TILTED = EnergyTraining(DataParticles(n=64), **QUICK)
DIVI = Divi(LogNormaliserTraining(particles=16, temperatures=1, width=4, depth=1, iterations=20, chunk=20))


def method(training=PAIRED, normaliser=DIVI, **parts):
    return SUNLE(
        PRIOR,
        two_peaks,
        base=GaussianTraining(width=4, depth=1, iterations=20, batch=32, chunk=20),
        training=training,
        normaliser=normaliser,
        members=1,
        sampler=TemperedSmc(islands=1, particles=100, sweep=Sweep(walks=2, langevin=0), settle=1),
        **parts,
    )


@pytest.fixture
def traces(monkeypatch):
    """Count how often the training steps of bases and energies are traced."""
    counted = {}
    for module in (gaussian_training, energy_fit):
        plain = module._chunk.__wrapped__
        counted[module] = eqx.debug.assert_max_traces(plain, max_traces=1000)
        monkeypatch.setattr(module, "_chunk", eqx.filter_jit(counted[module]))
    return lambda module: eqx.debug.get_num_traces(counted[module])


@pytest.mark.slow
def test_ten_rounds_compile_their_training_once(traces):
    method(proposals="bases").run([0.0], budget=400, rounds=10, seed=1)
    assert traces(gaussian_training) == 1
    assert traces(energy_fit) == 1  # after the last round; for the energies that see theta and those that do not


@pytest.mark.slow
def test_energies_that_only_propose_are_compiled_once_more_if_they_are_of_another_kind(traces):
    method().run([0.0], budget=400, rounds=10, seed=1)
    assert traces(gaussian_training) == 1
    # Tilted ones propose, over one or two kinds of bases; conditional ones come after.
    assert 2 <= traces(energy_fit) <= 3


@pytest.mark.slow
def test_tilted_energies_that_propose_and_that_make_the_posterior_share_a_program(traces):
    method(TILTED, Tilted()).run([0.0], budget=400, rounds=10, seed=1)
    assert 1 <= traces(energy_fit) <= 2  # two for two kinds of bases


@pytest.mark.slow
def test_energies_in_every_one_of_ten_rounds_compile_at_most_twice(traces):
    method(proposals="energies").run([0.0], budget=400, rounds=10, seed=1)
    assert traces(gaussian_training) == 1
    assert 1 <= traces(energy_fit) <= 2


@pytest.mark.slow
def test_data_that_are_not_padded_compile_in_every_round(traces, monkeypatch):
    monkeypatch.setattr(Rows, "padded", lambda rows, capacity: rows)
    method(proposals="energies").run([0.0], budget=400, rounds=4, seed=1)
    assert traces(energy_fit) == 4
