r"""Likelihoods whose normaliser depends on theta in an unknown way.

A conditional energy-based model tilts a normalised base,

    q(w | theta) = q0(w | t) exp(-E(t, w)) / Z(theta),   Z(theta) = E_{w ~ q0(. | t)}[exp(-E(t, w))],

and is trained on pairs whatever theta was drawn from, so nothing makes Z(theta) constant.  The posterior p(theta)
q0 exp(-E) / Z(theta) is *doubly intractable*: neither its own constant nor the factor 1 / Z(theta) is known.

Samplers that need draws of the model to cancel Z(theta) draw coordinates v of w, whose density does not depend on
theta: what a reference density already says about theta cancels by itself, and only the log-tilt s over it is left,

    Z(theta) = E_{v ~ reference}[exp(s(t, v))].

* `ConditionalLikelihood` has the model's own base for a reference, and s = -E at v.
* `ReferencedLikelihood` has another one, fitted to the data: a model on a very wide measure would have to be found from
  there by chance.  The reference is no part of the model and cancels in the end.
* `GeometricPool` is one conditional model with the mean energy of several.
"""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.models.bases import AbstractBase
from unle.models.likelihood import AbstractLikelihood, EnergyModel, stacked, unstacked
from unle.space import ThetaSpace, XSpace


class DoublyIntractableLikelihood(AbstractLikelihood):
    """A likelihood f(w | theta) / Z(theta) of which only f is known.

    To make one, define the density and what an auxiliary sampler needs: a reference density of v that does not depend
    on theta, and the log-tilt s with Z(theta) = E_reference[exp(s(t, v))].
    """

    @abc.abstractmethod
    def standardise(self, theta: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Return the standardised parameters t of one raw theta."""

    @abc.abstractmethod
    def log_unnormalised(self, theta: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return log f(w | theta) of standardised data w."""

    @abc.abstractmethod
    def log_tilt(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return s(t, v), the log of the model's density of v over the reference's, plus log Z(theta)."""

    @abc.abstractmethod
    def log_reference(self, v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return the reference's log-density of v."""

    @abc.abstractmethod
    def draws(self, key: PRNGKeyArray, n: int) -> Float[Array, "n data"]:
        """Draw n of v from the reference."""

    @abc.abstractmethod
    def whiten(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return the coordinates v of w."""

    @abc.abstractmethod
    def unwhiten(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return w at the coordinates v."""


class AbstractConditional(DoublyIntractableLikelihood):
    """A conditional energy-based model with the maps from raw theta and x, and a reference."""

    theta_space: eqx.AbstractVar[ThetaSpace]
    x_space: eqx.AbstractVar[XSpace]
    model: eqx.AbstractVar[EnergyModel]

    @abc.abstractmethod
    def reference_density(self) -> AbstractBase:
        """Return the reference r(w | t)."""

    def space_of_x(self):
        return self.x_space

    def prepare(self, x):
        return self.x_space.forward(x)

    def standardise(self, theta):
        return self.theta_space.forward(theta)

    def log_unnormalised(self, theta, w):
        return self.model.log_density(self.theta_space.forward(theta), w)

    def log_tilt(self, t, v):
        """Return log f - log r at v, r the reference."""
        w = self.reference_density().unwhiten(t, v)
        return self.model.log_density(t, w) - self.reference_density().log_density(t, w)

    def log_reference(self, v):
        return self.reference_density().log_density_whitened(v)

    def draws(self, key, n):
        return self.reference_density().draws_whitened(key, n)

    def whiten(self, t, w):
        return self.reference_density().whiten(t, w)

    def unwhiten(self, t, v):
        return self.reference_density().unwhiten(t, v)


class ConditionalLikelihood(AbstractConditional):
    """A conditional model whose reference is its base.

        log f(w | theta) = log q0(w | t) - E(t, w),   t = theta_space(theta), w = x_space(x)

    Standardised by its two spaces.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    model: EnergyModel

    def reference_density(self):
        return self.model.base

    def log_tilt(self, t, v):
        """Return -E at v."""
        return self.model.log_tilt_whitened(t, v)


class ReferencedLikelihood(AbstractConditional):
    """A conditional model, base and energy, with a normalised reference r of its own."""

    theta_space: ThetaSpace
    x_space: XSpace
    model: EnergyModel
    reference: AbstractBase

    def reference_density(self):
        return self.reference


class AbstractDoublyIntractableWrapper(DoublyIntractableLikelihood):
    """A doubly intractable likelihood made of another one; what is not overridden is left to that."""

    likelihood: eqx.AbstractVar[DoublyIntractableLikelihood]

    def space_of_x(self):
        return self.likelihood.space_of_x()

    def prepare(self, x):
        return self.likelihood.prepare(x)

    def standardise(self, theta):
        return self.likelihood.standardise(theta)

    def log_unnormalised(self, theta, w):
        return self.likelihood.log_unnormalised(theta, w)

    def log_tilt(self, t, v):
        return self.likelihood.log_tilt(t, v)

    def log_reference(self, v):
        return self.likelihood.log_reference(v)

    def draws(self, key, n):
        return self.likelihood.draws(key, n)

    def whiten(self, t, w):
        return self.likelihood.whiten(t, w)

    def unwhiten(self, t, v):
        return self.likelihood.unwhiten(t, v)


class GeometricPool(AbstractDoublyIntractableWrapper):
    """The geometric mean of conditional models; made by `geometric_pool`.

        q(w | theta) = prod_k f_k(w | theta)^a_k / Z(theta),   Z(theta) = int prod_k f_k(w | theta)^a_k dw

    The equal mixture of the members would need every Z_k(theta), which nobody knows.  Here they cancel: a factor of f_k
    that depends on theta alone is a factor of the pool's own Z(theta).  What one member gets wrong in log q counts a_k.

    The coordinates v are those of the first member's base: with w = w(t, v) on them,

        s(t, v) = sum_k a_k log f_k(w | theta) - log q0_1(w | t).

    Bases fitted to the same data are close to each other, and s close to minus the mean energy.
    """

    # conditional models that share their spaces, every array stacked along a leading axis
    members: ConditionalLikelihood
    weights: Float[Array, " members"]  # a, which add up to one

    @property
    def likelihood(self) -> ConditionalLikelihood:
        """The first member, whose coordinates the pool has."""
        return unstacked(self.members, 0)

    def log_unnormalised(self, theta, w):
        return self._mean_log_density(self.standardise(theta), w)

    def log_tilt(self, t, v):
        """Return the pool's log-density over that of the first base, at v."""
        base = self.likelihood.model.base
        w = base.unwhiten(t, v)
        return self._mean_log_density(t, w) - base.log_density(t, w)

    def _mean_log_density(self, t, w):
        return self.weights @ eqx.filter_vmap(lambda member: member.model.log_density(t, w))(self.members)


def geometric_pool(
    members: Sequence[ConditionalLikelihood], weights: Sequence[float] | None = None
) -> DoublyIntractableLikelihood:
    """Return the geometric pool of conditional models that share their coordinates; of one member, that member.

    The coordinates of auxiliary draws are the first one's; weights are equal by default, and count up to a factor.
    """
    if len(members) == 1:
        return members[0]
    pooled = stacked(members)
    given = jnp.ones(len(members)) if weights is None else jnp.asarray(weights, jnp.float32)
    if given.shape != (len(members),) or not bool(jnp.all(given >= 0) & (jnp.sum(given) > 0)):
        raise InputError(f"expected a weight >= 0 for each of {len(members)} members, not all zero; got {weights}.")
    return GeometricPool(pooled, given / jnp.sum(given))  # pyright: ignore[reportCallIssue]  (`likelihood` is a property)
