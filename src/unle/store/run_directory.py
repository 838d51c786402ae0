"""The directory of a run: everything that one inference leaves behind, in one place.

    runs/mine/
      run.json                  method, settings, seed, versions
      simulations.sqlite        every simulation, see `unle.store.simulation_store`
      counts.json               how many there are, for `unle watch` on another machine
      rounds/00/likelihood.json, likelihood.npz    the fitted model of each round, see `unle.store.model_files`
      draws.nc                  posterior draws at the observation
      metrics.jsonl             one JSON object per line, appended as the run goes on
      seals.json                check sums of the finished files; a stage is finished when its files are sealed
      lock                      held while a process works here
      report.html, x_o.json     the page, and the observation for the command on it

A directory belongs to one set of settings. Opening it with others is refused, and the message names the difference:
simulations of two priors mixed in one table are a mistake that no later check would find.

`top_up` lets a run go on with other settings: the simulations stay, and what was fitted, drawn and checked with the
smaller budget is moved to `earlier/BUDGET`.  The directory then looks like that of an interrupted run, and a crash at
any point leaves one that can be topped up again or resumed.

Example:
    >>> import tempfile
    >>> from unle.store import RunDirectory
    >>> path = tempfile.mkdtemp() + "/mine"
    >>> run = RunDirectory.create(path, {"method": "aunle", "budget": 1000})
    >>> RunDirectory.create(path, {"method": "aunle", "budget": 2000})
    Traceback (most recent call last):
    ...
    unle.errors.StoreError: ...budget was 1000 and is now 2000...
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from unle.errors import StoreError
from unle.store.safe_files import (
    locked,
    plain,
    read_sealed,
    sha256_of,
    this_process,
    versions,
    write_atomically,
    write_sealed,
)
from unle.store.simulation_store import SimulationStore

FORMAT = 1
SIMULATIONS, METRICS = "simulations", "metrics"  # stages whose files are opened here
_ABSENT = object()
EARLIER = "earlier"  # folder for results with other settings, see `top_up`
STAGES = ("fit", "draws", "checks", METRICS)  # that are not finished any more then
RESULTS = ("draws*.nc", "checks*.json", "checks*.npz", "report.html", "rounds/*/likelihood.*")


class RunDirectory:
    """The files of one run. Make one with `RunDirectory.create` or `RunDirectory.open`.

    Attributes:
        path: the directory.
        settings: what the run was asked to do, as stored in `run.json`.
    """

    def __init__(self, path: Path, settings: dict[str, Any]):
        self.path = path
        self.settings = settings

    @classmethod
    def create(cls, path: str | Path, settings: Mapping[str, Any]) -> "RunDirectory":
        """Start a run in a directory, or go on with the run of the same settings that is there.

        The settings are everything that decides the result (method, seed, budget, prior, ...), made of numbers,
        strings, lists and dictionaries.  A directory of other settings is a `StoreError`.
        """
        path = Path(path)
        wanted = plain(settings)
        if (path / "run.json").exists():
            run = cls.open(path)
            differences = list(_differences(run.settings, wanted))
            if differences:
                raise StoreError(
                    f"{path} holds a run with other settings: {'; '.join(differences)}. "
                    "Use the same settings or another directory."
                )
            return run
        if (path / "simulations.sqlite").exists():
            raise StoreError(
                f"{path} holds simulations but no run.json that says what they are; use another directory."
            )
        try:
            (path / "rounds").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path} could not be made: {error.strerror or error}.") from error
        write_sealed(
            path / "run.json",
            {
                "format": FORMAT,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "settings": wanted,
                "versions": versions(),
            },
        )
        return cls(path, wanted)

    @classmethod
    def open(cls, path: str | Path) -> "RunDirectory":
        """Open the run in a directory."""
        path = Path(path)
        if not (path / "run.json").exists():
            raise StoreError(f"{path} holds no run: it has no run.json (that of a new run appears after some seconds).")
        content = read_sealed(path / "run.json")
        if content.get("format") != FORMAT:
            raise StoreError(f"{path / 'run.json'} has format {content.get('format')}; this version reads {FORMAT}.")
        if not isinstance(content.get("settings"), dict):
            raise StoreError(f"{path / 'run.json'} is damaged: it has no settings.")
        return cls(path, content["settings"])

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from working here while the block lasts; reading is always allowed."""
        return locked(self.lock, str(self.path))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Lock the directory, and note it in the metrics if the block ends by an error or by Ctrl-C."""
        with self.locked():
            try:
                yield
            except BaseException as error:
                why = "Ctrl-C" if isinstance(error, KeyboardInterrupt) else _first_sentence(error)
                with suppress(StoreError):  # the disk may be what is wrong
                    self.append_metrics(stage="stopped", why=why, who=this_process())
                raise

    def simulations(self, *, read_only: bool = False) -> SimulationStore:
        """Open the table of simulations, of which every bit is checked if it is finished; close it when done."""
        self.finished(SIMULATIONS)
        if not read_only:
            self.unseal(SIMULATIONS)
        counts = None if read_only else self.counts
        return SimulationStore(self.path / "simulations.sqlite", read_only=read_only, counts=counts)

    @contextmanager
    def simulating(self) -> Iterator[SimulationStore]:
        """Open the table of simulations for writing while the block lasts, and seal it if that ends well."""
        with self.simulations() as store:
            yield store
        file = self.path / "simulations.sqlite"
        log = file.with_name(file.name + "-wal")
        if not log.exists() or not log.stat().st_size:  # beside a reader a part of the table is still in the log
            self.seal(SIMULATIONS, [file])

    @contextmanager
    def making(self, stage: str, files: Sequence[Path]) -> Iterator[None]:
        """Make the files of a stage again while the block lasts, and seal them if that ends well."""
        self.unseal(stage)
        yield
        self.seal(stage, files)

    def unseal(self, stage: str) -> None:
        """Declare a stage unfinished: its files may change."""
        seals = self._seals()
        if seals.pop(stage, None) is not None:
            write_sealed(self.path / "seals.json", seals)

    def verify(self) -> None:
        """Compare all files of finished stages with their check sums; one that was altered is a `StoreError`."""
        for stage in self._seals():
            self.finished(stage)

    def seal(self, stage: str, files: Iterable[Path]) -> None:
        """Declare a stage finished: store the check sums of the files it made."""
        sums = {str(file.relative_to(self.path)): sha256_of(file) for file in files}
        write_sealed(self.path / "seals.json", {**self._seals(), stage: sums})

    def finished(self, stage: str) -> bool:
        """Return whether a stage was sealed and its files are there, unaltered."""
        sums = self._seals().get(stage)
        if not sums or not all((self.path / name).is_file() for name in sums):
            return False
        for name, digest in sums.items():
            if sha256_of(self.path / name) != digest:
                raise StoreError(f"{self.path / name} is damaged or was altered: its check sum does not fit.")
        return True

    def _seals(self) -> dict[str, dict[str, str]]:
        file = self.path / "seals.json"
        return read_sealed(file) if file.exists() else {}

    def round(self, number: int) -> Path:
        """Return the directory of a round, made if need be."""
        directory = self.path / "rounds" / f"{number:02d}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def likelihood(self, number: int) -> Path:
        """Return where the model of a round is stored, without suffix: what `save_module` takes."""
        return self.round(number) / "likelihood"

    @property
    def lock(self) -> Path:
        """The lock file; it names the process that works here, or did last."""
        return self.path / "lock"

    @property
    def counts(self) -> Path:
        """Where the counts of the simulations are; see `unle.store.simulation_store`."""
        return self.path / "counts.json"

    @property
    def draws(self) -> Path:
        """Where the posterior draws are."""
        return self.path / "draws.nc"

    @property
    def report(self) -> Path:
        """Where the report is."""
        return self.path / "report.html"

    def append_metrics(self, **metrics: Any) -> None:
        """Add one line to `metrics.jsonl`; a last line that a crash cut short is dropped."""
        self.unseal(METRICS)
        line = (json.dumps(plain(metrics)) + "\n").encode()
        try:
            with open(self.path / "metrics.jsonl", "ab+") as file:
                _drop_unfinished_line(file)
                file.write(line)
        except OSError as error:
            raise StoreError(f"{self.path / 'metrics.jsonl'} could not be written: {error}.") from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of `metrics.jsonl`; a last line cut short by a crash is left out."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        self.finished(METRICS)
        try:
            lines = file.read_text(encoding="utf-8").split("\n")[:-1]  # the last is empty, or cut short
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise StoreError(f"{file} is damaged: a line is not valid JSON ({error}).") from error


def _drop_unfinished_line(file: BinaryIO) -> None:
    """Cut off an incomplete last line, which a run leaves that is killed while it writes."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(end - 1, 0))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _differences(was: Any, now: Any, name: str = ""):
    """Yield "name was ... and is now ..." for every leaf in which two settings differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in [*was, *(key for key in now if key not in was)]:
            yield from _differences(was.get(key, _ABSENT), now.get(key, _ABSENT), f"{name}.{key}" if name else key)
    elif was is _ABSENT:
        yield f"{name} was not set and is now {_short(now)}"
    elif now is _ABSENT:
        yield f"{name} was {_short(was)} and is now not set"
    elif was != now:
        yield f"{name} was {_short(was)} and is now {_short(now)}"


def _first_sentence(error: BaseException) -> str:
    text = " ".join(str(error).split("\n\n")[0].split())
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__)[:300]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def top_up(
    run: RunDirectory, settings: Mapping[str, Any], *, keep: Callable[[Mapping[str, Any]], bool]
) -> RunDirectory:
    """Give a run new settings, under which its simulations stay valid, and put its results aside.

    Nobody else may work in the directory; `keep` says whether a record of the metrics still counts.
    """
    with run.locked():
        aside = run.path / EARLIER / str(run.settings["budget"])
        records = run.read_metrics()
        for stage in STAGES:
            run.unseal(stage)
        metrics, old = run.path / "metrics.jsonl", aside / "metrics.jsonl"
        if metrics.exists() and not old.exists():
            _make(aside)
            shutil.copyfile(metrics, old)
        for pattern in RESULTS:
            for file in sorted(run.path.glob(pattern)):
                target = aside / file.relative_to(run.path)
                _make(target.parent)
                file.replace(target)
        if metrics.exists():
            lines = [json.dumps(record) + "\n" for record in records if keep(record)]
            write_atomically(metrics, "".join(lines).encode())
        content = read_sealed(run.path / "run.json")
        write_sealed(run.path / "run.json", content | {"settings": plain(settings), "versions": versions()})
    return RunDirectory.open(run.path)


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
