"""What one round of `SUNLE.paper` leaves for the next, and how it is expressed in the next round's coordinates."""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from unle.models import LogNormaliser, MlpEnergy
from unle.space import ThetaSpace, XSpace, affine_change
from unle.space.host_device import on_device


class PaperFrame(NamedTuple):
    """The simulations that a round trains on, in its coordinates.

    Attributes:
        theta_space: standardises theta.
        x_space: standardises x.
        rows: which of the valid simulations of all rounds these are.
        t: standardised parameters.
        w: standardised data.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    rows: Int[np.ndarray, " row"]
    t: Float[Array, "row dim"]
    w: Float[Array, "row data"]


class PaperCarried(eqx.Module):
    """What one round leaves for the next.

    Attributes:
        theta_space: standardises theta.
        x_space: standardises x.
        energy: as trained.
        log_normaliser: log Z(theta), if it is learned.
        rows: which of the valid simulations of all rounds have particles.
        particles: of each, standardised.
        chains: theta at the end of the chains that sampled the posterior.
        steps_back: how often trainings so far had to go back to a healthy state.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    energy: MlpEnergy
    log_normaliser: LogNormaliser | None
    rows: Int[Array, " row"]
    particles: Float[Array, "row particle data"]
    chains: Float[Array, "chain dim"]
    steps_back: int


def in_coordinates(carried: PaperCarried, frame: PaperFrame) -> tuple[MlpEnergy, LogNormaliser | None]:
    """Return the energy and log Z(theta) of the round before as the same functions of the new coordinates.

    Both only change by an affine map, which the first layer takes in.
    """
    changes = [
        affine_change(carried.theta_space.standardiser, frame.theta_space.standardiser),
        _data_change(carried, frame),
    ]
    shift, scale = (np.concatenate([np.asarray(change[k], float) for change in changes]) for k in (0, 1))
    net = carried.energy.net
    weights, bias = np.asarray(net.weights[0], float), np.asarray(net.biases[0], float)
    first = on_device(scale[:, None] * weights), on_device(bias + shift @ weights)
    energy = eqx.tree_at(lambda e: (e.net.weights[0], e.net.biases[0]), carried.energy, first)
    b = carried.log_normaliser
    return energy, None if b is None else b.in_coordinates(*changes[0])


def known_particles(carried: PaperCarried, frame: PaperFrame, length: int) -> Float[Array, "pair particle data"]:
    """Return particles of the round before in the new coordinates; NaN where a pair has none."""
    shift, scale = (np.asarray(part, float) for part in _data_change(carried, frame))
    known = (np.asarray(carried.particles, float) - shift) / scale
    place = {int(row): k for k, row in enumerate(np.asarray(carried.rows))}
    moved = np.full((length, *known.shape[1:]), np.nan)
    for k, row in enumerate(frame.rows):
        if int(row) in place:
            moved[k] = known[place[int(row)]]
    return on_device(moved)


def _data_change(carried: PaperCarried, frame: PaperFrame) -> tuple[Array, Array]:
    a, b = affine_change(carried.x_space.standardiser, frame.x_space.standardiser)
    return a[: carried.x_space.dim], b[: carried.x_space.dim]  # redundant coordinates are not modelled
