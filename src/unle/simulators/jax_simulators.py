"""Simulators written in JAX: vectorised, compiled, and run on the accelerator of this process.

Example:
    >>> import jax.random as jr, numpy as np, unle
    >>> from unle.simulators import simulate_at
    >>> simulator = unle.jax_simulator(lambda key, theta: theta + jr.normal(key, (2,)))
    >>> simulate_at(simulator, np.zeros((3, 2)), seed=0).x.shape
    (3, 2)
"""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unle.errors import InputError
from unle.simulators.piece import Outcome, Piece, WrongResult, flatten_rows, outcomes_of_rows, reason_of

WORKER = "device"


@dataclass(frozen=True)
class JaxSimulator:
    """A simulator written in JAX; made by `jax_simulator`."""

    function: Callable  # takes a key and one parameter vector
    sizes: tuple[int, ...]  # rows of one compiled call, from small to large
    # says why a row with NaN is not valid; None for a plain sentence
    explain: Callable[[np.ndarray], str] | None = None
    _compiled: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def batch(self) -> int:
        """Rows of the largest compiled call."""
        return self.sizes[-1]

    def __call__(self, key: Any, theta: Any) -> Any:
        """Call the function once."""
        return self.function(key, theta)

    def run(self, piece: Piece) -> list[Outcome]:
        """Simulate one block of at most `batch` rows.

        The key of a simulation is fold_in(fold_in(key(seed), round), id). A block is filled up with copies of
        its last row to the next of the sizes, so that there is one compilation for each.
        """
        n = len(piece.ids)
        size = next(size for size in self.sizes if size >= n)
        padded = piece.take(np.minimum(np.arange(size), n - 1))
        start = time.perf_counter()
        try:
            result = self._program()(piece.seed, piece.round, padded.ids, padded.theta)
            x, names = flatten_rows(result, size)
        except WrongResult as error:
            return [Outcome(None, str(error), 0.0, worker=WORKER)] * n
        except Exception as error:  # tracing and compiling run the user's code
            return [Outcome(None, reason_of(error), 0.0, traceback.format_exc(), worker=WORKER)] * n
        return outcomes_of_rows(self, x[:n], names, time.perf_counter() - start, WORKER)

    def _program(self) -> Callable:
        if "program" not in self._compiled:
            import jax
            import jax.numpy as jnp
            import jax.random as jr

            def one(seed, round, id, theta):
                key = jr.fold_in(jr.fold_in(jr.key(seed), round), id)
                result = self.function(key, theta)
                return result if hasattr(result, "items") or hasattr(result, "_asdict") else jnp.ravel(result)

            program = jax.jit(jax.vmap(one, in_axes=(None, None, 0, 0)))
            self._compiled["program"] = lambda seed, round, ids, theta: jax.device_get(
                program(
                    np.uint32(seed % 2**32),
                    np.uint32(round),
                    ids.astype(np.uint32),
                    theta.astype(jnp.result_type(float)),
                )
            )
        return self._compiled["program"]


def jax_simulator(
    function: Callable,
    *,
    batch: int | tuple[int, ...] = 1024,
    explain: Callable[[np.ndarray], str] | None = None,
) -> JaxSimulator:
    """Declare a simulator written in JAX.

    It is vectorised over many parameter vectors with `jax.vmap`, compiled, and run in this process, on the
    accelerator if there is one; worker processes are not used.

    Args:
        function: takes a typed key, from which all its randomness must come, and one parameter vector, shape (dim,);
            returns one data vector, a number, or a dictionary of arrays.
        batch: rows of one compiled call; limited by the memory of the device. Simulations do not depend on it, up to
            the rounding of vectorised arithmetic. With several sizes, a small piece of work takes a smaller one.
        explain: takes a data vector with NaN and says why it is not valid, if that is part of the model.

    Returns:
        A simulator for `simulate`.

    Example:
        >>> import jax.random as jr, unle
        >>> simulator = unle.jax_simulator(lambda key, theta: theta + 0.1 * jr.normal(key, theta.shape))
        >>> unle.simulate(simulator, unle.Prior.uniform(low=[-1.0], high=[1.0]), 100, seed=0).x.shape
        (100, 1)
    """
    if not callable(function):
        raise InputError(f"expected a function of a key and theta; got a {type(function).__name__}")
    sizes = tuple(sorted(int(size) for size in (batch if isinstance(batch, tuple) else (batch,))))
    if not sizes or sizes[0] < 1:
        raise InputError(f"expected a batch of at least one row; got {batch}")
    return JaxSimulator(function, sizes, explain)
