"""What a method accepts as simulations."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from unle.arrays import as_array, column_names
from unle.errors import InputError
from unle.simulators import Simulations
from unle.space import Prior, ThetaSpace, XSpace
from unle.space.host_device import on_device, on_host

FEWEST = 32  # simulations; fewer cannot be split into training and held-out rows that mean anything


def as_simulations(simulations: Any, prior: Prior) -> Simulations:
    """Return the record, or make one of a pair (theta, x); named columns of theta are put into the prior's order."""
    if isinstance(simulations, Simulations):
        return simulations
    try:
        theta, x = simulations
    except (TypeError, ValueError):
        raise InputError(f"expected simulations, or a pair (theta, x); got {type(simulations).__name__}.") from None
    return Simulations.from_arrays(_in_order(theta, prior), x)


def _in_order(theta: Any, prior: Prior) -> Any:
    """Return theta with its columns in the order of the prior's names, if both have names."""
    names = column_names(theta)
    if not names or names == prior.names or len(names) != prior.dim:
        return theta
    if set(names) == set(prior.names):
        return as_array(theta, "theta")[:, [names.index(name) for name in prior.names]]
    if _has_no_names(prior):
        return theta
    raise InputError(
        f"expected theta with the columns {', '.join(prior.names)}, as the prior; got {', '.join(names)}; "
        "try the same names, or theta.to_numpy()."
    )


def with_column_names(prior: Prior, simulations: Any) -> Prior:
    """Return the prior with the names of theta's columns, if its parameters have none and the columns have."""
    is_pair = isinstance(simulations, list | tuple) and len(simulations) == 2
    names = column_names(simulations[0]) if is_pair else ()
    if len(names) != prior.dim or not _has_no_names(prior):
        return prior
    return Prior(list(prior.distributions), names)


def _has_no_names(prior: Prior) -> bool:
    return prior.names == tuple(f"theta_{i + 1}" for i in range(prior.dim))


def valid_pairs(simulations: Any, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Return valid rows of theta and x, or say what is wrong with them.

    Raises:
        InputError: nothing can be learned from them.
    """
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
