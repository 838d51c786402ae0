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
from jaxtyping import Float

from unle.errors import InputError
from unle.simulators.chunk import Chunk
from unle.simulators.outputs import WrongResult, flatten_rows
from unle.simulators.rows import explainer, reason_of
from unle.store.ragged import Ragged


@dataclass(frozen=True)
class OnDevice:
    """Mark of a JAX simulator; made by `jax_simulator`.

    Attributes:
        function: takes a key and one parameter vector.
        sizes: rows of one compiled call, from small to large.
        explain: says why a row with NaN is not valid; None for plain words.
    """

    function: Callable
    sizes: tuple[int, ...]
    explain: Callable[[np.ndarray], str] | None = None
    _compiled: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def batch(self) -> int:
        """Rows of the largest compiled call."""
        return self.sizes[-1]

    def __call__(self, key: Any, theta: Any) -> Any:
        """Call the function once."""
        return self.function(key, theta)

    def run(self, theta: Float[np.ndarray, "n dim"], ids: np.ndarray, *, seed: int, round: int) -> Chunk:
        """Simulate one block of at most `batch` rows.

        The key of a simulation is fold_in(fold_in(key(seed), round), id). A block is filled up with copies of
        its last row to the next of the sizes, so that there is one compilation for each.
        """
        size = next(size for size in self.sizes if size >= len(ids))
        surplus = size - len(ids)
        padded_theta = np.concatenate([theta, np.repeat(theta[-1:], surplus, axis=0)])
        padded_ids = np.concatenate([ids, np.repeat(ids[-1:], surplus)])
        start = time.perf_counter()
        try:
            result = self._program()(seed, round, padded_ids, padded_theta)
            x, names = flatten_rows(result, size)
        except WrongResult as error:
            return _failed(len(ids), str(error), None)
        except Exception as error:  # tracing and compiling run the user's code
            return _failed(len(ids), reason_of(error), traceback.format_exc())
        seconds = (time.perf_counter() - start) / len(ids)
        x = x[: len(ids)]
        explain = explainer(self)
        reasons = ["" if good.all() else explain(row) for row, good in zip(x, np.isfinite(x), strict=True)]
        return Chunk(Ragged.of(x), reasons, np.full(len(ids), seconds), names=names, worker="device")

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
) -> OnDevice:
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
    """
    if not callable(function):
        raise InputError(f"expected a function of a key and theta; got a {type(function).__name__}")
    sizes = tuple(sorted(int(size) for size in (batch if isinstance(batch, tuple) else (batch,))))
    if not sizes or sizes[0] < 1:
        raise InputError(f"expected a batch of at least one row; got {batch}")
    return OnDevice(function, sizes, explain)


def _failed(n: int, reason: str, trace: str | None) -> Chunk:
    return Chunk(Ragged.of([None] * n), [reason] * n, np.zeros(n), trace, worker="device")
