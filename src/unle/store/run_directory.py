"""The directory of a run: everything that one inference leaves behind, in one place.

    runs/mine/
      run.json                  method, settings, seed, versions
      simulations.sqlite        every simulation, see `unle.store.simulations`
      rounds/00/likelihood.json, likelihood.npz    the fitted model of each round, see `unle.store.modules`
      draws.nc                  posterior draws at the observation
      metrics.jsonl             one JSON object per line, appended as the run goes on
      report.html

A directory belongs to one set of settings for ever. Opening it with others is refused, and the refusal names
the difference: simulations of two priors mixed in one table are a mistake that no later check would find.

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
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unle.errors import StoreError
from unle.store.json_files import plain, read_json, versions, write_json
from unle.store.simulations import SimulationStore

FORMAT = 1
_ABSENT = object()


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
        """Start a run in a directory, or take up the run with the same settings that is there.

        Args:
            path: the directory, made if need be.
            settings: everything that decides the result (method, seed, budget, prior, ...), made of numbers,
                strings, lists and dictionaries.

        Raises:
            StoreError: the directory holds a run with other settings, or cannot be written.
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
        write_json(
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
        """Open the run in a directory.

        Raises:
            StoreError: there is none, or its `run.json` is damaged.
        """
        path = Path(path)
        if not (path / "run.json").exists():
            raise StoreError(f"{path} holds no run: it has no run.json.")
        content = read_json(path / "run.json")
        if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
            raise StoreError(f"{path / 'run.json'} is damaged: it has no settings.")
        if content.get("format") != FORMAT:
            raise StoreError(f"{path / 'run.json'} has format {content.get('format')}; this version reads {FORMAT}.")
        return cls(path, content["settings"])

    def simulations(self) -> SimulationStore:
        """Open the table of simulations; close it when done."""
        return SimulationStore(self.path / "simulations.sqlite")

    def round(self, number: int) -> Path:
        """Return the directory of a round, made if need be."""
        directory = self.path / "rounds" / f"{number:02d}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def likelihood(self, number: int) -> Path:
        """Return where the model of a round is stored, without suffix: what `save_module` takes."""
        return self.round(number) / "likelihood"

    @property
    def draws(self) -> Path:
        """Where the posterior draws are."""
        return self.path / "draws.nc"

    @property
    def report(self) -> Path:
        """Where the report is."""
        return self.path / "report.html"

    def append_metrics(self, **metrics: Any) -> None:
        """Add one line to `metrics.jsonl`."""
        line = json.dumps(plain(metrics)) + "\n"
        try:
            with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise StoreError(f"{self.path / 'metrics.jsonl'} could not be written: {error}.") from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of `metrics.jsonl`; a last line cut short by a crash is left out.

        Raises:
            StoreError: another line is not JSON.
        """
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        try:
            lines = file.read_text(encoding="utf-8").split("\n")[:-1]  # the last is empty, or cut short
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise StoreError(f"{file} is damaged: a line is not valid JSON ({error}).") from error


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


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
