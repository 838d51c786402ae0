"""Sequential rounds in a run directory: each round is kept, and what is kept is not done again."""

import json
from typing import Any

import numpy as np

from unle.cli.console import Stages, say
from unle.cli.output import say_traceback
from unle.cli.settings import ExecutorOptions
from unle.errors import StoreError
from unle.methods import AbstractSequential, Round
from unle.methods.abstract_method import LAST_FIT, ROUNDS_AND_LAST, all_rounds, record_losses
from unle.methods.round_state import AbstractRoundState
from unle.posterior import Posterior
from unle.simulators import simulate_at
from unle.store import RunDirectory
from unle.store.model_files import load_module, save_module

ENERGIES = "energies"  # of a round, from which the next one starts


def fit_in_rounds(
    method: AbstractSequential, request: Any, run: RunDirectory, stages: Stages, executor: ExecutorOptions
) -> Posterior:
    """Simulate and fit round after round, or take what the directory holds."""
    settings = request.settings
    state = method.begin(request.x_o.named, budget=settings.budget, rounds=settings.sizes, seed=settings.seed)
    with all_rounds(settings.method.upper(), state) as bar:
        with run.simulating() as store, executor.arguments() as arguments:
            store.remember("theta_names", list(request.model.prior.names))
            while state.number < len(state.sizes):
                with stages.stage("simulate", state.title):
                    simulations = simulate_at(
                        request.model.simulator,
                        state.propose(),
                        seed=settings.seed,
                        round=state.number,
                        store=store,
                        timeout=settings.timeout,
                        check_length=request.x_o.of_length,
                        **arguments,
                    )
                state = _after_round(method, state, simulations, run, stages)
                bar.advance(note=ROUNDS_AND_LAST)
        record_losses(run.append_metrics, state.history)
        with stages.stage("fit", LAST_FIT):
            posterior = method.finish(state, on_metrics=run.append_metrics).posterior
        bar.advance()
        return posterior


def _after_round(
    method: AbstractSequential, state: AbstractRoundState, simulations: Any, run: RunDirectory, stages: Stages
) -> AbstractRoundState:
    """Fit a round and keep it, or take it from the directory."""
    is_last = state.is_last
    # The last round is fitted again in any case: the energies are trained on its data.
    if run.finished(_stage(state.number)) and not is_last:
        return _recall(state, simulations, run)
    with stages.stage("fit", state.title):
        state = method.update(state, simulations)
    done = state.history[-1]
    if not is_last:
        _keep(state, done, run)
    run.append_metrics(stage="round", **done._asdict())
    if not simulations.valid.all():
        say(simulations.summary())
        if done.number == 0:
            say_traceback(simulations.first_traceback)
    say(describe_round(done, len(state.sizes)))
    return state


def describe_round(done: Round, rounds: int) -> str:
    """Return one line on what a round did."""
    towards = "posterior" if done.temperature == 1 else f"posterior to the power {done.temperature:.2g}"
    towards += " by energies" if done.energies else ""
    outside = "" if done.contains else ", x_o outside of them"
    return (
        f"round {done.number + 1} of {rounds}: {done.simulations} simulations, {done.valid:.0%} valid, "
        f"{done.distance:.2g} sd from x_o{outside}; {done.used} fitted; next: {towards}, "
        f"{done.width:.2g} times as wide as the first; {done.seconds:.0f} s"
    )


def _stage(number: int) -> str:
    return f"round {number}"


def _keep(state: AbstractRoundState, done: Round, run: RunDirectory) -> None:
    folder = run.round(done.number)
    proposals, record = folder / "proposals.npy", folder / "round.json"
    np.save(proposals, state.proposals, allow_pickle=False)
    record.write_text(json.dumps(done._asdict()), encoding="utf-8")
    files = [proposals, record]
    if state.carried is not None:
        save_module(folder / ENERGIES, state.carried)
        files += [folder / f"{ENERGIES}.json", folder / f"{ENERGIES}.npz"]
    run.seal(_stage(done.number), files)


def _recall(state: AbstractRoundState, simulations: Any, run: RunDirectory) -> AbstractRoundState:
    folder = run.round(state.number)
    try:
        proposals = np.load(folder / "proposals.npy", allow_pickle=False)
        done = Round(**json.loads((folder / "round.json").read_text(encoding="utf-8")))
        carried = load_module(folder / ENERGIES) if (folder / f"{ENERGIES}.json").exists() else None
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{folder} is damaged: {error}.") from None
    return state.recall(simulations, done, proposals, carried)
