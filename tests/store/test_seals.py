"""A bit that flips in a finished run is found, wherever it is; and what still grows may grow."""

import random

import numpy as np
import pytest

from unle.errors import StoreError
from unle.simulators import Simulations
from unle.store import RunDirectory, SimulationStore


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"method": "simulate", "rate": 1e-05})
    with run.simulating() as store:
        append(store, 0)
    return run


def append(store, first, n=50):
    ids = np.arange(first, first + n)
    store.append(ids=ids, theta=np.ones((n, 2)) * ids[:, None], x=np.ones((n, 3)), reasons=[""] * n)


def flip(file, rng):
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def table(run):
    return run.path / "simulations.sqlite"


def test_every_flipped_bit_of_a_finished_table_is_found(run):
    whole, rng = table(run).read_bytes(), random.Random(0)
    for _ in range(50):
        flip(table(run), rng)
        with pytest.raises(StoreError, match="simulations.sqlite is damaged or was altered"):
            run.simulations(read_only=True)
        with pytest.raises(StoreError, match="simulations.sqlite is damaged or was altered"):
            run.verify()
        with pytest.raises(StoreError, match="simulations.sqlite is damaged or was altered"):
            Simulations.load(run.path)
        table(run).write_bytes(whole)
    with run.simulations(read_only=True) as store:
        assert store.count() == 50
    # Companion: opened without its run, the same table has bytes that nobody would miss.
    harmless = 0
    for _ in range(50):
        flip(table(run), rng)
        try:
            with SimulationStore(table(run), read_only=True) as store:
                harmless += len(store.read().id) == 50
        except StoreError:
            pass
        table(run).write_bytes(whole)
    assert harmless > 0


@pytest.mark.parametrize("name", ["run.json", "seals.json"])
def test_every_flipped_bit_of_a_small_file_is_found(run, name):
    whole, rng = (run.path / name).read_bytes(), random.Random(0)
    for _ in range(200):
        flip(run.path / name, rng)
        with pytest.raises(StoreError, match=name.replace(".", "[.]")):
            RunDirectory.open(run.path).verify()
        (run.path / name).write_bytes(whole)
    assert b"1e-05" in (run.path / "run.json").read_bytes()
    (run.path / "run.json").write_bytes((run.path / "run.json").read_bytes().replace(b"1e-05", b"1E-05"))
    with pytest.raises(StoreError, match="run.json is damaged"):  # the same number, in other letters
        RunDirectory.open(run.path)


def test_a_table_may_grow_and_is_sealed_again(run):
    with run.simulating() as store:
        append(store, 50)
        assert not run.finished("simulations")
    assert run.finished("simulations")
    with pytest.raises(ZeroDivisionError), run.simulating() as store:  # noqa: PT012
        append(store, 100)
        1 / 0  # noqa: B018
    assert not run.finished("simulations")
    with run.simulations(read_only=True) as store:
        assert store.count() == 150


def test_a_table_that_somebody_is_reading_is_not_sealed(run):
    with run.simulating() as store:
        append(store, 50)
        reader = SimulationStore(table(run), read_only=True)
    assert not run.finished("simulations")
    reader.close()
    with run.simulating():
        pass
    assert run.finished("simulations")


def test_finished_metrics(run):
    run.append_metrics(stage="training", gain=1.0)
    with run.making("metrics", [run.path / "metrics.jsonl"]):
        run.append_metrics(stage="seconds", fit=2.0)
    assert len(run.read_metrics()) == 2
    whole = (run.path / "metrics.jsonl").read_bytes()
    (run.path / "metrics.jsonl").write_bytes(whole.replace(b"1.0", b"9.0"))
    with pytest.raises(StoreError, match="metrics.jsonl is damaged or was altered"):
        run.read_metrics()
    (run.path / "metrics.jsonl").write_bytes(whole)
    run.append_metrics(stage="seconds", fit=3.0)
    assert len(run.read_metrics()) == 3
