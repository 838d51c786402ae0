"""A piece of work for an executor: some simulations, and how to do them."""

import threading
from typing import Any, NamedTuple

import numpy as np

from unle.simulators.child import Order
from unle.simulators.chunk import Chunk
from unle.simulators.rows import run_rows
from unle.simulators.sandbox import Sandbox

_HERE = threading.local()  # the sandbox of each thread of an executor's worker


class Work(NamedTuple):
    """Some simulations of one round.

    Attributes:
        blob: the simulator, see `unle.simulators.serialise`.
        theta: parameters.
        ids: the number of each simulation.
        seed: of the run.
        round: the round.
        block: the simulator is a batched one, and these rows are one block.
        timeout: seconds that one simulation may take.
        isolate: simulate in a sandbox; otherwise in the executor's own worker.
    """

    blob: bytes
    theta: np.ndarray
    ids: np.ndarray
    seed: int
    round: int
    block: bool = False
    timeout: float | None = None
    isolate: bool = True


def do(work: Work) -> Chunk:
    """Simulate; called by an executor, wherever it sees fit."""
    if not work.isolate:
        rows = run_rows(_loaded(work.blob), work.theta, work.ids, seed=work.seed, round=work.round)
        return Chunk.of([row for finished in rows for row in finished], f"thread {threading.get_ident()}")
    order = Order(work.theta, work.ids, work.seed, work.round)
    return _sandbox(work.blob).run(order, timeout=work.timeout, block=work.block)


def adopt(sandbox: Sandbox) -> None:
    """Let this thread use the given sandbox."""
    _HERE.sandbox = sandbox


def _sandbox(blob: bytes) -> Sandbox:
    """Return this thread's sandbox for the simulator, in place of one for another simulator."""
    current: Sandbox | None = getattr(_HERE, "sandbox", None)
    if current is None or current.blob != blob:
        if current is not None:
            current.close()
        current = _HERE.sandbox = Sandbox(blob)
    return current


def _loaded(blob: bytes) -> Any:
    """Return the simulator, unpacked once per thread."""
    if getattr(_HERE, "blob", None) != blob:
        import cloudpickle

        _HERE.blob, _HERE.simulator = blob, cloudpickle.loads(blob)
    return _HERE.simulator
