r"""Discrete data: a model of the probabilities of their values, where it is better than a density.

Counts and other discrete data are spread over cells, and models are densities of what was spread.  Counts of a few
values ask much of a density: within a cell it must be flat, and where the data end (no animal less than none, no more
than all of eight) it must fall off at once.  A base that gives probabilities of cells has neither difficulty
(`unle.models.autoregressive`), and no integral over a cell to be estimated.

It is compared with what was selected before by the probability of the cells that held-out rows lie in.  The
model was not chosen by these rows, neither its design nor the end of its training.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import on_device
from unle.methods.energy_selection import Choice, Selected
from unle.models import EnergyModel, NoEnergy, Repeated, places_in_cells
from unle.space import Blocks, XSpace
from unle.train import LONGEST_SERIES, Rows, certify, fit_to_cells, is_better, single_measurements

FEWEST_ROWS = 300
NARROW = 0.1  # standard deviations: where all cells are narrower, a density changes little within one


def with_probabilities(
    key: PRNGKeyArray, selected: Selected, rows: Rows, x_space: XSpace, *, capacity: int | None = None
) -> Selected:
    """Return a model of the probabilities of discrete data if it is better than what was selected, or else that.

    For `capacity` see `AbstractBaseTraining.fit`.
    """
    if not is_coarse(rows, x_space):
        return selected
    rows = rows.padded(capacity)
    cells = _cells(x_space, rows.w)
    base = selected.choice.models.base
    blocks = base.blocks if isinstance(base, Repeated) else (tuple(range(x_space.dim)),)
    each, parts = single_measurements(rows, blocks), _single_cells(rows, cells, blocks)
    standardiser = jax.tree.map(lambda leaf: leaf[np.array(blocks[0])], x_space.standardiser)
    one, _ = fit_to_cells(key, each, parts, standardiser)
    models = EnergyModel(Repeated(one, blocks) if isinstance(base, Repeated) else one, NoEnergy())
    log_z = on_device(np.zeros(rows.members))
    places = on_device(places_in_cells(x_space.dim_x)[:, np.array(x_space.modelled)])
    held_out = rows.splits.held_out[:, : rows.n_held_out][:, rows.deciding]
    before, now = (
        np.asarray(_scores(models, log_z, rows.t, cells, held_out, places), float)
        for models, log_z in ((selected.choice.models, selected.choice.log_z), (models, log_z))
    )
    if not is_better(now, before):
        return selected
    why = (
        "the probabilities of discrete values describe held-out data better than a density does, by "
        f"{np.mean(now - before):.2f} nats per row"
    )
    certificate = certify(models, log_z, rows.t, cells, np.asarray(held_out))
    return Selected(Choice(models, log_z, 0.0, certificate=certificate), selected.fit, "none", why)


def is_coarse(rows: Rows, x_space: XSpace) -> bool:
    """Return whether data have cells that are wide, and are neither too long nor too few to learn from."""
    n, k = rows.w.shape
    if k > LONGEST_SERIES or n < FEWEST_ROWS or rows.stream is not None or not x_space.cells.which:
        return False
    cells = _cells(x_space, rows.w)
    return float(jnp.mean(cells[:, 2] - cells[:, 0], axis=0).max()) > NARROW


@eqx.filter_jit
def _cells(x_space: XSpace, w: Float[Array, "n data"]) -> Float[Array, "n 5 data"]:
    """Return the cells that spread data lie in."""
    return jax.lax.map(lambda w: x_space.cell(x_space.inverse(w)), w, batch_size=1000)


def _single_cells(rows: Rows, cells: Float[Array, "n 5 data"], blocks: Blocks) -> Float[Array, "measurement 5 part"]:
    """Return the cells of the same single measurements as `single_measurements` returns."""
    parts = (single_measurements(rows._replace(w=cells[:, i]), blocks).w for i in range(cells.shape[1]))
    return jnp.stack(list(parts), axis=1)


@eqx.filter_jit
def _scores(models: EnergyModel, log_z, t, cells, held_out, places) -> Float[Array, "member row"]:
    """Return the log of the mean density over the cells of held-out rows."""

    def of_member(model: EnergyModel, log_z, rows):
        def of_row(row):
            if model.gives_cells:
                return model.log_cell_density(t[row], cells[row]) - log_z
            lower, _, upper, *_ = cells[row]
            values = jax.vmap(lambda w: model.log_density(t[row], w))(lower + places * (upper - lower))
            return logsumexp(values) - jnp.log(len(places)) - log_z

        return jax.lax.map(of_row, rows, batch_size=200)

    return eqx.filter_vmap(of_member)(models, log_z, held_out)
