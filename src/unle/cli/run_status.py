"""What can be seen of a run from outside: its stage, how far it is, and whether anybody still works on it.

Everything comes from files of the run directory; nothing is written.  Whether the process of the run lives is seen from
its lock, which the system releases when a process ends, however it ends.  Some file systems do not show locks to other
machines: there, a run counts as stopped only when it has been silent for a while, too.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unle.store import RoundCount, RunDirectory, held, last_held_here, last_holder, peek_simulations, read_counts

SILENCE = 300.0  # seconds without a change that are worth a word
LONG_SILENCE = 120.0  # seconds after which a lock that cannot be seen from this machine is taken for released
ENDED = ("finished", "stopped")


@dataclass(frozen=True)
class RunStatus:
    """What can be seen of a run at one moment."""

    at: float  # seconds on a clock
    stage: str  # simulating, fitting (a round), training, normalising, sampling, finished or stopped
    round: int  # the latest, from 0
    rounds: int  # how many there will be
    done: int  # simulations of that round, of `wanted`
    wanted: int | None  # as the settings say; None if they do not
    invalid: int  # of the done ones
    loss: str  # what training, or the last round, reported last, in words; empty if nothing yet
    silent: float  # seconds since a file of the run changed
    step: int = 0  # how much of the present stage is done: simulations, or steps of training
    steps: int | None = None  # how many there are at most; None if unknown
    task: str = ""  # what the steps belong to; steps of two tasks must not be compared
    why: str = ""  # the run stopped, if it did

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.stage in ENDED


def run_status(run: RunDirectory) -> RunStatus:
    """Return what can be seen now."""
    is_held = held(run.lock)  # first: whatever a process wrote before it ended is then seen below
    silent = _silence(run)
    metrics, counts = run.read_metrics(), _counts(run)
    latest = counts[-1] if counts else RoundCount(0, 0, 0, 0.0)
    rounds, wanted = _plan(run.settings, latest.round)
    stage = _stage(run, metrics, latest, rounds, wanted)
    step, steps, task, loss = 0, None, stage, ""
    if stage == "simulating":
        step, steps, task = latest.done, wanted, f"simulations of round {latest.round}"
    elif stage == "training":
        step, steps, task, loss = _training(metrics)
    elif stage != "fitting":
        loss = _training(metrics)[3]
    if not loss and (told := [record for record in metrics if record.get("stage") == "round"]):
        loss = f"round {int(told[-1]['number']) + 1} was {float(told[-1]['distance']):.2g} sd from x_o"
    if stage == "finished":  # the numbers of all rounds
        done, invalid = sum(count.done for count in counts), sum(count.invalid for count in counts)
        latest, wanted = latest._replace(done=done, invalid=invalid), run.settings.get("budget")
        sentences = [record["sentence"] for record in metrics if "sentence" in record]
        loss = str(sentences[-1]).rstrip(".") if sentences else loss
    why = ""
    if stage != "finished" and _is_over(run, is_held, silent):
        stage, why = "stopped", _why(run, metrics)
    seen = time.monotonic(), stage, latest.round, rounds, latest.done, wanted, latest.invalid
    return RunStatus(*seen, loss, silent, step, steps, task, why)


def describe(now: RunStatus, first: RunStatus) -> str:
    """Return one line; rates are over the time since the first look at the present task."""
    rounds = f" after {now.rounds} rounds" if now.stage == "finished" else f", round {now.round + 1} of {now.rounds}"
    parts = [now.stage + rounds * (now.rounds > 1)]
    total = f" of {now.wanted:,}" if now.wanted else ""
    parts.append(f"{now.done:,}{total} simulations ({now.invalid:,} failed)")
    passed, made = now.at - first.at, now.step - first.step
    if not now.ended and passed > 0 and made > 0 and now.task == first.task:
        rate = made / passed
        if now.stage == "simulating":
            parts.append(f"{rate:.3g} per second")
        if now.steps:
            most = "" if now.stage == "simulating" else "at most "  # training may stop early
            parts.append(f"{most}{span((now.steps - now.step) / rate)} left")
    if now.loss:
        parts.append(now.loss)
    if now.silent > SILENCE and not now.ended:
        parts.append(f"no sign of life for {span(now.silent)}")
    if now.why:
        parts.append(now.why)
    return "; ".join(parts)


def span(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _counts(run: RunDirectory) -> list[RoundCount]:
    if run.lock.exists() and not last_held_here(run.lock):  # two machines must not open the table at once
        return read_counts(run.counts)
    return peek_simulations(run.path / "simulations.sqlite")


def _silence(run: RunDirectory) -> float:
    changed = []
    for path in run.path.rglob("*"):
        try:
            changed.append(path.stat().st_mtime)
        except OSError:  # gone in the meantime
            continue
    return max(time.time() - max(changed, default=time.time()), 0.0)


def _plan(settings: Mapping[str, Any], current: int) -> tuple[int, int | None]:
    """Return how many rounds there are, and the size of the present one."""
    split, budget = settings.get("rounds") or 1, settings.get("budget")
    if isinstance(split, list):
        return len(split), split[current] if current < len(split) else None
    rounds = int(split)
    return rounds, None if budget is None else int(budget) // rounds + (current < int(budget) % rounds)


def _stage(
    run: RunDirectory, metrics: Sequence[Mapping[str, Any]], latest: RoundCount, rounds: int, wanted: int | None
) -> str:
    if run.settings.get("method") in ("simulate", "import"):
        return "finished" if latest.done and latest.done >= (wanted or 0) else "simulating"
    has_x_o = run.settings.get("x_o") is not None
    if any(record.get("stage") == "seconds" for record in metrics) and (run.draws.exists() or not has_x_o):
        return "finished"
    if (run.path / "rounds" / f"{rounds - 1:02d}" / "likelihood.json").exists():
        return "sampling"
    if wanted is None or latest.done < wanted:
        return "simulating"
    if latest.round < rounds - 1:
        return "fitting"
    told = [record.get("stage") for record in metrics if record.get("stage") in ("training", "descent", "fitted")]
    return "normalising" if told and told[-1] == "fitted" else "training"


def _training(metrics: Sequence[Mapping[str, Any]]) -> tuple[int, int | None, str, str]:
    """Return steps done, steps at most, what they belong to, and the loss in words, of the latest record."""
    told = [record for record in metrics if record.get("stage") in ("training", "descent")]
    if not told:
        return 0, None, "", ""
    last = told[-1]
    if last["stage"] == "descent":
        step, steps = int(last["step"]), last.get("steps")
        loss = f"step {step:,}, loss {float(last['loss']):.3f}, held-out loss {float(last['held_out']):.3f}"
        return step, None if steps is None else int(steps), "descent", loss
    step, steps = int(last["chunk"]) + 1, last.get("chunks")
    of = "" if steps is None else f" of at most {int(steps)}"
    energy = "energy" if last.get("sees_theta", True) else "theta-free energy"
    energy = "energy trained further" if last.get("continued", False) else energy
    loss = f"{energy}, chunk {step}{of}, held-out gain {float(last['gain']):+.2f} nats"
    return step, None if steps is None else int(steps), energy, loss


def _is_over(run: RunDirectory, is_held: bool | None, silent: float) -> bool:  # noqa: FBT001
    if is_held or not run.lock.exists():  # without a lock file the run has not begun
        return False
    return silent > LONG_SILENCE if is_held is None or not last_held_here(run.lock) else True


def _why(run: RunDirectory, metrics: Sequence[Mapping[str, Any]]) -> str:
    last = metrics[-1] if metrics else {}
    if last.get("stage") == "stopped" and last.get("who") == last_holder(run.lock):
        return str(last["why"])
    return "its process is gone, without a word"
