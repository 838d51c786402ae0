"""The driver: keeps an executor busy, takes what comes back, and does again what was lost on the way.

Two kinds of failure meet here, and are never mixed. A simulation that fails is a row with a reason, and comes back as
any other. An executor that fails (a node vanished, a pool broke, a piece of work was cancelled) raises; its simulations
are done again, one by one, a few times each.
"""

import queue
import time
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

import numpy as np

from unle.errors import InputError, SimulationError, UnleWarning
from unle.progress import AbstractBar
from unle.simulators.chunk import Chunk, Row
from unle.simulators.engine import Engine
from unle.simulators.plan import SECONDS, Plan
from unle.simulators.rows import reason_of
from unle.simulators.sandbox import CannotLoad, Stopped
from unle.simulators.work import Work
from unle.simulators.writer import Book

TRIES = 5  # of a simulation whose worker is lost every time
FAILURES = 8  # of the executor, before it has done anything: then it will not recover
GRACE = 3 * SECONDS  # after Ctrl-C, for pieces of work that are under way
SILENCE = 10.0  # seconds without a result after which somebody should be told why


def dispatch(engine: Engine, plan: Plan, make_work: Callable[[np.ndarray], Work], book: Book, bar: AbstractBar) -> None:
    """Do everything in the plan.

    Args:
        engine: where.
        plan: what is to do.
        make_work: turns numbers of simulations into a piece of work; it may add rows, those of a block.
        book: takes the results.
        bar: shows them.

    Raises:
        InputError: the simulator cannot be loaded by a worker, or always fails.
        SimulationError: the executor does not work.
        StoreError: the results cannot be written.
    """
    pilot = _Pilot(engine, plan, make_work, book, bar)
    try:
        while len(plan) or pilot.flying:
            pilot.launch()
            pilot.land()
    except KeyboardInterrupt:
        pilot.land_what_flies(GRACE)
        raise
    finally:
        for future in pilot.flying:
            future.cancel()


class _Pilot:
    """The pieces of work that are under way."""

    def __init__(self, engine: Engine, plan: Plan, make_work: Callable, book: Book, bar: AbstractBar):
        self._engine, self._plan, self._make_work, self._book, self._bar = engine, plan, make_work, book, bar
        self.flying: dict[Future, tuple[np.ndarray, np.ndarray, int]] = {}
        self._landed: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._failures, self._successes = 0, 0
        self._slots, self._asked = 1, -np.inf

    def launch(self) -> None:
        """Keep two pieces of work per slot under way: one that runs and one that waits its turn."""
        if time.monotonic() - self._asked > SECONDS:
            self._slots, self._asked = max(1, self._engine.slots()), time.monotonic()
        while len(self._plan) and len(self.flying) < 2 * self._slots:
            ids, tries = self._plan.take(self._slots)
            work = self._make_work(ids)
            try:
                future = self._engine.submit(work)
            except Exception as error:
                raise SimulationError(
                    f"the executor takes no more work ({reason_of(error)}). What was simulated is kept: "
                    "start a new executor, or use workers=..., and go on."
                ) from error
            self.flying[future] = ids, work.ids, tries
            future.add_done_callback(self._landed.put)

    def land(self, seconds: float = SILENCE) -> None:
        """Wait for results, and store all that are there in one transaction."""
        try:
            landed = [self._landed.get(timeout=seconds)]
        except queue.Empty:
            if not self._engine.slots():
                warnings.warn("the cluster has no workers; waiting for one.", UnleWarning, stacklevel=2)
            return
        while not self._landed.empty():
            landed.append(self._landed.get())
        for future in landed:
            self._take(future)
        self._book.write()
        self._book.check()

    def land_what_flies(self, seconds: float) -> None:
        """Store what is finished within the next few seconds."""
        end = time.monotonic() + seconds
        for future in list(self.flying):
            if future.cancel():
                del self.flying[future]
        while self.flying and (left := end - time.monotonic()) > 0:
            self.land(left)

    def _take(self, future: Future) -> None:
        if future not in self.flying:
            return
        ids, done, tries = self.flying.pop(future)
        try:
            chunk: Chunk = future.result()
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
        if len(done) > len(ids):  # a block, of which some rows were there already
            chunk = chunk.part(np.isin(done, ids))
        self._plan.learn(ids, float(chunk.seconds.sum()))
        self._book.add(ids, chunk)
        self._bar.advance(len(ids), note=self._book.note())

    def _lost(self, ids: np.ndarray, tries: int, error: BaseException) -> None:
        """Do again what an executor lost, or give it up."""
        self._failures += 1
        if not self._successes and self._failures >= FAILURES:
            raise SimulationError(
                f"the executor failed {self._failures} times and did nothing else, at last with {reason_of(error)}."
            ) from error
        if tries + 1 < TRIES:
            self._plan.retry(ids, tries)
            return
        reason = f"crashed: its worker was lost {TRIES} times ({reason_of(error)})"
        self._book.add(ids, Chunk.of([Row(None, reason, 0.0) for _ in ids]))
        self._bar.advance(len(ids), note=self._book.note())
