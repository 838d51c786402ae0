"""Compile the sampler while a model is still training.

Compiling takes a processor as long as training does, and does not need the weights, only their shapes: with a second
core the first draws come without a wait.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from unle.models import AbstractLikelihood
from unle.posterior.posterior import Posterior, compile_sampler
from unle.posterior.strategies import AbstractStrategy
from unle.space import Prior

SWITCH = "UNLE_AHEAD"  # set to 0, nothing is compiled before it is asked for


@contextmanager
def sampler_compiled(prior: Prior, likelihood: AbstractLikelihood, strategy: AbstractStrategy) -> Iterator[None]:
    """Compile `sample` of a posterior, for one observation and the default number of draws, during the block.

    Args:
        prior: of the posterior.
        likelihood: one with the structure and the shapes of the posterior's.
        strategy: of the posterior.
    """
    if os.environ.get(SWITCH) == "0" or (os.cpu_count() or 1) < 2:
        yield
        return
    thread = threading.Thread(target=_compile, args=(Posterior(prior, likelihood, strategy),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _compile(posterior: Posterior) -> None:
    try:
        compile_sampler(posterior)
    except Exception:  # noqa: BLE001, S110  (whoever asks for draws meets it again, and is told)
        pass
