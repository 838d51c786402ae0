"""The result of simulating: parameters, data, and which rows are valid; and the one writer of it.

The writer of a round takes finished simulations in any order, decides which are valid, and stores them.

Example:
    >>> import numpy as np
    >>> from unle.simulators import Simulations
    >>> sims = Simulations.from_arrays(np.zeros((3, 2)), np.array([[1.0], [np.nan], [2.0]]))
    >>> print(sims.summary())
    3 simulations: 2 valid, 1 invalid (1 not finite).
    >>> sims.valid_x.tolist()
    [[1.0], [2.0]]
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from unle.arrays import as_array, column_names
from unle.errors import InputError
from unle.simulators.piece import Outcome, not_finite, other_names
from unle.store import RunDirectory, SimulationStore, Table, read_table, write_table, wrong_length

FIRST_TRIES = 100  # when all of these fail, the simulator is broken rather than unlucky
FIRST_EXPLAINED_TRIES = 2000  # the same where the simulator explains its failures: they belong to the model


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
        first_traceback: of the first failure by an exception, or None.
        x_names: of the entries of x, where the simulator named them; otherwise empty.

    Example:
        >>> import numpy as np, unle
        >>> sims = unle.Simulations.from_arrays(np.zeros((3, 2)), np.array([[1.0], [np.nan], [2.0]]))
        >>> sims.valid.tolist()
        [True, False, True]
    """

    theta: Float[np.ndarray, "n dim"]
    x: Float[np.ndarray, "n dim_x"]
    valid: Bool[np.ndarray, "n"]
    reasons: tuple[str, ...]
    seconds: Float[np.ndarray, "n"]
    first_traceback: str | None = None
    x_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the summary: a thousand rows say little on a screen."""
        return self.summary()

    @classmethod
    def from_store(cls, store: SimulationStore, round: int | None = None) -> "Simulations":
        """Read the simulations of one round, or of all, from a store."""
        rows = store.read(round)
        number = 0 if round is None else round
        names = tuple(store.fact("x_names") or ())
        return cls(
            rows.theta,
            rows.x,
            rows.valid,
            rows.reasons,
            rows.seconds,
            store.fact(f"traceback of round {number}"),
            names if len(names) == rows.x.shape[1] else (),
        )

    @classmethod
    def load(cls, path: str | Path, *, parameters: Sequence[str] = ()) -> "Simulations":
        """Read simulations from a file (.npz, .csv, .parquet, .sqlite) or from a run directory.

        Args:
            path: the file or the directory.
            parameters: names of the columns that are parameters, where they are not called `theta...`.

        Raises:
            InputError: the file is of another kind, or its columns are not clear.
            StoreError: it is missing or damaged.
        """
        path = Path(path)
        if (path / "run.json").exists():
            with RunDirectory.open(path).simulations(read_only=True) as store:
                return cls.from_store(store)
        if path.is_dir():
            path = path / "simulations.sqlite"
        if path.suffix == ".sqlite":
            with SimulationStore(path, read_only=True) as store:
                return cls.from_store(store)
        table = read_table(path, parameters=parameters)
        record = cls.from_arrays(table.theta, table.x)
        stored = table.reasons or record.reasons
        reasons = tuple(a or b for a, b in zip(stored, record.reasons, strict=True))
        valid = np.array([not reason for reason in reasons])
        seconds = record.seconds if table.seconds is None else table.seconds
        return cls(record.theta, record.x, valid, reasons, seconds, x_names=table.x_names)

    def append_to(self, store: SimulationStore, *, round: int = 0) -> None:
        """Add these simulations, made elsewhere, to a store, as a round of it."""
        x = [None if np.isnan(row).all() else row for row in self.x] if not self.valid.all() else self.x
        store.append(
            ids=range(len(self)), theta=self.theta, x=x, reasons=self.reasons, seconds=self.seconds, round=round
        )
        if self.x_names:
            store.remember("x_names", list(self.x_names))

    def save(self, path: str | Path, *, theta_names: Sequence[str] = ()) -> Path:
        """Write the simulations to a file, for other programs: .npz, .csv or .parquet.

        Args:
            path: the file.
            theta_names: of the parameters.
        """
        write_table(path, Table(self.theta, self.x, tuple(theta_names), self.x_names, self.reasons, self.seconds))
        return Path(path)

    @classmethod
    def from_arrays(cls, theta: Any, x: Any) -> "Simulations":
        """Take simulations that were made elsewhere.

        Args:
            theta: parameters, shape (n, dim); a vector of n numbers is read as n parameters of dimension one. Arrays,
                lists, tables of pandas, objects of xarray and tensors of PyTorch are taken.
            x: data, shape (n, dim_x), likewise. Rows with a value that is not finite become invalid. Names of columns
                are kept.

        Returns:
            The record.

        Raises:
            InputError: the shapes do not fit, or a parameter is not finite.
        """
        x_names = column_names(x)
        _check_rows(theta, x)
        theta, x = _matrix(theta, "theta"), _matrix(x, "x")
        if len(theta) != len(x):
            raise InputError(f"expected one row of x for each row of theta; got {len(x)} and {len(theta)}")
        if not np.isfinite(theta).all():
            row = int(np.argmin(np.isfinite(theta).all(axis=1)))
            raise InputError(f"expected finite parameters; got {theta[row]} in row {row}; try leaving such rows out")
        finite = np.isfinite(x).all(axis=1)
        reasons = [""] * len(x)
        for row in np.flatnonzero(~finite):
            reasons[row] = not_finite(x[row])
        return cls(theta, x, finite, tuple(reasons), np.zeros(len(theta)), x_names=x_names)

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
            x_names=parts[0].x_names,
        )

    def __add__(self, more: "Simulations") -> "Simulations":
        """Return these simulations, and more below them."""
        return Simulations.joined([self, more]) if isinstance(more, Simulations) else NotImplemented

    def __iter__(self) -> Iterator[Float[np.ndarray, "n _"]]:
        """Yield all theta and all x, for `theta, x = simulations`; rows of x that failed are NaN."""
        return iter((self.theta, self.x))

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

    def digest(self) -> str:
        """Return the SHA-256 of parameters, data and reasons."""
        content = (self.theta.tobytes(), self.x.tobytes(), "\n".join(self.reasons).encode())
        return hashlib.sha256(b"".join(content)).hexdigest()

    def summary(self) -> str:
        """Return one sentence: how many, how long, how many invalid and why."""
        valid, seconds = int(self.valid.sum()), float(self.seconds.sum())
        return _sentence(len(self), valid, seconds, count_reasons(self.reasons))


def _check_rows(theta: Any, x: Any) -> None:
    """Refuse two tables of pandas whose rows have the same labels in different orders."""
    ours: Any = getattr(theta, "index", None)
    theirs: Any = getattr(x, "index", None)
    if not (hasattr(ours, "isin") and hasattr(theirs, "isin")) or len(ours) != len(theirs) or ours.equals(theirs):
        return
    if ours.is_unique and ours.isin(theirs).all():
        raise InputError(
            "expected theta and x with their rows in one order; got the same index in two orders; "
            "try x.loc[theta.index], or theta.to_numpy() and x.to_numpy() if rows belong together as they stand."
        )


def summarise(store: SimulationStore, round: int | None = None) -> str:
    """Return the sentence of `Simulations.summary` about a store, without reading it all."""
    tally = store.tally(round)
    return _sentence(tally.count, tally.valid, tally.seconds, count_words(store.reasons(round)))


def _sentence(count: int, valid: int, seconds: float, why: str) -> str:
    took = f" in {seconds:.3g} s" if seconds else ""
    invalid = f"{count - valid} invalid" + (f" ({why})" if why else "")
    return f"{count} simulations{took}: {valid} valid, {invalid}."


def count_reasons(reasons: Sequence[str]) -> str:
    """Return the reasons by their first words, most frequent first: "7 ValueError, 3 not finite"."""
    return count_words(Counter(reason.partition(":")[0] for reason in reasons if reason))


def count_words(counts: Mapping[str, int]) -> str:
    """Return counts in words, most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {reason}" for reason, count in ordered)


def hint_of_failure(reason: str) -> str:
    """Return what a simulator that fails like this was probably written for, as a sentence; nothing if unclear."""
    if "_generator.Generator" in reason:
        return "The arguments of a simulator are theta and rng, in this order. "
    if "too many indices" in reason or "tuple index out of range" in reason or "axis 1 is out of bounds" in reason:
        return "theta is one parameter vector, of shape (dim,); try @unle.batched above a simulator of many. "
    if "only integers, slices" in reason or "'numpy.ndarray' object has no attribute" in reason:
        return "theta is a plain vector, in the order of the prior's names: a, b = theta; rng comes second. "
    return ""


def _matrix(values: Any, name: str) -> Float[np.ndarray, "n d"]:
    matrix = as_array(values, name)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"expected `{name}` of shape (n, d); got {matrix.shape}; try one row per simulation")
    return matrix


class Writer:
    """The simulations of one round on their way into the store.

    `first_tries`: give up when none of so many is valid.  `check_length` gets the length of x as soon as it is known.
    """

    def __init__(
        self,
        theta: Float[np.ndarray, "n dim"],
        round: int,
        store: SimulationStore,
        *,
        first_tries: int,
        check_length: Callable[[int], Any],
    ):
        self._first_tries, self._check_length = first_tries, check_length
        self._theta, self._round, self._store = theta, round, store
        self._width = store.width(round)  # of x, until `settle_x_width` lets the majority decide
        names = store.fact("x_names")
        self._names = tuple(names) if names else () if self.any_valid else None
        self._traceback = store.fact(f"traceback of round {round}")
        self._waiting: list[tuple[int, Outcome]] = []
        self._seen, self._invalid, self._example = 0, Counter(), ""

    @property
    def any_valid(self) -> bool:
        """Whether there is a valid simulation in this round."""
        return self._width is not None

    def add(self, ids: Sequence[int] | np.ndarray, outcomes: Sequence[Outcome]) -> None:
        """Take the outcomes of these simulations; `write` stores them."""
        for i, outcome in zip(ids, outcomes, strict=True):
            reason = outcome.reason if outcome.x is None else self._invalid_reason(outcome.x, outcome)
            if reason:
                self._invalid[reason.partition(":")[0]] += 1
                self._example = self._example or reason
            if outcome.traceback is not None and self._traceback is None:
                self._traceback = outcome.traceback
                self._store.remember(f"traceback of round {self._round}", outcome.traceback)
            self._waiting.append((int(i), outcome._replace(reason=reason)))
        self._seen += len(outcomes)

    def write(self) -> None:
        """Store what was added, in one transaction."""
        if not self._waiting:
            return
        numbers, outcomes = zip(*self._waiting, strict=True)
        self._waiting = []
        ids = np.array(numbers)
        self._store.append(
            ids=ids,
            theta=self._theta[ids],
            x=[outcome.x for outcome in outcomes],
            reasons=[outcome.reason for outcome in outcomes],
            seconds=[outcome.seconds for outcome in outcomes],
            round=self._round,
            worker=[outcome.worker for outcome in outcomes],
        )

    def note(self) -> str:
        """Return a few words for a progress bar."""
        return f"{self._invalid.total()} invalid" if self._invalid else ""

    def check(self) -> None:
        """Give up if the first simulations all failed, and say how; or if x does not have the length of x_o."""
        if self._width is not None:
            self._check_length(self._width)
            return
        if self._seen < self._first_tries:
            return
        self.write()
        trace = f"\n\nThe first traceback:\n{self._traceback}" if self._traceback else ""
        raise InputError(
            f"expected some valid simulations; got none among the first {self._seen} "
            f"({count_words(self._invalid)}). The first one: {self._example}. "
            f"{hint_of_failure(self._example)}Try unle.dry_run(simulator, prior), or the simulator by itself.{trace}"
        )

    def _invalid_reason(self, x: np.ndarray, outcome: Outcome) -> str:
        """Return why data are not valid: the outcome's own reason, other names, or another length than the first."""
        if self._names is None:
            self._names = outcome.names
            self._store.remember("x_names", list(outcome.names))
        if reason := outcome.reason or other_names(outcome.names, self._names):
            return reason
        if self._width is None:
            self._width = len(x)
        return "" if len(x) == self._width else wrong_length(len(x), self._width)
