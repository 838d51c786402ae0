"""Simulations as a method takes them, and as it trains on them: standardised, in memory or as a window on a store.

Simulations that are in memory are all taken.  Those of a store are read into memory if they fit.  If not, a uniform
sample of them is: held-out rows are taken from it, spaces are fitted to it, and a `Stream` renews its training rows
while training goes on.  One pass over the store, before anything else, draws the sample and looks at every row.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.arrays import column_names
from unle.compiling import on_device, on_host
from unle.errors import InputError, warn_user
from unle.models import DoublyIntractableLikelihood, TractableLikelihood, over_cells, with_validity
from unle.progress import progress
from unle.simulators import Simulations
from unle.space import Blocks, Prior, ThetaSpace, XSpace, fit_theta_space, fit_x_space, repeated_blocks
from unle.store import Reservoir, SimulationStore, StoredRows
from unle.train import Rows, Splits, Stream, ValidityFit, fit_validity, held_out_size, make_splits

FEWEST = 32  # simulations; fewer cannot be split into training and held-out rows that mean anything
FEWEST_ROWS = 1000  # of a window
MOST_HELD_OUT = 0.3  # share of a window that all members together hold out
CELL_SEED = 30_000  # of the position of each value in its cell
LARGEST = float(np.finfo(np.float32).max)
MEMORY_SHARE = 0.5  # of the machine's memory that simulations may take if nothing is said
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
# Measured: bytes that exist at a time, per row, in each stage of a fit.
COPIES = 16  # of a row in double precision while spaces are fitted
COPIES_OF_MEANS = 6  # while regressions are
PLACES = 28  # bytes of a row for its place in the split of a member, and in the order of a chunk
BESIDES = 100  # bytes of a row for its number, lot and reason
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def as_simulations(simulations: Any, prior: Prior) -> Simulations:
    """Return the record, or make one of a pair (theta, x); named columns of theta are put into the prior's order."""
    if isinstance(simulations, Simulations):
        return simulations
    if isinstance(simulations, Mapping) and {"theta", "x"} <= set(simulations):  # what np.load returns, too
        simulations = simulations["theta"], simulations["x"]
    is_pair = not isinstance(simulations, str | Mapping) and hasattr(simulations, "__len__") and len(simulations) == 2
    if not is_pair:
        hint = "unle.Simulations.load(path)" if isinstance(simulations, str | Path) else "fit((theta, x))"
        raise InputError(f"expected simulations, or a pair (theta, x); got a {type(simulations).__name__}; try {hint}.")
    theta, x = simulations
    record = Simulations.from_arrays(theta, x)
    if record.theta.shape[1] != prior.dim:
        return record  # its shape is refused where it is used
    return replace(record, theta=record.theta[:, prior.places(column_names(theta))])


def with_column_names(prior: Prior, simulations: Any) -> Prior:
    """Return the prior with the names of theta's columns, if its parameters have none and the columns have."""
    is_pair = isinstance(simulations, list | tuple) and len(simulations) == 2
    names = column_names(simulations[0]) if is_pair else ()
    if len(names) != prior.dim or not prior.has_made_up_names:
        return prior
    return Prior(list(prior.distributions), names)


def x_names_of(simulations: Any) -> tuple[str, ...]:
    """Return the names of the entries of x, or () if they have none."""
    if isinstance(simulations, Simulations):
        return simulations.x_names
    if isinstance(simulations, SimulationStore):
        return tuple(simulations.fact("x_names") or ())
    if isinstance(simulations, Mapping):
        simulations = simulations["theta"], simulations["x"]
    return column_names(simulations[1])


def valid_pairs(simulations: Any, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Return valid rows of theta and x, or say what is wrong with them."""
    simulations = as_simulations(simulations, prior)
    theta, x = simulations.valid_theta, simulations.valid_x
    if simulations.theta.shape[1] != prior.dim:
        raise InputError(f"expected theta with {prior.dim} columns, as the prior; got {simulations.theta.shape[1]}.")
    enough(len(theta), simulations.summary)
    in_support(prior, theta, np.ones(len(theta), dtype=bool), np.arange(len(theta)))
    return theta, x


def enough(valid: int, summary: Callable[[], str]) -> None:
    """Refuse to learn from next to nothing; `summary` makes a sentence about all simulations."""
    if not valid:
        raise InputError(f"no simulation is valid, so there is nothing to learn from: {summary()}")
    if valid < FEWEST:
        raise InputError(
            f"expected at least {FEWEST} valid simulations; got {valid}; try a larger budget (1,000 is usual)."
        )


def in_support(prior: Prior, theta: np.ndarray, valid: np.ndarray, numbers: np.ndarray) -> None:
    """Refuse valid simulations at parameters that the prior cannot have drawn; numbers name the rows in the message."""
    with on_host():
        outside = valid & ~np.asarray(_contains(prior, on_device(theta)))
    if outside.any():
        row = int(np.argmax(outside))
        raise InputError(
            f"expected theta drawn from the prior; got {int(outside.sum())} rows outside its support, the first "
            f"{theta[row]} in row {numbers[row]}; try the prior that these simulations came from."
        )


@eqx.filter_jit
def _contains(prior: Prior, theta: Float[Array, "n dim"]):
    return jax.vmap(prior.contains)(theta)


def apply_space(space: ThetaSpace | XSpace, rows: Any) -> Float[Array, "n standard"]:
    """Standardise many rows, rounded before as those of an observation will be."""
    return on_device(space.forward_table(np.asarray(rows, np.float32).astype(float)))


def spread_and_standardise(space: XSpace, x: Any, u: Float[np.ndarray, "n dim_x"]) -> Float[Array, "n data"]:
    """Standardise data to be trained on: at the places u, uniform in (0, 1), of their cells."""
    return on_device(space.forward_table(np.asarray(x, np.float32).astype(float), u))


def as_bytes(memory: int | float | str | None) -> int:
    """Return a number of bytes, given as such or as "500MB"; half of the memory of this machine or container for None.

    Raises:
        InputError: it is neither.

    Example:
        >>> from unle.methods.training_pairs import as_bytes
        >>> as_bytes("2GB"), as_bytes("1.5 MB"), as_bytes(4096)
        (2000000000, 1500000, 4096)
    """
    if memory is None:
        return int(MEMORY_SHARE * machine_memory())
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)\s*", str(memory))
    if isinstance(memory, bool) or found is None or found[2].upper() not in UNITS or float(found[1]) <= 0:
        raise InputError(f"expected `memory` to be a number of bytes, or such as 500MB or 2GB; got {memory!r}.")
    return int(float(found[1]) * UNITS[found[2].upper()])


def machine_memory() -> int:
    """Return the bytes of memory that this process could have: those of the machine, or of its container."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in LIMITS:
        try:
            found.append(int(Path(file).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no container, or no limit
            continue
    return min(found)


def row_bytes(dim: int, width: int, *, members: int, work: int = 0) -> int:
    """Return how many bytes a simulation takes in memory while a model is fitted to it, at most.

    Every member keeps features of the data, up to twice as many as there are data; for `work` see
    `AbstractBaseTraining.work_per_row`.
    """
    numbers = dim + width
    fitting_spaces, fitting_means = 8 * COPIES * numbers, 8 * (COPIES_OF_MEANS * numbers + work)
    training = 12 * numbers + members * (16 * width + PLACES)
    return max(fitting_spaces, fitting_means, training) + 8 * dim + BESIDES


class Pairs(NamedTuple):
    """Standardised pairs."""

    theta_space: ThetaSpace  # standardises theta
    x_space: XSpace  # standardises x
    rows: Rows  # valid simulations, standardised: all of them, or, if they are streamed, those of the first window
    theta: Float[np.ndarray, "all dim"]  # raw parameters of all simulations, or of a sample of all
    x: Float[np.ndarray, "all dim_x"]  # their raw data
    valid: np.ndarray  # which of them are valid
    cuts: tuple[Blocks, ...] = ()  # ways to cut w into measurements that look alike; see `unle.space.repeated_blocks`

    def given_valid(
        self,
        key: PRNGKeyArray,
        likelihood: TractableLikelihood | DoublyIntractableLikelihood,
        metrics: Callable[..., None],
    ) -> TractableLikelihood | DoublyIntractableLikelihood:
        """Integrate over the cells of discrete data, and multiply by P(valid | theta), learned from all simulations."""
        likelihood = over_cells(likelihood)
        if self.valid.all():
            return likelihood
        fit = fit_validity(key, self.theta, self.valid, x=self.x)
        record_validity(metrics, fit)
        return with_validity(likelihood, fit.validity)


def standardised_pairs(
    key: PRNGKeyArray,
    simulations: Any,
    prior: Prior,
    *,
    members: int,
    memory: int | float | str | None = None,
    work: int = 0,
    repetition: bool = False,
) -> Pairs:
    """Return standardised pairs, or say what is wrong with the simulations.

    `memory` is what the simulations of a store may take (see `as_bytes`), `work` how many numbers a fitted base needs
    per row (see `row_bytes`).  Repeated measurements in x are looked for if all simulations are in memory.
    """
    if isinstance(simulations, SimulationStore):
        each = row_bytes(simulations.dim(), simulations.width(None) or 0, members=members, work=work)
        most_rows = as_bytes(memory) // each
        if simulations.count() > most_rows:
            if most_rows < FEWEST_ROWS:
                raise InputError(
                    f"expected memory for at least {FEWEST_ROWS} of these simulations, {each:,} bytes each while a "
                    f"model is fitted; got {as_bytes(memory):,} bytes; try memory={FEWEST_ROWS * each}."
                )
            return _window(key, simulations, prior, members=members, most_rows=most_rows)
        simulations = Simulations.from_store(simulations)
    elif memory is not None:
        raise InputError("expected simulations in a store with `memory`; these are in memory already; try without.")
    simulations = as_simulations(simulations, prior)
    valid_pairs(simulations, prior)  # errors name rows as the user ordered them
    rows = order_of_rows(simulations.theta, simulations.x)
    all_theta, all_x = np.asarray(simulations.theta, float)[rows], np.asarray(simulations.x, float)[rows]
    valid = np.asarray(simulations.valid)[rows]
    theta, x = all_theta[valid], all_x[valid]
    cuts = repeated_blocks(theta, x) if repetition and x.shape[1] > 1 else ()
    # Standardised by the finest cut: what looks alike there may be standardised alike for coarser ones too.
    theta_space, x_space = fit_theta_space(theta), fit_x_space(x, cuts[0] if cuts else None)
    if x_space.dim < x_space.dim_x:
        cuts = ()  # blocks that have lost different coordinates are no longer alike
    t = apply_space(theta_space, theta)
    w = spread_and_standardise(x_space, x, np.random.default_rng(CELL_SEED).uniform(size=x.shape))
    rows = Rows(t, w, make_splits(key, len(theta), members=members))
    return Pairs(theta_space, x_space, rows, all_theta, all_x, valid, cuts)


def order_of_rows(theta: Float[np.ndarray, "n dim"], x: Float[np.ndarray, "n dim_x"]) -> Int[np.ndarray, " n"]:
    """Return an order of the rows that looks random, and depends on what they hold, not on the order they came in.

    The same simulations give the same fit, sorted, reversed or shuffled.  Rows are ordered by a hash of theta, so that
    the units of x do not matter; x decides among rows with the same theta.

    Example:
        >>> import numpy as np
        >>> from unle.methods.training_pairs import order_of_rows
        >>> theta = np.arange(5.0)[:, None]
        >>> theta[order_of_rows(theta, theta)].tolist() == theta[::-1][order_of_rows(theta[::-1], theta)].tolist()
        True
    """
    return np.lexsort((_hashed(x), _hashed(theta)))


def _hashed(rows: np.ndarray) -> np.ndarray:
    """Return one 64-bit number for every row: a product of its bits with random odd numbers, mixed."""
    bits = (np.ascontiguousarray(rows, np.float64) + 0.0).view(np.uint64)  # adding zero turns -0 into 0
    factors = np.random.default_rng(0).integers(0, 2**63, rows.shape[1], dtype=np.uint64) * 2 + 1
    mixed = bits ^ (bits >> np.uint64(32))
    total = (mixed * factors).sum(axis=1, dtype=np.uint64)
    return (total ^ (total >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


def _window(key: PRNGKeyArray, store: SimulationStore, prior: Prior, *, members: int, most_rows: int) -> Pairs:
    seed = np.asarray(jr.key_data(key)).tolist()
    sample, hashes = _sample(store, prior, most_rows, seed)
    theta, x, valid_hashes = sample.theta[sample.valid], sample.x[sample.valid], hashes[sample.valid]
    tally = store.tally()
    enough(len(theta), lambda: f"{tally.count} simulations: {tally.valid} valid.")
    warn_user(
        f"{tally.count:,} simulations do not fit into the memory allowed: training sees them through a window of "
        f"{len(theta):,} rows, which are renewed as it goes on."
    )
    theta_space, x_space = fit_theta_space(theta), fit_x_space(x)

    within = np.random.default_rng(seed)

    def standardise(theta, x):
        return apply_space(theta_space, theta), spread_and_standardise(x_space, x, within.uniform(size=x.shape))

    # No member trains on a row held out from another: there are enough, and a row that is never replaced would be
    # over-fitted.
    n_held_out = min(held_out_size(len(theta)), int(MOST_HELD_OUT * len(theta) / members))
    first = members * n_held_out
    training_rows = np.arange(first, len(theta))
    rows_of_members = np.tile(training_rows, (members, 1)), np.arange(first).reshape(members, n_held_out)
    splits = Splits(*(on_device(part, np.int32) for part in rows_of_members))
    last = int(valid_hashes[first - 1]), int(hashes[-1])
    stream = Stream(store, standardise, training_rows, held_out=last[0], window=last[1], seed=seed)
    rows = Rows(*standardise(theta, x), splits, stream)
    return Pairs(theta_space, x_space, rows, sample.theta, sample.x, sample.valid)


def _sample(store: SimulationStore, prior: Prior, size: int, seed: list[int]) -> tuple[StoredRows, np.ndarray]:
    """Look at every row once, and return a uniform sample of them with their hashes, in the order of these."""
    if store.dim() != prior.dim:
        raise InputError(f"expected theta with {prior.dim} columns, as the prior; got {store.dim()}.")
    reservoir, width = Reservoir(size, seed), store.width(None) or 0
    with progress("Reading the simulations", total=store.count()) as bar:
        for span in store.spans():
            rows = store.read_span(span, width)
            in_support(prior, rows.theta, rows.valid, rows.id)
            if not (np.abs(rows.x[rows.valid]) < LARGEST).all():
                raise InputError(
                    f"expected finite data within the range of float32; got others among the simulations {span.first} "
                    f"to {span.last}; mark failed simulations as invalid."
                )
            reservoir.offer(rows)
            bar.advance(len(rows.id))
    return reservoir.sample()


def record_validity(metrics: Callable[..., None], fit: ValidityFit | None) -> None:
    """Write down how well P(valid | theta) is calibrated, if it was learned."""
    if fit is not None:
        metrics(stage="validity", **{name: value for name, value in fit._asdict().items() if name != "validity"})
