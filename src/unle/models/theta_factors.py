r"""Factors of a likelihood that depend on theta alone: its learned normaliser, and the probability of valid data.

**The normaliser** makes a doubly intractable likelihood an ordinary one:

    log q(w | theta) = log f(w | theta) - b(t),   b(t) ~ log Z(theta)

With b in place the posterior is singly intractable, and every sampler may be used.  What b gets wrong goes straight
into the posterior: an error whose spread over the posterior is s nats costs a C2ST of about Phi(s / 2).

**Validity**: some parameters make a simulator fail, no spikes to count, no solution.  A model trained on the valid rows
describes q(x | theta, valid), while an observation, valid itself, has the likelihood

    q(x, valid | theta) = q(x | theta, valid) P(valid | theta).

Leaving the second factor out favours parameters that hardly ever produce data like the observed.  It must be a
calibrated probability: odds that are off by a factor depending on the mixture of classes do not cancel.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models.conditional_likelihood import AbstractDoublyIntractableWrapper, DoublyIntractableLikelihood
from unle.models.likelihood import AbstractWrapper, TractableLikelihood
from unle.models.mlp import Mlp
from unle.space import ThetaSpace

SOFTNESS = 0.05  # s: thickness of a region's walls as a share of the box
LARGEST_LOG_PROBABILITY = -1e-7  # largest log-probability, whose logit float32 can tell from that of 1


class LogNormaliser(eqx.Module):
    """b(t) = offset + slope . z + scale net(z), with z = whitener (t - centre).

    z has mean zero and unit covariance over the theta that b was fitted to, however narrow that region is.  Offset,
    slope and scale take the size out of the problem: the network learns something of order one.
    """

    centre: Float[Array, " dim"]  # mean of t, shape (d,)
    whitener: Float[Array, "dim dim"]  # inverse of a factor of the covariance of t, shape (d, d)
    offset: Float[Array, ""]  # value at the centre, up to the network's
    slope: Float[Array, " dim"]  # linear part, shape (d,)
    scale: Float[Array, ""]  # size of the network's part
    net: Mlp  # network of z with one output

    @classmethod
    def initial(cls, key: PRNGKeyArray, dim: int, *, width: int = 64, depth: int = 2) -> "LogNormaliser":
        """Return b = 0 in coordinates t that are standardised already, with a network ready to learn."""
        net = Mlp(key, dim, 1, width=width, depth=depth, output_scale=0.0)
        return cls(jnp.zeros(dim), jnp.eye(dim), jnp.zeros(()), jnp.zeros(dim), jnp.ones(()), net)

    def __call__(self, t: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return b at standardised parameters t."""
        z = self.whitener @ (t - self.centre)
        return self.offset + self.slope @ z + self.scale * self.net(z)[0]

    def shifted(self, constant: Float[Array, ""] | float) -> "LogNormaliser":
        """Return b + constant."""
        return eqx.tree_at(lambda b: b.offset, self, self.offset + constant)

    def in_coordinates(self, shift: Float[Array, " dim"], scale: Float[Array, " dim"]) -> "LogNormaliser":
        """Return the same function in other coordinates t' of theta, where t = shift + scale t'.

        A new standardisation of theta then changes nothing: b'(t') = b(shift + scale t') exactly.
        """
        return eqx.tree_at(
            lambda b: (b.centre, b.whitener), self, ((self.centre - shift) / scale, self.whitener * scale)
        )


class Normalised(AbstractWrapper):
    """A doubly intractable likelihood f(w | theta), divided by its learned normaliser b(t), about log Z(theta)."""

    likelihood: DoublyIntractableLikelihood
    log_normaliser: LogNormaliser

    def log_z(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return b at raw theta."""
        return self.log_normaliser(self.likelihood.standardise(theta))

    def log_likelihood(self, theta, w):
        return self.likelihood.log_unnormalised(theta, w) - self.log_z(theta)


class AbstractValidity(eqx.Module):
    """The probability that a simulation at theta is valid."""

    @abc.abstractmethod
    def __call__(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log P(valid | theta)."""


class AlwaysValid(AbstractValidity):
    """P(valid | theta) = 1: no simulation failed."""

    def __call__(self, theta):
        return jnp.zeros((), theta.dtype)


class ValidityNet(AbstractValidity):
    """The geometric mean of a few networks' probabilities, recalibrated.

        P(valid | theta) = sigmoid(temper m(theta) + shift),   m = logit of prod_k sigmoid(net_k(t))^(1/K)

    Low if any network predicts a failure: otherwise parameters on which one network errs would get the highest
    posterior.
    """

    theta_space: ThetaSpace  # standardises theta
    nets: Mlp  # networks of t with one output, the logit; stacked along a leading axis
    temper: Float[Array, ""]  # factor on the logit m; 1 if the networks are calibrated by themselves
    shift: Float[Array, ""]  # added to it; 0 likewise

    def __call__(self, theta):
        return jax.nn.log_sigmoid(self.temper * self.logit(theta) + self.shift)

    def logit(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the logit of the networks' common probability, before recalibration."""
        log_probability = jnp.mean(jax.nn.log_sigmoid(self.member_logits(theta)))
        return log_probability - jnp.log(-jnp.expm1(jnp.minimum(log_probability, LARGEST_LOG_PROBABILITY)))

    def member_logits(self, theta: Float[Array, " dim"]) -> Float[Array, " member"]:
        """Return the logit of each network, before recalibration."""
        t = self.theta_space.forward(theta)
        return eqx.filter_vmap(lambda net: net(t)[0])(self.nets)


class ValidPower(AbstractValidity):
    """P(valid | theta) to some power, for proposals that avoid failures more than a posterior does."""

    validity: AbstractValidity
    power: Float[Array, ""]

    def __call__(self, theta):
        return self.power * self.validity(theta)


class Region(AbstractValidity):
    """A penalty outside a box of standardised parameters; for `with_validity`.

    A likelihood that was fitted to simulations of one region says nothing about parameters outside.  It is made to fall
    off there,

        log q_B(x | theta) = log q(x | theta) - 1/2 sum_j (d_j / (s (h_j - l_j)))^2,

    d_j how far coordinate j of theta lies outside the box B = [l, h]: a prior restricted to the box, with walls soft
    enough for a sampler to find its way in.
    """

    theta_space: ThetaSpace  # the coordinates in which the box is given
    low: Float[Array, " dim"]  # l
    high: Float[Array, " dim"]  # h

    def __call__(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log of the trust in theta: 0 inside."""
        t = self.theta_space.forward(theta)
        beyond = (t - jnp.clip(t, self.low, self.high)) / (SOFTNESS * (self.high - self.low))
        return -0.5 * jnp.sum(jnp.square(beyond))


class GivenValid(AbstractWrapper):
    """A tractable likelihood of valid data times P(valid | theta); made by `with_validity`."""

    likelihood: TractableLikelihood
    validity: AbstractValidity

    def log_likelihood(self, theta, w):
        return self.likelihood.log_likelihood(theta, w) + self.validity(theta)


class DoublyIntractableGivenValid(AbstractDoublyIntractableWrapper):
    """A doubly intractable likelihood of valid data times P(valid | theta); made by `with_validity`.

    The normaliser Z(theta) is that of the data given that they are valid, so tilt and reference stay what they are.
    """

    likelihood: DoublyIntractableLikelihood
    validity: AbstractValidity

    def log_unnormalised(self, theta, w):
        return self.likelihood.log_unnormalised(theta, w) + self.validity(theta)


def with_validity(
    likelihood: TractableLikelihood | DoublyIntractableLikelihood, validity: AbstractValidity
) -> TractableLikelihood | DoublyIntractableLikelihood:
    """Return the likelihood of an observation that is valid; of the same kind as the one given.

    The one given is that of data given that they are valid, as trained on valid rows.  Not for a joint model whose
    particles follow the prior: fitted to valid rows it has P(valid | theta) in it already.
    """
    if isinstance(validity, AlwaysValid):
        return likelihood
    if isinstance(likelihood, DoublyIntractableLikelihood):
        return DoublyIntractableGivenValid(likelihood, validity)
    if isinstance(likelihood, Normalised):  # the factor goes inside: exchange still finds the unnormalised model
        return Normalised(DoublyIntractableGivenValid(likelihood.likelihood, validity), likelihood.log_normaliser)
    return GivenValid(likelihood, validity)
