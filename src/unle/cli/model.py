"""MODEL on the command line, a built-in task or a Python file.

A file has a prior and a simulator:

    # decay.py
    import unle
    prior = unle.Prior.uniform(low=[0.1], high=[2.0], names=["rate"])
    def simulator(theta, rng):
        return rng.exponential(1 / theta[0], size=5)
    x_o = [0.4, 1.3, 0.2, 0.9, 0.5]        # optional: the observation

`unle resume DIR` has to run the model file again. If its path were written in the directory, a run directory from
somebody else could make you run a file of their choice. So the directory only holds the file's check sum, and the path
is kept where only you write: `$UNLE_STATE`, else `$XDG_STATE_HOME/unle`, else `~/.local/state/unle`.
"""

import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from unle.errors import InputError, StoreError
from unle.simulators import MODEL_PREFIX
from unle.space import Prior
from unle.store import RunDirectory, read_json, sha256_of, write_json

BENCHMARK = "unle_bench"  # the package with the built-in tasks
PRIOR_EXAMPLE = "prior = unle.Prior.uniform(low=[0.0], high=[1.0])"
SIMULATOR_EXAMPLE = "def simulator(theta, rng): ..."


def remember(directory: Path, model: Path) -> None:
    """Write down that this run directory belongs to this model file; where that is not possible, do without."""
    with contextlib.suppress(OSError):
        file = _file(directory)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(file, {"directory": str(directory.resolve()), "model": str(model.resolve())})


def recall(directory: Path) -> Path | None:
    """Return the model file of a run directory that was begun on this account; None if that is not known."""
    try:
        known = read_json(_file(directory))
    except StoreError:
        return None
    if not isinstance(known, dict) or known.get("directory") != str(directory.resolve()):
        return None
    return Path(str(known.get("model")))


def _file(directory: Path) -> Path:
    name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:24]
    return _folder() / "runs" / f"{name}.json"


def _folder() -> Path:
    if own := os.environ.get("UNLE_STATE"):
        return Path(own)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "unle"


@dataclass(frozen=True)
class Model:
    """What to infer."""

    name: str  # of the task, or of the file
    prior: Prior  # of theta
    simulator: Callable  # of x given theta
    x_o: Any = None  # the observation that the file defines, or the only one of the task, or None
    task: Any = None  # the built-in task, a `unle_bench.Task`; or None
    # SHA-256 of the file; None for a task. Part of a run's settings: simulations of two versions of a simulator must
    # not meet in one table.
    checksum: str | None = None
    path: Path | None = None  # of the file; None for a task


def built_in_tasks() -> Mapping[str, Any]:
    """Return the tasks of the package `unle_bench` by name; none where it is not installed."""
    if importlib.util.find_spec(BENCHMARK) is None:
        return {}
    return importlib.import_module(BENCHMARK).TASKS


def load_model(text: str) -> Model:
    """Return the built-in task, or load the file, that `text` names."""
    tasks = built_in_tasks()
    if text in tasks:
        task = tasks[text]
        x_o = task.observation(1) if task.observations == 1 else None
        return Model(task.name, task.prior, task.simulator_here, x_o, task=task)
    path = Path(text)
    if path.is_file():
        return _from_file(path)
    if path.suffix == ".py":
        raise InputError(
            f"expected a Python file that defines a model; there is no file {path} in {Path.cwd()}; try its full path."
        )
    if not tasks:
        raise InputError(
            f"expected a Python file, or a built-in task of the package unle_bench, which is missing; got {text!r}."
        )
    near = difflib.get_close_matches(text, tasks, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; try a file such as model.py."
    if Path(f"{text}.py").is_file():
        hint = f"; did you mean {text}.py?"
    raise InputError(f"expected a built-in task ({', '.join(tasks)}) or a Python file; got {text!r}{hint}")


def model_of_run(run: RunDirectory, given: str | None, *, needed: bool = False) -> Model | None:
    """Return the model that a run was made with, and no other: a built-in task, or a file that has not changed.

    `given` is the path of the file, from the user; None for the one that was remembered.  Where it is not known, None
    is returned, or an error raised if the model is `needed`.
    """
    name, checksum = str(run.settings.get("model", "")), run.settings.get("model_sha256")
    if checksum is None:
        return load_model(name) if needed or name in built_in_tasks() else None
    path = recall(run.path) if given is None else Path(given)
    if given is None and not needed and (path is None or not path.is_file()):
        return None
    if path is None:
        raise StoreError(f"{run.path} was not begun on this account; say which model: unle resume {run.path} {name}")
    if not path.is_file():
        raise StoreError(f"the model {path} is gone; say where it is: unle resume {run.path} PATH/{name}")
    if sha256_of(path) != checksum:  # before anything in it is run
        raise StoreError(
            f"{path} has changed since this run began, and simulations of two versions must not be mixed; "
            "restore it, or begin a new run with another --out."
        )
    return replace(load_model(str(path)), name=name)  # a file may be renamed; its content counts


def _from_file(path: Path) -> Model:
    module = _execute(path)
    missing = [name for name in ("prior", "simulator") if not hasattr(module, name)]
    if missing:
        examples = {"prior": PRIOR_EXAMPLE, "simulator": SIMULATOR_EXAMPLE}
        raise InputError(
            f"expected {path} to define `prior` and `simulator`; it does not define `{'` or `'.join(missing)}`; "
            f"try: {examples[missing[0]]}"
        )
    prior = module.prior
    if not isinstance(prior, Prior):
        try:
            prior = Prior(prior)
        except InputError as error:
            raise InputError(f"`prior` in {path}: {error}") from None
    if not callable(module.simulator):
        raise InputError(f"expected `simulator` in {path} to be a function; got {type(module.simulator).__name__}.")
    x_o = getattr(module, "x_o", None)
    return Model(path.name, prior, module.simulator, x_o, checksum=sha256_of(path), path=path)


def _execute(path: Path) -> ModuleType:
    """Run the file as a module that may import its neighbours, as `python file.py` would let it."""
    name = f"{MODEL_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"expected a Python file (.py); got {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where = _line_in(path, error)
        raise InputError(f"{path} could not be run: {type(error).__name__}: {error}{where}.") from None
    return module


def _line_in(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its message names the line already
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path.absolute() or frame.filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""
