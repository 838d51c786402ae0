r"""The spaces of parameters and data in which particles of a tilted model live.

`JointSpace`: a position is (a, v), where a are the prior's unconstrained coordinates u, shifted and scaled to unit
spread under the prior, and v the base's coordinates of w.  There the tilted model reads

    log q(a, v) = log p(u(a)) + log q0(v) - E + const,

smooth on all of R^(d + k), with every direction of about unit scale, whatever the prior's walls or units are.

`DataSpace`: a position is (t, v), where t are the parameters of one of the data.  In the place of p is the distribution
of these, even over all of them; its density need not be known, and no kernel moves t.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase, EnergyModel
from unle.space import Prior, ThetaSpace, unconstrained_draws
from unle.space.host_device import keys, on_device

SCALE_DRAWS = 2000  # as many as posteriors begin with by default: one program makes both


class AbstractSpace(eqx.Module):
    """Where particles live: the parameters, in some coordinates, followed by v."""

    @property
    @abc.abstractmethod
    def n_fixed(self) -> int:
        """How many coordinates, the first ones, no kernel may move."""

    @abc.abstractmethod
    def draws(self, key: PRNGKeyArray, base: AbstractBase, n: int) -> Float[Array, "n position"]:
        """Draw n positions of the parameters' distribution and the base."""

    @abc.abstractmethod
    def log_reference(self, base: AbstractBase, position: Float[Array, " position"]) -> Float[Array, ""]:
        """Return the log-density of these draws at a position, up to a constant."""

    @abc.abstractmethod
    def parts(self, position: Float[Array, " position"]) -> tuple[Array, Array]:
        """Return t and v at a position."""

    def seen(self, base: AbstractBase, position: Float[Array, " position"]) -> tuple[Array, Array]:
        """Return (t, r) at a position: what an energy sees."""
        t, v = self.parts(position)
        return t, base.features_whitened(t, v)

    def log_tilt(self, model: EnergyModel, position: Float[Array, " position"]) -> Float[Array, ""]:
        """Return -E at a position."""
        return model.log_tilt_whitened(*self.parts(position))

    def log_density(self, model: EnergyModel, position: Float[Array, " position"]) -> Float[Array, ""]:
        """Return the tilted model's log-density at a position, up to a constant."""
        return self.log_reference(model.base, position) + self.log_tilt(model, position)


class JointSpace(AbstractSpace):
    """The coordinates (a, v), given the prior and the standardisation of theta."""

    prior: Prior
    theta_space: ThetaSpace
    centre: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    @classmethod
    def of(cls, prior: Prior, theta_space: ThetaSpace) -> "JointSpace":
        """Measure the spread of u under the prior."""
        key = jr.key(0)  # fixed: the coordinates are no source of randomness
        u = np.asarray(unconstrained_draws(prior, keys(key, 1), SCALE_DRAWS))[0]
        return cls(prior, theta_space, on_device(u.mean(axis=0), u.dtype), on_device(u.std(axis=0), u.dtype))

    @property
    def n_fixed(self):
        return 0

    def draws(self, key, base, n):
        key_theta, key_data = jr.split(key)
        u = jax.vmap(self.prior.unconstrain)(self.prior.draws(key_theta, n))
        v = base.draws_whitened(key_data, n)
        return jnp.concatenate([(u - self.centre) / self.scale, v], axis=1)

    def position_of(self, t: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the coordinates a of standardised parameters t; the middle, where rounding put t beyond a wall."""
        a = (self.prior.unconstrain(self.theta_space.inverse(t)) - self.centre) / self.scale
        return jnp.where(jnp.isfinite(a), a, 0.0)

    def log_reference(self, base, position):
        dim = self.centre.shape[0]
        u = self.centre + self.scale * position[:dim]
        return self.prior.log_density_unconstrained(u) + base.log_density_whitened(position[dim:])

    def parts(self, position):
        dim = self.centre.shape[0]
        theta = self.prior.constrain(self.centre + self.scale * position[:dim])
        return self.theta_space.forward(theta), position[dim:]


class DataSpace(AbstractSpace):
    """The coordinates (t, v), over the parameters of data."""

    t: Float[Array, "n dim"]  # standardised parameters of the data

    @property
    def n_fixed(self):
        """The parameters: only a draw brings other ones."""
        return self.t.shape[1]

    def draws(self, key, base, n):
        key_rows, key_data = jr.split(key)
        rows = jr.randint(key_rows, (n,), 0, self.t.shape[0])
        return jnp.concatenate([self.t[rows], base.draws_whitened(key_data, n)], axis=1)

    def log_reference(self, base, position):
        """Return log q0(v): all parameters of the data are as likely."""
        return base.log_density_whitened(position[self.n_fixed :])

    def parts(self, position):
        return position[: self.n_fixed], position[self.n_fixed :]
