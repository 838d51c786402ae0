"""Energies E(t, r): the learned part of an unnormalised likelihood, low where data are likely."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unle.models.mlp import Mlp
from unle.space.transfer import on_device


class AbstractEnergy(eqx.Module):
    """A scalar function of t and of the base's features r of w."""

    @abc.abstractmethod
    def __call__(self, t: Float[Array, " dim"], r: Float[Array, " seen"]) -> Float[Array, ""]:
        """Return E(t, r)."""


class MlpEnergy(AbstractEnergy):
    r"""A network f on (t, r), optionally bounded.

        E(t, r) = c tanh(f(t, r) / c)

    The bound c keeps a residual energy from digging a hole that no chain ever visits: log q and log q0 differ by at
    most c everywhere, so training cannot run away.  Without a bound E = f, as in the original AUNLE.

    Args:
        net: network with one output.
        bound: c, in nats; None for an unbounded energy.
    """

    net: Mlp
    bound: float | None = eqx.field(static=True)

    @classmethod
    def initial(
        cls,
        key: PRNGKeyArray,
        dim_theta: int,
        dim_seen: int,
        *,
        width: int,
        depth: int,
        bound: float | None,
        sees_theta: Bool[Array, ""] | bool = True,
    ) -> "MlpEnergy":
        """Return a new, nearly constant energy; one that does not see theta has no weight on t."""
        net = Mlp(key, dim_theta + dim_seen, 1, width=width, depth=depth, output_scale=0.1)
        first = net.weights[0]
        blind = jnp.where(
            (jnp.arange(dim_theta + dim_seen)[:, None] < dim_theta) & ~jnp.asarray(sees_theta), 0.0, first
        )
        return cls(eqx.tree_at(lambda n: n.weights[0], net, blind), bound)

    @classmethod
    def stacked(
        cls,
        key: PRNGKeyArray,
        dim_theta: int,
        dim_seen: int,
        *,
        members: int,
        width: int,
        depth: int,
        bound: float | None,
        sees_theta: bool,
    ) -> "MlpEnergy":
        """Return new energies of an ensemble, stacked along a leading axis; see `Mlp.stacked`."""
        nets = Mlp.stacked(key, members, dim_theta + dim_seen, 1, width=width, depth=depth, output_scale=0.1)
        if not sees_theta:
            first = np.array(nets.weights[0])
            first[:, :dim_theta] = 0.0
            nets = eqx.tree_at(lambda n: n.weights[0], nets, on_device(first, first.dtype))
        return _around(cls, nets, bound)

    def __call__(self, t, r):
        """Return E(t, r)."""
        value = self.net(jnp.concatenate([t, r]))[0]
        return value if self.bound is None else self.bound * jnp.tanh(value / self.bound)


class NoEnergy(AbstractEnergy):
    """E = 0: the base alone."""

    def __call__(self, t, r):
        """Return 0."""
        return jnp.zeros((), t.dtype)


@eqx.filter_jit  # one small program, where `filter_vmap` alone would compile one for every array
def _around(cls: type[MlpEnergy], nets: Mlp, bound: float | None) -> MlpEnergy:
    return eqx.filter_vmap(lambda net: cls(net, bound))(nets)
