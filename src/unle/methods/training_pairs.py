"""Simulations as a method trains on them: standardised pairs, in memory or as a window on a store.

Simulations that are in memory are all taken.  Those of a store are read into memory if they fit.  If not, a uniform
sample of them is: held-out rows are taken from it, spaces are fitted to it, and a `Stream` renews its training rows
while training goes on.  One pass over the store, before anything else, draws the sample and looks at every row.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from unle.errors import InputError, UnleWarning
from unle.methods.abstract_method import record_validity
from unle.methods.memory_limit import as_bytes, row_bytes
from unle.methods.simulation_inputs import (
    apply_space,
    as_simulations,
    enough,
    in_support,
    spread_and_standardise,
    valid_pairs,
)
from unle.models import DoublyIntractableLikelihood, TractableLikelihood, over_cells, with_validity
from unle.progress import progress
from unle.simulators import Simulations
from unle.space import Blocks, Prior, ThetaSpace, XSpace, fit_theta_space, fit_x_space, repeated_blocks
from unle.space.host_device import on_device
from unle.store import Reservoir, SimulationStore, StoredRows
from unle.train import Rows, Splits, Stream, fit_validity, held_out_size, make_splits

FEWEST_ROWS = 1000  # of a window
MOST_HELD_OUT = 0.3  # share of a window that all members together hold out
CELL_SEED = 30_000  # of the position of each value in its cell
LARGEST = float(np.finfo(np.float32).max)


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

    Args:
        key: chooses held-out rows.
        simulations: a record, a pair (theta, x), or an open store.
        prior: which theta must have been drawn from.
        members: of the ensemble.
        memory: what the simulations of a store may take; see `as_bytes`.
        work: see `row_bytes`.
        repetition: whether to look for repeated measurements in x, if all simulations are in memory.
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
    cuts = repeated_blocks(theta, x) if repetition else ()
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
    warnings.warn(
        f"{tally.count:,} simulations do not fit into the memory allowed: training sees them through a window of "
        f"{len(theta):,} rows, which are renewed as it goes on.",
        UnleWarning,
        stacklevel=4,
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
