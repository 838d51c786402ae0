"""Simulators that take many parameter vectors at once.

Example:
    >>> import numpy as np
    >>> from unle.simulators import batched
    >>> @batched
    ... def simulator(theta, rng):  # theta: (n, 2)
    ...     return theta + 0.1 * rng.normal(size=theta.shape)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# Rows per call. Fixed, and not to be tuned per machine: the seed of a call is that of its first row.
CHUNK = 256


@dataclass(frozen=True)
class Batched:
    """Mark of a vectorised simulator; made by `batched`.

    Attributes:
        function: takes theta (n, dim) and a numpy generator, returns x (n, dim_x).
    """

    function: Callable

    @property
    def explain(self) -> Callable | None:
        """The function's own words for data with NaN, if it has them."""
        return getattr(self.function, "explain", None)

    def __call__(self, theta: Any, rng: np.random.Generator) -> Any:
        """Call the function."""
        return self.function(theta, rng)


def batched(function: Callable) -> Batched:
    """Declare a simulator that works on many parameter vectors at once.

    It is called with up to 256 rows at a time. When a call fails, its rows are tried one by one, so that only
    those that cannot be simulated become invalid.

    Args:
        function: takes theta, shape (n, dim), and a numpy generator; returns x, shape (n, dim_x).

    Returns:
        A simulator for `simulate`.
    """
    return Batched(function)
