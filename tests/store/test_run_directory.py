import json

import numpy as np
import pytest

from unle.errors import InputError, StoreError
from unle.store import RunDirectory, plain, write_atomically, write_json

SETTINGS = {"method": "aunle", "seed": 0, "prior": {"low": np.array([-1.0, -1.0])}, "layers": (50, 50)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "mine"


def test_the_layout_is_the_documented_one(path):
    run = RunDirectory.create(path, SETTINGS)
    with run.simulations() as store:
        store.append(ids=[0], theta=np.zeros((1, 2)), x=np.zeros((1, 2)), reasons=[""])
    assert run.likelihood(0) == path / "rounds" / "00" / "likelihood"
    assert run.round(3).is_dir()
    assert run.draws == path / "draws.nc"
    assert run.report == path / "report.html"
    run.append_metrics(step=1, loss=np.float32(0.5))
    run.append_metrics(step=2, loss=float("inf"))
    assert run.read_metrics() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": "inf"}]
    content = json.loads((path / "run.json").read_text())
    assert content["settings"]["prior"] == {"low": [-1.0, -1.0]}
    assert "python" in content["versions"]
    assert {file.name for file in path.iterdir()} == {
        "run.json",
        "rounds",
        "simulations.sqlite",
        "counts.json",
        "metrics.jsonl",
    }


def test_the_same_settings_take_the_run_up_again(path):
    RunDirectory.create(path, SETTINGS)
    before = (path / "run.json").read_bytes()
    again = RunDirectory.create(path, {**SETTINGS, "layers": [50, 50]})
    assert again.settings == RunDirectory.open(path).settings
    assert (path / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"prior": {"low": [-1.0, -2.0]}}, r"prior.low was \[-1.0, -1.0\] and is now \[-1.0, -2.0\]"),
        ({"budget": 10}, "budget was not set and is now 10"),
        ({"prior": {}}, r"prior.low was \[-1.0, -1.0\] and is now not set"),
    ],
)
def test_other_settings_are_refused_naming_the_difference(path, change, sentence):
    RunDirectory.create(path, SETTINGS)
    with pytest.raises(StoreError, match=sentence) as caught:
        RunDirectory.create(path, SETTINGS | change)
    assert "method" not in str(caught.value)
    RunDirectory.create(path, SETTINGS)


def test_a_directory_without_a_run_is_refused_for_opening(tmp_path):
    with pytest.raises(StoreError, match=r"no run\.json"):
        RunDirectory.open(tmp_path)


def test_simulations_without_settings_are_refused(path):
    with RunDirectory.create(path, SETTINGS).simulations():
        (path / "run.json").unlink()
    with pytest.raises(StoreError, match=r"no run\.json that says what they are"):
        RunDirectory.create(path, SETTINGS)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 99, "settings": {}}'])
def test_a_damaged_run_file_is_refused(path, content):
    RunDirectory.create(path, SETTINGS)
    (path / "run.json").write_text(content)
    with pytest.raises(StoreError, match=r"run\.json"):
        RunDirectory.create(path, SETTINGS)


def test_a_metrics_line_cut_short_is_left_out_and_a_damaged_one_is_reported(path):
    run = RunDirectory.create(path, SETTINGS)
    assert run.read_metrics() == []
    run.append_metrics(step=1)
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": ')
    assert run.read_metrics() == [{"step": 1}]
    (path / "metrics.jsonl").write_text('{"step"\n{"step": 2}\n')
    with pytest.raises(StoreError, match="damaged"):
        run.read_metrics()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    write_json(file, {"a": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StoreError, match="No space left"):
        write_atomically(file, b"half")
    assert json.loads(file.read_text()) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_settings_that_json_cannot_hold_are_refused():
    with pytest.raises(InputError, match="got a function"):
        plain({"f": test_settings_that_json_cannot_hold_are_refused})
