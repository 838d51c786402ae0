"""What keeps a run directory whole: seals, the lock, a full disk, readers beside a writer."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from unle.errors import StoreError
from unle.store import RunDirectory, SimulationStore


def fill(store, start=0, n=100):
    ids = np.arange(start, start + n)
    store.append(ids=ids, theta=np.ones((n, 2)), x=np.ones((n, 30)), reasons=[""] * n)


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", {"seed": 0})


# --- seals


def test_a_stage_is_finished_when_its_files_are_sealed(run):
    file = run.round(0) / "result"
    file.write_text("numbers")
    assert not run.finished("fit")
    run.seal("fit", [file])
    assert run.finished("fit")
    assert not run.finished("draws")
    file.write_text("other numbers")
    with pytest.raises(StoreError, match="result is damaged or was altered"):
        run.finished("fit")
    file.unlink()
    assert not run.finished("fit")  # to be done again


@pytest.mark.parametrize("name", ["run.json", "seals.json"])
def test_every_flipped_bit_of_the_small_files_is_noticed(run, name):
    run.draws.write_text("draws")
    run.seal("draws", [run.draws])
    content = (run.path / name).read_bytes()
    for position in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        (run.path / name).write_bytes(flipped)
        with pytest.raises(StoreError, match=f"{name}|check sum"):
            RunDirectory.open(run.path).finished("draws")


def test_metrics_cut_short_by_a_crash_do_not_spoil_the_next_ones(run):
    run.append_metrics(step=1)
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "lo')
    run.append_metrics(step=3)
    assert run.read_metrics() == [{"step": 1}, {"step": 3}]


# --- the lock

HOLDER = """
import sys, time
from unle.store import RunDirectory
with RunDirectory.open(sys.argv[1]).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes_cannot_work_in_one_directory_and_a_killed_one_does_not_block(run):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, run.path], stdout=subprocess.PIPE, env=environment)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(StoreError, match=rf"is in use by process {holder.pid}"), run.locked():
        pass
    assert run.settings == RunDirectory.open(run.path).settings  # reading is always allowed
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with run.locked():
        assert holder.returncode == -9  # the lock went with its holder


# --- the disk


def test_a_full_disk_gives_one_sentence_and_leaves_the_table_intact(tmp_path):
    with SimulationStore(tmp_path / "s.sqlite") as store:
        fill(store)
        pages = store._database.query("PRAGMA page_count")[0][0]
        store._database.query(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreError, match="the disk is full; free some space"):
            fill(store, start=100, n=1000)
        assert store.count() == 100
        store._database.query("PRAGMA max_page_count = 100000")
        fill(store, start=100, n=1000)
    with SimulationStore(tmp_path / "s.sqlite") as store:
        assert len(store.read().id) == 1100


LIMITED = """
import resource, sys
sys.path[:0] = {path!r}
import numpy as np
from unle.errors import StoreError
from unle.store import SimulationStore
with SimulationStore(sys.argv[1]) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # writing beyond it fails, as on a full disk
    try:
        for i in range(0, 10_000, 100):
            ids = np.arange(i, i + 100)
            store.append(ids=ids, theta=np.ones((100, 2)), x=np.ones((100, 30)), reasons=[""] * 100)
    except StoreError as error:
        print(error)
"""


def test_a_file_that_cannot_grow_gives_one_sentence_and_leaves_the_table_intact(tmp_path):
    code = LIMITED.format(path=sys.path)
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "s.sqlite"], capture_output=True, text=True, check=True
    )
    assert "could not be written" in result.stdout
    assert "is intact" in result.stdout
    with SimulationStore(tmp_path / "s.sqlite") as store:
        rows = store.read()
    assert len(rows.id) % 100 == 0
    assert 0 < len(rows.id) < 10_000


READ_ONLY = """
import os, sys
sys.path[:0] = {path!r}
import numpy as np
from unle.errors import StoreError
from unle.store import RunDirectory, SimulationStore
if os.getuid() == 0:  # who may write everywhere
    os.setgid(65534)
    os.setuid(65534)
folder = sys.argv[1]
try:
    with SimulationStore(folder + "/s.sqlite") as store:
        store.append(ids=[100], theta=np.ones((1, 2)), x=np.ones((1, 30)), reasons=[""])
except StoreError as error:
    print(error)
with SimulationStore(folder + "/s.sqlite", read_only=True) as store:
    print(len(store.read().id), "rows read")
try:
    RunDirectory.create(folder + "/run", {{"seed": 0}})
except StoreError as error:
    print(error)
"""


def test_a_read_only_directory_gives_one_sentence_and_can_be_read():
    with tempfile.TemporaryDirectory() as name:  # not pytest's, into which nobody else may look
        folder = Path(name)
        with SimulationStore(folder / "s.sqlite") as store:
            fill(store)
        (folder / "s.sqlite").chmod(0o444)
        folder.chmod(0o555)
        try:
            code = READ_ONLY.format(path=sys.path)
            result = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=True)
        finally:
            folder.chmod(0o755)
    refused, read, made = result.stdout.splitlines()
    assert "read-only" in refused
    assert read == "100 rows read"
    assert "run could not be made: Permission denied" in made


def test_a_missing_file_is_not_made_by_a_reader(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        SimulationStore(tmp_path / "s.sqlite", read_only=True)
    assert not list(tmp_path.iterdir())


# --- readers


def test_others_read_while_one_writes(tmp_path):
    path = tmp_path / "s.sqlite"
    with SimulationStore(path) as writer:
        fill(writer)
        with SimulationStore(path, read_only=True) as reader:
            assert reader.count() == 100
            fill(writer, start=100)
            assert len(reader.read().id) == 200
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:  # as the documentation says
            assert connection.execute("SELECT count(*) FROM simulations WHERE valid").fetchone() == (200,)


def test_a_row_that_arrives_while_others_are_read_is_no_damage(tmp_path, monkeypatch):
    """A row between those that are there, an invalid one, before each statement of the reader."""
    with SimulationStore(tmp_path / "s.sqlite") as writer, SimulationStore(tmp_path / "s.sqlite") as reader:
        writer.append(ids=[0, 9], theta=np.ones((2, 1)), x=np.ones((2, 1)), reasons=["", ""])
        late = iter([5, 3, 7, 2, 8, 4, 6])
        query = reader._database.query

        def query_late(*arguments):
            writer.append(ids=[next(late)], theta=np.ones((1, 1)), x=[None], reasons=["crashed"])
            return query(*arguments)

        monkeypatch.setattr(reader._database, "query", query_late)
        seen = reader.read(0).id.tolist()
        assert {0, 5, 9} <= set(seen)
        assert seen == sorted(seen)
        monkeypatch.undo()
        assert set(seen) <= set(reader.read().id.tolist())


def test_batches_hold_every_valid_row_once_and_are_mixed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["unle.store.reading"], "SPAN_ROWS", 50)
    with SimulationStore(tmp_path / "s.sqlite") as store:
        n = 1000
        theta = np.arange(n, dtype=float)[:, None]
        reasons = ["" if i % 10 else "bad" for i in range(n)]
        store.append(ids=range(n), theta=theta, x=2 * theta, reasons=reasons)
        store.append(ids=range(30), theta=n + theta[:30], x=theta[:30], reasons=[""] * 30, round=1)
        plain = list(store.batches(64))
        mixed = list(store.batches(64, shuffle=3))
        assert [len(t) for t, _ in plain] == [64] * 14 + [34]
        for batches in (plain, mixed):
            values = np.concatenate([t for t, _ in batches])[:, 0]
            assert len(values) == len(np.unique(values)) == 930
        np.testing.assert_array_equal(np.concatenate([t for t, _ in plain])[:, 0], np.unique(values))
        assert np.ptp(mixed[0][0]) > 300  # neighbours on the disk are not neighbours here
        again = list(store.batches(64, shuffle=3))
        assert all((a[0] == b[0]).all() for a, b in zip(mixed, again, strict=True))
        assert sum(len(t) for t, _ in store.batches(7, round=1)) == 30


def test_many_rows_are_written_fast(tmp_path):
    n = 20_000
    with SimulationStore(tmp_path / "s.sqlite") as store:
        start = time.process_time()
        for a in range(0, n, 1000):
            fill(store, start=a, n=1000)
        assert n / (time.process_time() - start) > 20_000
