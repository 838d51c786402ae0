"""From a model to draws, in a run directory, one stage after the other; what a directory holds is not done again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unle.arrays import in_order
from unle.cli.build import build, check_settings
from unle.cli.console import Stages, say
from unle.cli.model import Model, remember
from unle.cli.observation import Observation
from unle.cli.output import say_traceback
from unle.cli.sequential import fit_in_rounds
from unle.cli.settings import ExecutorOptions, RunSettings
from unle.cli.top_up import FIRST_ROUNDS, create_or_top_up
from unle.diagnose import c2st_fast
from unle.errors import InputError, StoreError
from unle.methods import AbstractSequential
from unle.posterior import Draws, Posterior
from unle.simulators import Simulations, simulate_into, summarise
from unle.store import METRICS, RunDirectory, SimulationStore, plain

IN_THIS_PROCESS = ExecutorOptions()
ONLY_DRAWS = {"x_o", "draws"}  # settings that the fit does not depend on


@dataclass(frozen=True)
class Request:
    """What a run is asked to do."""

    model: Model  # the prior and the simulator
    # of the run, with all defaults filled in. Its seed is that of the simulations; the fit uses the next one, and the
    # draws the one after.
    settings: RunSettings
    x_o: Observation | None  # the observation, or None to fit only
    # made elsewhere and used instead; not needed when the run's directory has them
    simulations: Simulations | None = None
    simulations_sha256: str | None = None  # check sum of these simulations; None to simulate

    def record(self) -> dict[str, Any]:
        """Return everything that decides the result, for `run.json`."""
        record = self.settings.record() | {
            "model": self.model.name,
            "model_sha256": self.model.checksum,
            "prior": self.model.prior.spec(),
            "simulations_sha256": self.simulations_sha256,
        }
        return record | ({"x_o": None} if self.x_o is None else self.x_o.record())


def as_begun(settings: RunSettings, path: Path) -> RunSettings:
    """Return the settings with the rounds of the run that the directory holds, if no others are asked for."""
    stored = RunDirectory.open(path).settings if (path / "run.json").is_file() else {}
    rounds = stored.get(FIRST_ROUNDS, stored.get("rounds"))
    if settings.rounds is not None or rounds is None or not settings.is_sequential:
        return settings
    return replace(settings, rounds=",".join(map(str, rounds)) if isinstance(rounds, list) else str(rounds))


def open_run(path: Path, request: Request) -> RunDirectory:
    """Open the run directory of a request: new, begun, or with a smaller budget; or say why that cannot be."""
    settings, model = request.settings, request.model
    check_settings(settings)
    if settings.is_sequential and request.x_o is None:
        raise InputError("expected an observation: a sequential method simulates around it; try --observation FILE.")
    if settings.is_sequential and request.simulations_sha256 is not None:
        raise InputError(
            "expected --method aunle, nle or smnle with --simulations: a sequential method chooses its own parameters."
        )
    if model.task is not None and request.x_o is not None:
        request.x_o.of_length(model.task.dim_x)
    build(settings, model)
    wanted = request.record()
    try:
        run = create_or_top_up(path, wanted)
        if model.path is not None:
            remember(path, model.path)
        return run
    except StoreError as error:
        stored = RunDirectory.open(path).settings if (path / "run.json").exists() else {}
        wanted = plain(wanted)
        if stored and {key for key in wanted if wanted[key] != stored.get(key)} <= ONLY_DRAWS:
            raise StoreError(f"{error} To draw again from its fit: unle sample {path} --observation FILE.") from None
        raise


def infer(
    request: Request, run: RunDirectory, stages: Stages, executor: ExecutorOptions = IN_THIS_PROCESS
) -> tuple[Posterior, Draws | None]:
    """Simulate, fit and sample, or take each from the directory, which is locked meanwhile.

    `stages` receives the time of every stage that had to be done.  There are draws if the request has an observation.
    """
    with run.working():
        run.verify()
        posterior = _posterior(request, run, stages, executor)
        draws = _draws(request, run, stages, posterior)
        if stages.seconds:
            with run.making(METRICS, [run.path / "metrics.jsonl"]):
                run.append_metrics(stage="seconds", **stages.seconds)
    return posterior, draws


def _posterior(request: Request, run: RunDirectory, stages: Stages, executor: ExecutorOptions) -> Posterior:
    settings = request.settings
    fitted = run.likelihood(settings.round_count - 1)
    if run.finished("fit"):
        return Posterior.load(fitted)
    posterior = _fit(request, run, stages, executor)
    posterior.save(fitted, note={"method": settings.method, "seed": settings.seed, "budget": settings.budget})
    run.seal("fit", [fitted.with_suffix(".json"), fitted.with_suffix(".npz")])
    return posterior


def _draws(request: Request, run: RunDirectory, stages: Stages, posterior: Posterior) -> Draws | None:
    if request.x_o is None:
        return None
    if run.finished("draws"):
        return Draws.load(run.draws)
    with stages.stage("sample", "Posterior draws"):
        draws = sample(posterior, request.x_o, request.settings.draws, seed=request.settings.seed + 2)
        draws.save(run.draws)
        run.seal("draws", [run.draws])
    return draws


def _fit(request: Request, run: RunDirectory, stages: Stages, executor: ExecutorOptions) -> Posterior:
    """Simulate and fit."""
    settings = request.settings
    method = build(settings, request.model)
    if isinstance(method, AbstractSequential):
        return fit_in_rounds(method, request, run, stages, executor)
    with stages.stage("simulate", "Simulations"), run.simulating() as store:
        if request.simulations_sha256 is None:
            simulate_prior(store, request.model, settings.record(), executor, request.x_o)
            say(summarise(store, 0))
            say_traceback(store.fact("traceback of round 0"))
        else:
            _bring(store, request)
        width, names = store.width(0), store.fact("x_names") or ()
    if request.x_o is not None and width is not None:
        in_order(request.x_o.of_length(width), names)
    with (
        stages.stage("fit", "Fitting the likelihood"),
        SimulationStore(run.path / "simulations.sqlite", read_only=True) as store,
    ):
        return method.fit(store, seed=settings.seed + 1, on_metrics=run.append_metrics, memory=settings.memory)


def simulate_prior(
    store: SimulationStore,
    model: Model,
    settings: dict[str, Any],
    executor: ExecutorOptions,
    x_o: Observation | None = None,
) -> None:
    """Make the simulations of prior draws that the store of a run lacks, if the first ones have the length of x_o."""
    store.remember("theta_names", list(model.prior.names))
    theta = np.asarray(model.prior.sample(settings["budget"], seed=settings["seed"]), dtype=np.float64)
    with executor.arguments() as arguments:
        simulate_into(
            store,
            model.simulator,
            theta,
            seed=settings["seed"],
            timeout=settings["timeout"],
            check_length=(lambda dim_x: None) if x_o is None else x_o.of_length,
            **arguments,
        )


def _bring(store: SimulationStore, request: Request) -> None:
    """Copy the simulations that the user brought into the store, all or none."""
    store.remember("theta_names", list(request.model.prior.names))
    if not store.count(0):
        if request.simulations is None:
            raise StoreError(f"{store.path} is empty; bring the simulations again: unle run MODEL --simulations ...")
        request.simulations.append_to(store)


def sample(
    posterior: Posterior, x_o: Observation, n: int, *, seed: int, condition: Mapping[str, float] | None = None
) -> Draws:
    """Draw from the posterior."""
    width = posterior.dim_x or x_o.rows.shape[1]
    return posterior.sample(x_o.of_length(width), n, seed=seed, condition=condition)


def check_exact(request: Request, draws: Draws, stages: Stages) -> float:
    """Return C2ST between the draws and as many of the exact posterior."""
    task, settings = request.model.task, request.settings
    if task is None or request.x_o is None:
        raise InputError("expected a built-in task with --check: only those have exact posterior draws.")
    with stages.stage("exact", "Comparing with exact draws"):
        # Sampling rounds up to whole chains: leave out the surplus evenly, not a part of the last chain.
        values = np.asarray(draws)
        values = values[np.linspace(0, len(values) - 1, min(settings.draws, len(values))).round().astype(int)]
        rows = request.x_o.rows
        if len(rows) > 1:
            raise InputError(f"expected a single observation with --check; got {len(rows)} rows.")
        return c2st_fast(task.reference(rows[0], len(values), seed=settings.seed), values)


def load_posterior(run: RunDirectory) -> Posterior:
    """Return the fitted posterior of the last round."""
    if not list(run.path.glob("rounds/[0-9]*/likelihood.json")):
        raise StoreError(f"{run.path} holds no fitted likelihood yet; to finish it: unle resume {run.path}.")
    run.finished("fit")  # raises if a file was damaged
    return Posterior.load(run.path)
