"""The record that leaves this room: parameters, data, and which rows can be trusted.

Example:
    >>> import numpy as np
    >>> from unle.simulate import Simulations
    >>> sims = Simulations.from_arrays(np.zeros((3, 2)), np.array([[1.0], [np.nan], [2.0]]))
    >>> print(sims.summary())
    3 simulations: 2 valid, 1 invalid (1 not finite).
    >>> sims.valid_x.tolist()
    [[1.0], [2.0]]
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from unle.errors import InputError


@dataclass(frozen=True)
class Simulations:
    """Simulations of a model, one row each.

    Attributes:
        theta: parameters.
        x: data; a row of NaN where nothing of the right length came back.
        valid: whether the row may be trained on.
        reasons: why not, such as "ZeroDivisionError: division by zero" or "not finite: 1 of 3 values, ...";
            the empty string for a valid row.
        seconds: the time each simulation took; zeros when it was not measured.
        first_traceback: the whole story of the first failure by an exception, or None.
    """

    theta: Float[np.ndarray, "n dim"]
    x: Float[np.ndarray, "n dim_x"]
    valid: Bool[np.ndarray, "n"]
    reasons: tuple[str, ...]
    seconds: Float[np.ndarray, "n"]
    first_traceback: str | None = None

    @classmethod
    def from_arrays(cls, theta: Any, x: Any) -> "Simulations":
        """Take simulations that were made elsewhere.

        Args:
            theta: parameters, shape (n, dim); a vector of n numbers is read as n parameters of dimension one.
            x: data, shape (n, dim_x), likewise. Rows with a value that is not finite become invalid.

        Returns:
            The record.

        Raises:
            InputError: the shapes do not fit, or a parameter is not finite.
        """
        theta, x = _matrix(theta, "theta"), _matrix(x, "x")
        if len(theta) != len(x):
            raise InputError(f"expected one row of x for each row of theta; got {len(x)} and {len(theta)}")
        if not np.isfinite(theta).all():
            row = int(np.argmin(np.isfinite(theta).all(axis=1)))
            raise InputError(f"expected finite parameters; got {theta[row]} in row {row}; try leaving such rows out")
        finite = np.isfinite(x).all(axis=1)
        reasons = tuple("" if ok else not_finite(row) for ok, row in zip(finite, x, strict=True))
        return cls(theta, x, finite, reasons, np.zeros(len(theta)))

    @classmethod
    def joined(cls, parts: Sequence["Simulations"]) -> "Simulations":
        """Put several records, such as those of successive rounds, under one another.

        Raises:
            InputError: there are none, or they differ in dimension.
        """
        if not parts or len({(part.theta.shape[1], part.x.shape[1]) for part in parts}) > 1:
            shapes = [(part.theta.shape[1], part.x.shape[1]) for part in parts]
            raise InputError(f"expected records of equal dimensions; got (dim theta, dim x) = {shapes}")
        return cls(
            theta=np.concatenate([part.theta for part in parts]),
            x=np.concatenate([part.x for part in parts]),
            valid=np.concatenate([part.valid for part in parts]),
            reasons=tuple(reason for part in parts for reason in part.reasons),
            seconds=np.concatenate([part.seconds for part in parts]),
            first_traceback=next((part.first_traceback for part in parts if part.first_traceback), None),
        )

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def valid_theta(self) -> Float[np.ndarray, "n_valid dim"]:
        """The parameters of the valid rows."""
        return self.theta[self.valid]

    @property
    def valid_x(self) -> Float[np.ndarray, "n_valid dim_x"]:
        """The data of the valid rows."""
        return self.x[self.valid]

    def summary(self) -> str:
        """Return one sentence: how many, how long, how many invalid and why."""
        invalid = len(self) - int(self.valid.sum())
        took = f" in {self.seconds.sum():.3g} s" if self.seconds.any() else ""
        why = f" ({count_reasons(self.reasons)})" if invalid else ""
        return f"{len(self)} simulations{took}: {len(self) - invalid} valid, {invalid} invalid{why}."


def count_reasons(reasons: Sequence[str]) -> str:
    """Return the reasons by their first words, most frequent first: "7 ValueError, 3 not finite"."""
    counts = Counter(reason.partition(":")[0] for reason in reasons if reason)
    return ", ".join(f"{count} {reason}" for reason, count in counts.most_common())


def not_finite(x: Float[np.ndarray, "dim_x"]) -> str:
    """Return the reason for a data vector that has NaN or infinite entries."""
    bad = np.flatnonzero(~np.isfinite(x))
    return f"not finite: {len(bad)} of {len(x)} values, the first at position {bad[0]}"


def _matrix(values: Any, name: str) -> Float[np.ndarray, "n d"]:
    try:
        matrix = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected `{name}` to be an array of numbers; got {type(values).__name__}") from error
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"expected `{name}` of shape (n, d); got {matrix.shape}; try one row per simulation")
    return matrix
