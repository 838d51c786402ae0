"""Ordinary differential equations of two populations, for many parameters at once, in JAX.

Rows are solved in blocks of two sizes, so that there are two compilations whatever their number.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

SMALL_BLOCK, BLOCK = 160, 1024  # rows per compiled call

Slope = Callable[[Float[Array, "2 n"]], Float[Array, "2 n"]]


def integrate(
    slope: Slope, start: tuple[float, float], like: Float[Array, " n"], *, step: float, steps: int, times: int
) -> Float[Array, "times 2 n"]:
    """Return the states at equally spaced times, the start included, by Runge-Kutta steps of fourth order.

    Args:
        slope: of the state.
        start: the state of every row.
        like: one number per row.
        step: size of a step.
        steps: between two times.
        times: how many, with the start.
    """

    def one_step(_: Int[Array, ""], state: Float[Array, "2 n"]) -> Float[Array, "2 n"]:
        k_1 = slope(state)
        k_2 = slope(state + 0.5 * step * k_1)
        k_3 = slope(state + 0.5 * step * k_2)
        k_4 = slope(state + step * k_3)
        return state + step / 6 * (k_1 + 2 * (k_2 + k_3) + k_4)

    def to_next_time(state: Float[Array, "2 n"], _: None) -> tuple[Array, Array]:
        state = jax.lax.fori_loop(0, steps, one_step, state)
        return state, state

    first = jnp.broadcast_to(jnp.array(start, like.dtype)[:, None], (2, len(like)))
    _, later = jax.lax.scan(to_next_time, first, None, length=times - 1)
    return jnp.concatenate([first[None], later])


def in_blocks(solve: Callable, theta: Float[np.ndarray, "n dim"], *, filler: float) -> Float[np.ndarray, "n dim_y"]:
    """Call a compiled function of rows block by block; rows that are not finite become NaN.

    Args:
        solve: of a block of rows.
        theta: the rows.
        filler: entries of the rows that fill the last block.
    """
    n, dim = theta.shape
    block = SMALL_BLOCK if n <= SMALL_BLOCK else BLOCK
    padded = np.full((-(-n // block) * block, dim), filler, dtype=np.float32)
    padded[:n] = theta
    logs = np.concatenate([np.asarray(solve(rows)) for rows in padded.reshape(-1, block, dim)])[:n].astype(np.float64)
    logs[~np.isfinite(logs).all(axis=1)] = np.nan
    return logs
