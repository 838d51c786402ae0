"""From a model to draws, in a run directory, one stage after the other; what a directory holds is not done again."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.cli import whereabouts
from unle.cli.baselines import BASELINES, SEQUENTIAL, build_baseline, check_options
from unle.cli.console import Stages, say
from unle.cli.model import Model
from unle.cli.observation import fit_to
from unle.cli.printed import build_as_printed, check_printed
from unle.cli.sequential import fit_in_rounds
from unle.cli.where import Where
from unle.diagnose.c2st import c2st_fast
from unle.errors import InputError, StoreError
from unle.methods import AUNLE, NLE, SMNLE, SUNLE, AbstractSequential, ByExchange, Divi, Online, Tilted
from unle.methods.memory import as_bytes
from unle.methods.paper_aunle import PaperAUNLE
from unle.methods.sequential import round_sizes
from unle.posterior import Draws, Posterior
from unle.progress import progress
from unle.simulators import Simulations, run_round, summarise
from unle.store import METRICS, RunDirectory, SimulationStore, plain
from unle.train import TiltedTraining

METHODS = ("aunle", "sunle", *BASELINES)
POSTERIORS = {"tilted": Tilted(), "divi": Divi(), "online": Online(), "exchange": ByExchange()}
HERE = Where()
ONLY_DRAWS = {"x_o", "draws"}  # settings that the fit does not depend on


@dataclass(frozen=True)
class Request:
    """What a run is asked to do.

    Attributes:
        model: the prior and the simulator.
        budget: number of simulations.
        x_o: the observation, or None to fit only.
        draws: number of posterior draws.
        seed: of the simulations; the fit uses the next one, and the draws the one after.
        method: how to infer.
        members: size of the ensemble; None for the method's default.
        iterations: most optimiser steps of each network; None for the method's defaults.
        timeout: seconds that one simulation may take.
        imported: check sum of the simulations that were made elsewhere and are used instead; None to simulate.
        simulations: these simulations; not needed when the run's directory has them.
        rounds: of a sequential method, how many or the size of each; None for others.
        posterior: how sunle or smnle deals with its normaliser; None for others.
        flow: `maf` or `spline`, of nle and snle; None for others.
        sliced: whether smnle matches slices of scores.
        memory: what simulations may take while a model is fitted, such as 2GB; None for half of the machine's.
        every_round: whether sunle trains energies in every round; None for where they help to propose.
        repetition: whether aunle looks for repeated measurements in x; None for its default.
        paper: whether aunle or sunle is the algorithm of the paper and nothing else.
    """

    model: Model
    budget: int
    x_o: Float[np.ndarray, "rows dim_x"] | None
    draws: int = 10_000
    seed: int = 0
    method: str = "aunle"
    members: int | None = None
    iterations: int | None = None
    timeout: float | None = None
    imported: str | None = None
    simulations: Simulations | None = None
    rounds: int | list[int] | None = None
    posterior: str | None = None
    flow: str | None = None
    sliced: bool | None = None
    memory: str | None = None
    every_round: bool | None = None
    repetition: bool | None = None
    paper: bool | None = None

    @property
    def round_count(self) -> int:
        """How many rounds there are."""
        return len(self.rounds) if isinstance(self.rounds, list) else self.rounds or 1

    def settings(self) -> dict[str, Any]:
        """Return everything that decides the result, for `run.json`."""
        # Only where given: older directories lack them.
        own = {
            "flow": self.flow,
            "sliced": self.sliced,
            "memory": self.memory,
            "every_round": self.every_round,
            "repetition": self.repetition,
            "paper": self.paper or None,
        }
        return {
            **{name: value for name, value in own.items() if value is not None},
            "method": self.method,
            "model": self.model.name,
            "model_sha256": self.model.checksum,
            "prior": self.model.prior.spec(),
            "budget": self.budget,
            "seed": self.seed,
            "timeout": self.timeout,
            "simulations_sha256": self.imported,
            "members": self.members,
            "iterations": self.iterations,
            "rounds": self.rounds,
            "posterior": self.posterior,
            "draws": self.draws,
            "x_o": self.x_o,
        }

    def build(self) -> AUNLE | PaperAUNLE | NLE | SMNLE | AbstractSequential:
        """Return the method with its settings."""
        if self.method in BASELINES:
            return build_baseline(self)
        if self.paper:
            return build_as_printed(self)
        parts: dict[str, Any] = {} if self.members is None else {"members": self.members}
        if self.iterations is not None:
            base = SUNLE.base if self.method == "sunle" else AUNLE.base
            parts["base"] = replace(base, iterations=self.iterations)  # pyright: ignore[reportArgumentType]
        if self.method == "sunle":
            normaliser = POSTERIORS[self.posterior or "tilted"]
            parts["every_round"] = self.every_round
            if self.iterations is not None:
                parts["training"] = replace(normaliser.energies, iterations=self.iterations)
            return SUNLE(self.model.prior, self.model.simulator, normaliser=normaliser, **parts)
        if self.iterations is not None:
            parts["training"] = TiltedTraining(iterations=self.iterations)
        if self.repetition is not None:
            parts["repetition"] = self.repetition
        return AUNLE(self.model.prior, **parts)


def open_run(path: Path, request: Request) -> RunDirectory:
    """Open the run directory of a request, new or begun.

    Raises:
        InputError: the request cannot be fulfilled.
        StoreError: the directory belongs to other settings; the message names the difference.
    """
    if request.method not in METHODS:
        raise InputError(f"expected a method among {', '.join(METHODS)}; got {request.method!r}.")
    check_options(request)
    check_printed(request)
    if request.posterior not in (None, *POSTERIORS):
        raise InputError(f"expected --posterior to be {', '.join(POSTERIORS)}; got {request.posterior!r}.")
    if request.method in SEQUENTIAL and request.x_o is None:
        raise InputError("expected an observation: a sequential method simulates around it; try --observation FILE.")
    if request.rounds is not None:
        round_sizes(request.budget, request.rounds)
    if request.method in SEQUENTIAL and request.imported is not None:
        raise InputError(
            "expected --method aunle, nle or smnle with --simulations: a sequential method chooses its own parameters."
        )
    if request.model.task is not None and request.x_o is not None:
        fit_to(request.x_o, request.model.task.dim_x)
    if request.memory is not None and request.method in SEQUENTIAL:
        raise InputError("expected --memory with --method aunle, nle or smnle: rounds are held in memory as a whole.")
    as_bytes(request.memory)
    request.build()
    wanted = request.settings()
    try:
        run = RunDirectory.create(path, wanted)
        if request.model.path is not None:
            whereabouts.remember(path, request.model.path)
        return run
    except StoreError as error:
        stored = RunDirectory.open(path).settings if (path / "run.json").exists() else {}
        wanted = plain(wanted)
        if stored and {key for key in wanted if wanted[key] != stored.get(key)} <= ONLY_DRAWS:
            raise StoreError(f"{error} To draw again from its fit: unle sample {path} --observation FILE.") from None
        raise


def infer(request: Request, run: RunDirectory, stages: Stages, where: Where = HERE) -> tuple[Posterior, Draws | None]:
    """Simulate, fit and sample, or take each from the directory; nobody else may work in it meanwhile.

    Args:
        request: what to do.
        run: where its results are kept.
        stages: receives the time of every stage that had to be done.
        where: what does the simulating.

    Returns:
        The posterior, and the draws at the request's observation if it has one.
    """
    with run.working():
        run.verify()
        return _infer(request, run, stages, where)


def _infer(request: Request, run: RunDirectory, stages: Stages, where: Where) -> tuple[Posterior, Draws | None]:
    fitted = run.likelihood(request.round_count - 1)
    if run.finished("fit"):
        posterior = Posterior.load(fitted)
    else:
        posterior = _fit(request, run, stages, where)
        posterior.save(fitted, note={"method": request.method, "seed": request.seed, "budget": request.budget})
        run.seal("fit", [fitted.with_suffix(".json"), fitted.with_suffix(".npz")])
    draws = None
    if request.x_o is not None and run.finished("draws"):
        draws = Draws.load(run.draws)
    elif request.x_o is not None:
        with stages.stage("sample"):
            draws = sample(posterior, request.x_o, request.draws, seed=request.seed + 2)
            draws.save(run.draws)
            run.seal("draws", [run.draws])
    if stages.seconds:
        with run.making(METRICS, [run.path / "metrics.jsonl"]):
            run.append_metrics(stage="seconds", **stages.seconds)
    return posterior, draws


def _fit(request: Request, run: RunDirectory, stages: Stages, where: Where) -> Posterior:
    """Simulate and fit."""
    method = request.build()
    if isinstance(method, AbstractSequential):
        return fit_in_rounds(method, request, run, stages, where)
    with stages.stage("simulate"), run.simulating() as store:
        simulate_into(store, request, where)
        width = store.width(0)
    if request.x_o is not None and width is not None:
        fit_to(request.x_o, width)
    with stages.stage("fit"), SimulationStore(run.path / "simulations.sqlite", read_only=True) as store:
        return method.fit(store, seed=request.seed + 1, on_metrics=run.append_metrics, memory=request.memory)


def sample(posterior: Posterior, x_o: np.ndarray, n: int, *, seed: int) -> Draws:
    """Draw from the posterior, with a sign of life."""
    x_space = posterior.likelihood.space_of_x()
    dim_x = x_o.shape[1] if x_space is None else x_space.dim_x
    with progress("Sampling the posterior", total=n) as bar:
        draws = posterior.sample(fit_to(x_o, dim_x), n, seed=seed)
        bar.advance(n)
    return draws


def check_exact(request: Request, draws: Draws, stages: Stages) -> float:
    """Return C2ST between the draws and as many of the exact posterior."""
    task = request.model.task
    if task is None or request.x_o is None:
        raise InputError("expected a built-in task with --check: only those have exact posterior draws.")
    with stages.stage("check"), progress("Comparing with exact draws", total=1) as bar:
        # Sampling rounds up to whole chains: leave out the surplus evenly, not a part of the last chain.
        values = np.asarray(draws)
        values = values[np.linspace(0, len(values) - 1, min(request.draws, len(values))).round().astype(int)]
        if len(request.x_o) > 1:
            raise InputError(f"expected a single observation with --check; got {len(request.x_o)} rows.")
        score = c2st_fast(task.reference(request.x_o[0], len(values), seed=request.seed), values)
        bar.advance(1)
    return score


def simulate_into(store: SimulationStore, request: Request, where: Where) -> None:
    """Make the request's simulations that the store lacks."""
    store.remember("theta_names", list(request.model.prior.names))
    if request.imported is not None:
        _bring(store, request)
        return
    with where.arguments() as arguments:
        run_round(
            store,
            request.model.simulator,
            np.asarray(request.model.prior.sample(request.budget, seed=request.seed), dtype=np.float64),
            seed=request.seed,
            timeout=request.timeout,
            **arguments,
        )
    say(summarise(store, 0))


def _bring(store: SimulationStore, request: Request) -> None:
    """Copy the simulations that the user brought into the store, all or none."""
    if not store.count(0):
        if request.simulations is None:
            raise StoreError(f"{store.path} is empty; bring the simulations again: unle run MODEL --simulations ...")
        request.simulations.append_to(store)


def load_posterior(run: RunDirectory) -> Posterior:
    """Return the fitted posterior of the last round.

    Raises:
        StoreError: nothing has been fitted yet.
    """
    fitted = sorted((run.path / "rounds").glob("[0-9]*/likelihood.json"))
    if not fitted:
        raise StoreError(f"{run.path} holds no fitted likelihood yet; to finish it: unle resume {run.path}.")
    run.finished("fit")  # raises if a file was damaged
    return Posterior.load(fitted[-1].with_suffix(""))


def saved_so_far(path: Path) -> str:
    """Return what a directory keeps of an interrupted run, as the second half of a sentence."""
    if not (path / "run.json").exists():
        return "nothing was saved."
    run = RunDirectory.open(path)
    if run.finished("fit"):
        kept = "the fitted likelihood is"
    elif (path / "simulations.sqlite").exists():
        with run.simulations(read_only=True) as store:
            kept = f"{store.count():,} simulations are"
    else:
        kept = "the settings are"
    return f"{kept} saved in {path}; to go on: unle resume {path}"
