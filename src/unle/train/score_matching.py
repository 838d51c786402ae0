r"""Score matching: fit an unnormalised conditional density without ever touching its normaliser.

The score s(w, t) = grad_w log f(w | t) does not contain Z(theta).  Its mean squared distance to the score of the data
is, up to a constant and after integration by parts,

    J = E[ tr grad_w s(w, t) + |s(w, t)|^2 / 2 ]                               (exact: as many derivatives as data)
    J = E[ u . grad_w s(w, t) u + |s(w, t)|^2 / 2 ],   u random signs          (sliced: one derivative per slice)

an average over simulated pairs.  w stands for the coordinates of the model's base, in which the data of every theta
have about unit covariance: in raw coordinates, theta with little noise would have large scores and dominate the loss.
What is matched are slopes: the relative mass of separate modes hardly enters, which is the method's known blind spot.
The integration by parts requires a density that vanishes at the borders of w; data with hard bounds violate this.

References:
    Hyvarinen (2005), Estimation of non-normalized statistical models by score matching.
    Song, Garg, Shi and Ermon (2019), Sliced score matching.
    Pacchiardi and Dutta (2022), Score matched neural exponential families for likelihood-free inference.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.models import AbstractBase, EnergyModel, MlpEnergy
from unle.train.loop import Descended, Descent, descend
from unle.train.rows import Rows

UNROLL = 4  # directions that are compiled side by side


class ScoreMatching(eqx.Module):
    """Settings of score matching.

    Args:
        slices: random directions per row and step; None matches exactly, in all directions.
        width: units per hidden layer of the energy.
        depth: hidden layers.
        noise: standard deviation of noise added to the data in the base's coordinates, against spikes on single rows.
        descent: how the energy is trained.
    """

    slices: int | None = eqx.field(static=True, default=None)
    width: int = eqx.field(static=True, default=50)
    depth: int = eqx.field(static=True, default=4)
    noise: float = eqx.field(static=True, default=0.0)
    descent: Descent = Descent()

    def __check_init__(self):
        if (self.slices is not None and self.slices < 1) or self.noise < 0:
            raise InputError(
                f"expected slices >= 1, or None, and noise >= 0; got {self.slices} and {self.noise}; try slices=1."
            )


def fit_score_matching(
    key: PRNGKeyArray,
    bases: AbstractBase,
    rows: Rows,
    *,
    settings: ScoreMatching,
    on_chunk: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[EnergyModel, Descended]:
    """Fit the energies of all members on fixed bases; return the models, stacked, and how training went."""
    key_start, key_descent = jr.split(key)
    energies = _initial(jr.split(key_start, rows.members), rows.t.shape[1], rows.w.shape[1], settings)
    trained, static = eqx.partition(energies, eqx.is_array)
    loss, fixed = exact_loss if settings.slices is None else sliced_loss, (static, bases, settings)
    descent, title = settings.descent, "Matching scores"
    end = descend(key_descent, loss, trained, fixed, rows, settings=descent, title=title, on_chunk=on_chunk)
    return EnergyModel(bases, eqx.combine(end.trained, static)), end


@eqx.filter_jit
def _initial(keys, dim_theta: int, dim_data: int, settings: ScoreMatching) -> MlpEnergy:
    def one(key):
        return MlpEnergy.initial(key, dim_theta, dim_data, width=settings.width, depth=settings.depth, bound=None)

    return eqx.filter_vmap(one)(keys)


def exact_loss(key, trained, fixed, t, w):
    """Return the mean of tr grad s + |s|^2 / 2."""
    model, v = _noisy(key, trained, fixed, t, w)
    directions = jnp.eye(v.shape[1])
    return jnp.mean(jax.vmap(lambda t, v: matched(model, t, v, directions))(t, v))


def sliced_loss(key, trained, fixed, t, w):
    """Return the same, with random directions in the place of all."""
    key_noise, key_slices = jr.split(key)
    model, v = _noisy(key_noise, trained, fixed, t, w)
    n, k = v.shape
    slices = fixed[2].slices
    signs = jr.rademacher(key_slices, (n * slices * k,), v.dtype).reshape(n, slices, k)
    return jnp.mean(jax.vmap(lambda t, v, u: matched(model, t, v, u / jnp.sqrt(slices)))(t, v, signs))


def matched(
    model: EnergyModel, t: Float[Array, " dim"], v: Float[Array, " data"], directions: Float[Array, "direction data"]
) -> Float[Array, ""]:
    """Return sum_u u . grad s u + |s|^2 / 2 at one pair, u the rows of `directions`."""
    score, along = jax.linearize(jax.grad(lambda v: model.log_density_whitened(t, v)), v)
    # One direction after the other: below the two axes of members and rows, a third makes products of many small
    # matrices, five times slower on a CPU.
    zero = jnp.zeros((), v.dtype)
    curvature, _ = jax.lax.scan(lambda total, u: (total + u @ along(u), None), zero, directions, unroll=UNROLL)
    return curvature + 0.5 * jnp.sum(jnp.square(score))


def _noisy(key, trained, fixed, t, w):
    static, base, settings = fixed
    model = EnergyModel(base, eqx.combine(trained, static))
    v = jax.vmap(base.whiten)(t, w)
    if settings.noise:
        v = v + settings.noise * jr.normal(key, (v.size,)).reshape(v.shape)
    return model, v
