r"""Energies E(t, r), and the model that an energy makes of a base.

    q(theta, x) = p(theta) q0(x | theta) exp(-E(theta, x)) / Z_pi,   Z_pi = E_{p q0}[exp(-E)]

An energy is low where data are likely.  The prior enters as it is and the missing constant Z_pi is one number.  Maximum
likelihood on simulated pairs makes q(theta, x) the simulator's joint density.  Both have the marginal p(theta), so
Z(theta) = int q0 exp(-E) dx is then the same for every theta, and q0 exp(-E) is the likelihood up to that constant: the
posterior is an ordinary, singly intractable one.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unle.models.bases import AbstractBase
from unle.models.mlp import Mlp
from unle.space.host_device import on_device

FADE_LENGTH = 16.0  # of |v|^2: a Gaussian base falls by 8 nats meanwhile, one with tails by less


class AbstractEnergy(eqx.Module):
    """A scalar function of t and of the base's features r of w."""

    @abc.abstractmethod
    def __call__(self, t: Float[Array, " dim"], r: Float[Array, " seen"]) -> Float[Array, ""]:
        """Return E(t, r)."""


class MlpEnergy(AbstractEnergy):
    """A network f on (t, r), optionally bounded.

        E(t, r) = c tanh(f(t, r) / c)

    With the bound c, log q and log q0 differ by at most c, so training cannot run away.  Without a bound E = f, as in
    the original AUNLE.

    An energy must not dig where no particle ever goes: nothing would count the mass that collects there.  So it fades
    out beyond the distances that draws of its base reach,

        E = phi(|v|^2) c tanh(f / c),   phi = 1 up to |v|^2 = reach, and 0 from reach + 16 on,

    and the model has the tails of its base.  |v|^2 is then the last entry of r; the network does not see it.
    """

    net: Mlp  # network with one output
    bound: float | None = eqx.field(static=True)  # c, in nats; None for an unbounded energy
    # |v|^2 up to which the energy counts in full; None for an energy that does not fade
    reach: Float[Array, "*member"] | None = None

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
        reach: Float[Array, " member"] | None = None,
    ) -> "MlpEnergy":
        """Return new energies of an ensemble, stacked along a leading axis; see `Mlp.stacked`."""
        inputs = dim_theta + dim_seen - (reach is not None)
        nets = Mlp.stacked(key, members, inputs, 1, width=width, depth=depth, output_scale=0.1)
        if not sees_theta:
            first = np.array(nets.weights[0])
            first[:, :dim_theta] = 0.0
            nets = eqx.tree_at(lambda n: n.weights[0], nets, on_device(first, first.dtype))
        return _around(cls, nets, bound, reach)

    def __call__(self, t, r):
        if self.reach is None:
            return self._bounded(jnp.concatenate([t, r]))
        beyond = (r[-1] - jax.lax.stop_gradient(self.reach)) / FADE_LENGTH  # a setting, which nothing trains
        return _smooth_step(1 - beyond) * self._bounded(jnp.concatenate([t, r[:-1]]))

    def _bounded(self, seen):
        value = self.net(seen)[0]
        return value if self.bound is None else self.bound * jnp.tanh(value / self.bound)


class NoEnergy(AbstractEnergy):
    """E = 0: the base alone."""

    def __call__(self, t, r):
        return jnp.zeros((), t.dtype)


class EnergyModel(eqx.Module):
    """A base q0(w | t) and the energy E(t, r) that tilts it, r the base's features of w."""

    base: AbstractBase
    energy: AbstractEnergy

    def log_density(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return log q0(w | t) - E, the log-likelihood up to the constant."""
        if isinstance(self.energy, NoEnergy):
            return self.base.log_density(t, w)
        log_base, seen = self.base.log_density_and_features(t, w)
        return log_base - self.energy(t, seen)

    def log_tilt(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return -E at w."""
        return -self.energy(t, self.base.features(t, w))

    def log_tilt_whitened(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return -E at the base's coordinates v."""
        return -self.energy(t, self.base.features_whitened(t, v))

    def log_density_whitened(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return the log-density of the base's coordinates v, up to the same constant."""
        return self.base.log_density_whitened(v) + self.log_tilt_whitened(t, v)


@eqx.filter_jit  # one small program, where `filter_vmap` alone would compile one for every array
def _around(cls: type[MlpEnergy], nets: Mlp, bound: float | None, reach: Array | None) -> MlpEnergy:
    return eqx.filter_vmap(lambda net, reach: cls(net, bound, reach))(nets, reach)


def _smooth_step(u: Float[Array, ""]) -> Float[Array, ""]:
    """Return 0 below 0, 1 above 1, and 3 u^2 - 2 u^3 between."""
    u = jnp.clip(u, 0.0, 1.0)
    return u * u * (3 - 2 * u)
