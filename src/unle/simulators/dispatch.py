"""Claim a round in a store, keep an executor busy, store what comes back, and do again what was lost on the way.

There are two kinds of failure. A simulation that fails is an outcome with a reason, and comes back as any other. An
executor that fails (a node vanished, a pool broke, a piece of work was cancelled) raises; its simulations are done
again, one by one, a few times each.

A piece of work should take about a second: long enough that handing it over costs nothing, short enough that a lost
one does not hurt, and that all workers finish together. How long a simulation takes is learned on the way; the first
pieces are single simulations.

A round belongs to one seed and to one list of parameters (`claim_round`).  It may be topped up: asked for again with
more parameters that begin with the known ones.  The rows that are there stay as they are.  A block of a vectorised
simulator shares one random generator, so that rows of a block that was cut short cannot be filled up from it: a later
row could repeat the random numbers of an earlier one.  Each top-up begins a block of its own instead.
"""

import hashlib
import queue
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unle.errors import InputError, SimulationError, StoreError, warn_user
from unle.progress import AbstractBar
from unle.simulators.piece import Outcome, reason_of
from unle.simulators.sandbox import CannotLoad, Stopped
from unle.simulators.simulations import Writer
from unle.simulators.workers import Work, run_work, worker_count
from unle.store import SimulationStore

PIECE_SECONDS = 1.0  # that a piece of work should take
LARGEST_PIECE = 10_000  # simulations
LARGEST_GROWTH = 8  # of a piece over the one before: the first timings may mislead
TRIES = 5  # of a simulation whose worker is lost every time
FIRST_FAILURES = 8  # of an executor that has done nothing else: then it will not recover
INTERRUPT_SECONDS = 3.0  # after Ctrl-C, for pieces of work that are under way
ROUNDING = 1e-6  # relative; between parameters of one seed on two machines
QUIET_SECONDS = 10.0  # without a result, after which a warning says why


class Blocks(NamedTuple):
    """The blocks of a round."""

    size: int  # most rows of one block
    n: int  # rows of the round
    starts: tuple[int, ...] = ()  # numbers of the rows at which the round was topped up

    def of(self, id: int) -> Int[np.ndarray, " rows"]:
        """Return the numbers of the simulations in the block of one of them.

        Example:
            >>> Blocks(256, 600, (300,)).of(290)[[0, -1]].tolist(), Blocks(256, 600, (300,)).of(310)[[0, -1]].tolist()
            ([256, 299], [300, 511])
        """
        first = id // self.size * self.size
        start = max([first, *(start for start in self.starts if start <= id)])
        stop = min([first + self.size, self.n, *(start for start in self.starts if start > id)])
        return np.arange(start, stop)

    def firsts(self, ids: Int[np.ndarray, " n"]) -> list[int]:
        """Return the first row of every block that holds one of these."""
        if self.size == 1:
            return ids.tolist()
        edges = np.unique([*range(0, self.n, self.size), *self.starts])
        return np.unique(edges[np.searchsorted(edges, ids, side="right") - 1]).tolist()


def claim_round(store: SimulationStore, theta: Float[np.ndarray, "n dim"], seed: int, round: int) -> tuple[int, ...]:
    """Write down what a round is made of; refuse to mix it with another.

    The rows at which the round was topped up are returned.
    """
    name, n = f"round {round}", len(theta)
    known = store.fact(name)
    if known is None and store.count(round):
        raise StoreError(f"{store.path} already holds simulations of round {round}, from elsewhere; use another round.")
    wanted = {"seed": int(seed), "n": n, "theta_sha256": _digest(theta)}
    starts = [] if known is None else known.get("starts", [])
    if known is not None and any(known.get(key) != value for key, value in wanted.items()):
        begins_alike = known["theta_sha256"] == _digest(theta[: known["n"]]) or _is_close(theta, store, round)
        is_last = n == known["n"] or store.count() == store.count(round)
        if known["seed"] != seed or n < known["n"] or not begins_alike or not is_last:
            raise StoreError(f"{store.path} already holds other simulations of round {round}: {_other(known, wanted)}.")
        starts = [*starts, known["n"]] if n > known["n"] else starts
    if known is None or known["n"] != n:
        store.remember(name, wanted | ({"starts": starts} if starts else {}))
    return tuple(starts)


def _other(known: dict, wanted: dict) -> str:
    if known["seed"] == wanted["seed"] and wanted["n"] < known["n"]:
        return f"{known['n']} of them, and {wanted['n']} were asked for; try n={known['n']}, or another file"
    return "another " + ", ".join(key.removesuffix("_sha256") for key in wanted if known.get(key) != wanted[key])


def _is_close(theta: Float[np.ndarray, "n dim"], store: SimulationStore, round: int) -> bool:
    """Return whether the simulated parameters are these but for rounding: another machine may round otherwise."""
    rows = store.read(round)
    if not len(rows.id) or rows.id.max() >= len(theta) or rows.theta.shape[1] != theta.shape[1]:
        return False
    return np.allclose(rows.theta, theta[rows.id], rtol=ROUNDING, atol=ROUNDING * float(np.abs(theta).max()))


def _digest(theta: np.ndarray) -> str:
    return hashlib.sha256(theta.tobytes()).hexdigest()


class Plan:
    """Which simulations are still to do, and how many to do at once; `blocks` are those of a batched simulator."""

    def __init__(self, ids: np.ndarray, blocks: Blocks | None):
        self._blocks = blocks
        self._ids = ids
        self._next = 0
        self._again: deque[tuple[np.ndarray, int]] = deque()
        self._size, self._seconds = 1.0, None

    def __len__(self) -> int:
        return len(self._ids) - self._next + sum(len(ids) for ids, _ in self._again)

    def take(self, workers: int) -> tuple[np.ndarray, int]:
        """Return the numbers of the next piece of work, and how often it was tried before."""
        if self._again:
            return self._again.popleft()
        if self._blocks is not None:
            last = int(self._blocks.of(int(self._ids[self._next]))[-1])
            stop = int(np.searchsorted(self._ids, last, side="right"))
        else:
            left = len(self._ids) - self._next
            share = -(-left // (2 * workers))  # towards the end pieces become smaller, and workers finish together
            stop = self._next + max(1, min(int(self._size), share, LARGEST_PIECE))
        ids, self._next = self._ids[self._next : stop], stop
        return ids, 0

    def learn(self, count: int, seconds: float) -> None:
        """Take note that so many simulations took so long in all."""
        each = max(seconds / count, 1e-7)
        self._seconds = each if self._seconds is None else 0.7 * self._seconds + 0.3 * each
        self._size = min(PIECE_SECONDS / self._seconds, LARGEST_GROWTH * max(self._size, 1.0))

    def retry(self, ids: np.ndarray, tries: int) -> None:
        """Do these again: one by one, so that a bad one is found; a block stays together."""
        pieces = [ids] if self._blocks is not None else [ids[i : i + 1] for i in range(len(ids))]
        self._again.extend((piece, tries + 1) for piece in pieces)


def dispatch(
    executor: Executor, plan: Plan, make_work: Callable[[np.ndarray], Work], writer: Writer, bar: AbstractBar
) -> None:
    """Do everything in the plan.

    `make_work` turns numbers of simulations into a piece of work; it may add rows, those of a block.
    """
    dispatcher = _Dispatcher(executor, plan, make_work, writer, bar)
    try:
        while len(plan) or dispatcher.pending:
            dispatcher.submit()
            dispatcher.collect(QUIET_SECONDS)
    except KeyboardInterrupt:
        dispatcher.collect_what_runs(INTERRUPT_SECONDS)
        raise
    finally:
        for future in dispatcher.pending:
            future.cancel()


class _Dispatcher:
    """The pieces of work that are under way."""

    def __init__(self, executor: Executor, plan: Plan, make_work: Callable, writer: Writer, bar: AbstractBar):
        self._executor, self._plan, self._make_work, self._writer, self._bar = executor, plan, make_work, writer, bar
        self.pending: dict[Future, tuple[np.ndarray, np.ndarray, int]] = {}
        self._done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._failures, self._successes = 0, 0
        self._workers, self._counted = 1, -np.inf

    def submit(self) -> None:
        """Keep two pieces of work per worker under way: one that runs and one that waits."""
        if time.monotonic() - self._counted > PIECE_SECONDS:
            self._workers, self._counted = max(1, worker_count(self._executor)), time.monotonic()
        while len(self._plan) and len(self.pending) < 2 * self._workers:
            ids, tries = self._plan.take(self._workers)
            work = self._make_work(ids)
            try:
                future = self._executor.submit(run_work, work)
            except Exception as error:
                raise SimulationError(
                    f"the executor takes no more work ({reason_of(error)}). What was simulated is kept: "
                    "start a new executor, or use workers=..., and go on."
                ) from error
            self.pending[future] = ids, work.piece.ids, tries
            future.add_done_callback(self._done.put)

    def collect(self, seconds: float) -> None:
        """Wait for results, and store all that are there in one transaction."""
        try:
            done = [self._done.get(timeout=seconds)]
        except queue.Empty:
            if not worker_count(self._executor):
                warn_user("the cluster has no workers; waiting for one.")
            return
        while not self._done.empty():
            done.append(self._done.get())
        for future in done:
            self._take(future)
        self._writer.write()
        self._writer.check()

    def collect_what_runs(self, seconds: float) -> None:
        """Store what is finished within the next few seconds; cancel what has not begun."""
        end = time.monotonic() + seconds
        for future in list(self.pending):
            if future.cancel():
                del self.pending[future]
        while self.pending and (left := end - time.monotonic()) > 0:
            self.collect(left)

    def _take(self, future: Future) -> None:
        if future not in self.pending:
            return
        ids, simulated, tries = self.pending.pop(future)
        try:
            outcomes: list[Outcome] = future.result()
        except CannotLoad as error:
            lines = str(error).strip().split("\n")
            raise InputError(
                f"expected a simulator that can be loaded by another process; got {lines[-1]}; try importing inside "
                f"the function what it needs, or installing it where the workers are.\n\n{error}"
            ) from None
        except Stopped:
            return
        except (Exception, CancelledError) as error:
            self._lost(ids, tries, error)
            return
        self._successes += 1
        if len(simulated) > len(ids):  # a block, of which some rows were there already
            outcomes = [outcomes[k] for k in np.flatnonzero(np.isin(simulated, ids))]
        self._plan.learn(len(ids), sum(outcome.seconds for outcome in outcomes))
        self._keep(ids, outcomes)

    def _lost(self, ids: np.ndarray, tries: int, error: BaseException) -> None:
        """Do again what an executor lost, or give it up."""
        self._failures += 1
        if not self._successes and self._failures >= FIRST_FAILURES:
            raise SimulationError(
                f"the executor failed {self._failures} times and did nothing else, at last with {reason_of(error)}."
            ) from error
        if tries + 1 < TRIES:
            self._plan.retry(ids, tries)
        else:
            reason = f"crashed: its worker was lost {TRIES} times ({reason_of(error)})"
            self._keep(ids, [Outcome(None, reason, 0.0)] * len(ids))

    def _keep(self, ids: np.ndarray, outcomes: list[Outcome]) -> None:
        self._writer.add(ids, outcomes)
        self._bar.advance(len(ids), note=self._writer.note())
