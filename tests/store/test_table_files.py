import numpy as np
import pytest

import unle
from unle.errors import InputError, StoreError
from unle.simulators import Simulations
from unle.store import SimulationStore, Table, read_table, write_table
from unle.store.model_files import save_module

THETA = np.array([[0.1, 2.0], [1 / 3, -1e-300], [5.0, 6.0]])
X = np.array([[1.0], [np.nan], [3.0]])
TABLE = Table(THETA, X, ("rate", "delay"), ("mean",), ("", 'ValueError: a, "b"', ""), np.array([0.5, 0.25, 0.0]))


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_everything_comes_back_to_the_bit(tmp_path, suffix):
    write_table(tmp_path / f"t{suffix}", TABLE)
    again = read_table(tmp_path / f"t{suffix}")
    np.testing.assert_array_equal(again.theta, THETA)
    np.testing.assert_array_equal(again.x, X)
    assert (again.theta_names, again.x_names, again.reasons) == (TABLE.theta_names, TABLE.x_names, TABLE.reasons)
    np.testing.assert_array_equal(again.seconds, TABLE.seconds)


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_simulations_travel_through_files(tmp_path, suffix):
    sims = Simulations(THETA, X, np.array([True, False, True]), TABLE.reasons, TABLE.seconds, x_names=("mean",))
    again = Simulations.load(sims.save(tmp_path / f"s{suffix}", theta_names=("rate", "delay")))
    np.testing.assert_array_equal(again.valid, sims.valid)
    assert again.reasons == sims.reasons
    assert again.x_names == ("mean",)


def test_two_plain_arrays_are_enough(tmp_path):
    np.savez(tmp_path / "two.npz", theta=THETA.astype(np.float32), x=np.arange(3))
    sims = Simulations.load(tmp_path / "two.npz")
    assert sims.theta.shape == (3, 2)
    assert sims.x.shape == (3, 1)
    assert sims.valid.all()


def test_columns_of_other_names_are_told_apart_by_the_parameters(tmp_path):
    (tmp_path / "t.csv").write_text("delay,rate,mean,sd\n1,2,3,4\n5,6,7,8\n")
    with pytest.raises(InputError, match="naming the columns"):
        read_table(tmp_path / "t.csv")
    table = read_table(tmp_path / "t.csv", parameters=["rate", "delay"])
    np.testing.assert_array_equal(table.theta, [[2, 1], [6, 5]])
    assert table.x_names == ("mean", "sd")
    with pytest.raises(InputError, match="expected columns speed"):
        read_table(tmp_path / "t.csv", parameters=["speed"])


def test_a_store_is_loaded_from_its_file_or_its_directory(tmp_path):
    with SimulationStore(tmp_path / "simulations.sqlite") as store:
        Simulations.from_arrays(THETA, X).append_to(store)
    for path in (tmp_path, tmp_path / "simulations.sqlite"):
        np.testing.assert_array_equal(Simulations.load(path).theta, THETA)


@pytest.mark.parametrize(
    ("name", "content", "error", "complaint"),
    [
        ("t.pt", b"", InputError, "pickled"),
        ("t.pkl", b"", InputError, "numpy.savez"),
        ("t.txt", b"", InputError, ".npz, .csv or .parquet"),
        ("t.npz", b"not a zip", StoreError, "could not be read"),
        ("t.csv", b"theta.a,x.b\n", InputError, "no rows"),
        ("t.csv", b"theta.a,x.b\n1\n", InputError, "2 cells"),
        ("t.csv", b"theta.a,x.b\n1,two\n", StoreError, "could not be read"),
        ("t.csv", b"\xff\xfe\x00", StoreError, "could not be read"),
        ("t.parquet", b"PAR1", StoreError, "could not be read"),
        ("missing.csv", None, StoreError, "could not be read"),
    ],
)
def test_a_wrong_file_gives_one_sentence(tmp_path, name, content, error, complaint):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=complaint):
        Simulations.load(tmp_path / name)


def test_arrays_of_objects_are_not_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    np.savez(tmp_path / "bomb.npz", theta=np.array([Bomb()], dtype=object), x=np.zeros((1, 1)))
    with pytest.raises(StoreError, match="could not be read"):
        Simulations.load(tmp_path / "bomb.npz")
    assert not (tmp_path / "exploded").exists()


def test_simulations_and_models_do_not_replace_each_other(tmp_path):
    prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
    simulations = Simulations.from_arrays([[0.0], [1.0]], [[2.0], [3.0]])
    save_module(tmp_path / "model", prior)
    with pytest.raises(StoreError, match=r"model.npz holds something else, perhaps a saved posterior"):
        simulations.save(tmp_path / "model.npz")
    simulations.save(tmp_path / "simulations.npz")
    with pytest.raises(StoreError, match=r"simulations.npz holds simulations; try another name"):
        save_module(tmp_path / "simulations", prior)
    simulations.save(tmp_path / "simulations.npz")  # a newer one may
    save_module(tmp_path / "model", prior)
