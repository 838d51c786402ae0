r"""Global moves: offer each chain a fresh draw of the reference density.

Where a target is a reference density times a tilt, pi(x) \propto rho(x) exp(s(x)), and rho can be drawn from, a draw
y of rho accepted with probability min(1, exp(s(y) - s(x))) leaves pi invariant.  Such moves are rarely accepted far
from rho, but each one that is may cross to another mode, which local kernels never do.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray


def refresh(
    key: PRNGKeyArray,
    positions: Float[Array, "chain dim"],
    proposals: Float[Array, "chain dim"],
    log_tilt: Callable[[Float[Array, " dim"]], Float[Array, ""]],
) -> tuple[Float[Array, "chain dim"], Float[Array, ""]]:
    """Offer every chain one independent draw of the reference density.

    Args:
        key: randomness of the acceptances.
        positions: where the chains are.
        proposals: fresh draws of the reference density, one per chain.
        log_tilt: s, the log of target over reference; one point.

    Returns:
        The new positions, and the share of proposals accepted.
    """
    old, new = jax.vmap(log_tilt)(positions), jax.vmap(log_tilt)(proposals)
    old = jnp.where(jnp.isfinite(old), old, -jnp.inf)  # a chain lost outside the support takes any way back
    accepted = jnp.isfinite(new) & (jnp.log(jr.uniform(key, new.shape)) < new - old)
    return jnp.where(accepted[:, None], proposals, positions), jnp.mean(accepted)
