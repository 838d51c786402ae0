r"""Warm starts: energies and particles of one round in the coordinates of the next, as exactly what they were.

From round to round the standardisation and the linear part of the base change.  What an energy sees, (t, r), changes
by an affine map: t and w are shifted and scaled coordinate by coordinate, and r is affine in both.  With

    (t, r) = M (t', r') + c

the first layer of the network absorbs the map, and the energy stays the same function of theta and x:

    (M v' + c) W + b = v' (M^T W) + (c W + b).

A particle is a point x; it only gets new coordinates.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unle.models import AbstractBase, MlpEnergy
from unle.space import ThetaSpace, XSpace, affine_change
from unle.train.persistent_particles import PairedState


class Frame(eqx.Module):
    """The coordinates in which an ensemble of energies is trained."""

    theta_space: ThetaSpace  # standardises theta
    x_space: XSpace  # standardises x
    bases: AbstractBase  # the members' bases, stacked
    t: Float[Array, "pair dim"]  # standardised parameters of the pairs
    rows: Int[Array, " pair"]  # which simulation each pair is; the same number in every round


class Carried(eqx.Module):
    """Energies and particles at the end of a round, and their coordinates.

    Particles are (positions, log-weights, energies) of every pair, if each has particles of its own.
    """

    frame: Frame
    energies: MlpEnergy
    particles: tuple[Array, Array, Array] | None

    @classmethod
    def of(cls, frame: Frame, energies: MlpEnergy, particles: object) -> "Carried":
        """Take what is worth keeping of the particles."""
        known = pair_particles(particles)
        if known is None:
            return cls(frame, energies, None)
        positions, log_weights, values = (part[:, : len(frame.rows)] for part in known)  # beyond them is padding
        return cls(frame, energies, (positions, log_weights, values))


def pair_particles(particles: object) -> tuple[Array, Array, Array] | None:
    """Return (positions, log-weights, energies) of every pair, if each has particles of its own."""
    if not isinstance(particles, PairedState):
        return None
    return particles.positions, particles.log_weights, particles.energies


class WarmStart(eqx.Module):
    """What a training starts from, in its coordinates.

    Particles are (positions, log-weights, energies) of every pair, NaN where a pair is new; or None.
    """

    energies: MlpEnergy
    particles: tuple[Array, Array, Array] | None


def warm_start(carried: Carried, frame: Frame, *, pairs: int) -> WarmStart:
    """Express energies and particles in new coordinates, for data of so many pairs, padding included."""
    energies = _energies(carried.energies, carried.frame, frame)
    if carried.particles is None:
        return WarmStart(energies, None)
    known = {int(row): index for index, row in enumerate(np.asarray(carried.frame.rows))}
    indices = np.full(pairs, -1)
    indices[: len(frame.rows)] = [known.get(int(row), -1) for row in np.asarray(frame.rows)]
    t = jnp.pad(frame.t, [(0, pairs - len(frame.t)), (0, 0)])
    return WarmStart(energies, _particles(carried.particles, carried.frame, frame, t, jnp.asarray(indices)))


@eqx.filter_jit
def _energies(energies: MlpEnergy, old: Frame, new: Frame) -> MlpEnergy:
    a_t, b_t = affine_change(old.theta_space.standardiser, new.theta_space.standardiser)
    a_w, b_w = data_change(old.x_space, new.x_space)
    dim, length = a_t.shape[0], a_t.shape[0] + a_w.shape[0]

    def one(energy: MlpEnergy, old_base: AbstractBase, new_base: AbstractBase) -> MlpEnergy:
        def before(seen):
            """Return the old (t, r) at the new."""
            t, r = seen[:dim], seen[dim:]
            slope = jax.jacfwd(lambda w: new_base.features(t, w))(jnp.zeros_like(r))
            w = jnp.linalg.solve(slope, r - new_base.features(t, jnp.zeros_like(r)))
            old_t = a_t + b_t * t
            return jnp.concatenate([old_t, old_base.features(old_t, a_w + b_w * w)])

        origin = jnp.zeros(length)
        matrix, shift = jax.jacfwd(before)(origin), before(origin)
        weights, bias = energy.net.weights[0], energy.net.biases[0]
        replaced = (matrix.T @ weights, shift @ weights + bias)
        return eqx.tree_at(lambda e: (e.net.weights[0], e.net.biases[0]), energy, replaced)

    return eqx.filter_vmap(one)(energies, old.bases, new.bases)


@eqx.filter_jit
def _particles(
    known: tuple[Array, Array, Array], old: Frame, frame: Frame, t, indices: Int[Array, " pair"]
) -> tuple[Array, Array, Array]:
    positions, log_weights, energies = known
    a_w, b_w = data_change(old.x_space, frame.x_space)
    new = indices < 0

    def one(old_base: AbstractBase, new_base: AbstractBase, positions):
        def moved(old_t, t, v):
            return new_base.whiten(t, (old_base.unwhiten(old_t, v) - a_w) / b_w)

        return jax.vmap(lambda old_t, t, v: jax.vmap(lambda v: moved(old_t, t, v))(v))(old.t[indices], t, positions)

    moved = eqx.filter_vmap(one)(old.bases, frame.bases, positions[:, indices])
    return (
        jnp.where(new[None, :, None, None], jnp.nan, moved),
        log_weights[:, indices],
        energies[:, indices],
    )


def data_change(old: XSpace, new: XSpace) -> tuple[Float[Array, " data"], Float[Array, " data"]]:
    """Return a and b of w_old = a + b w_new; redundant coordinates are not modelled."""
    a, b = affine_change(old.standardiser, new.standardiser)
    return a[: old.dim], b[: old.dim]
