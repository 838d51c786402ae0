r"""The probability that a simulation is valid, and likelihoods that take it into account.

Some parameters make a simulator fail: no spikes to count, no solution.  A model trained on the valid rows describes
q(x | theta, valid), while an observation, valid itself, has the likelihood

    q(x, valid | theta) = q(x | theta, valid) P(valid | theta).

Leaving the second factor out favours parameters that hardly ever produce data like the observed.  It must be a
calibrated probability: odds that are off by a factor depending on the mixture of classes do not cancel.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unle.models.conditional import DoublyIntractableLikelihood
from unle.models.likelihood import TractableLikelihood
from unle.models.log_normaliser import Normalised
from unle.models.mlp import Mlp
from unle.space import ThetaSpace

ALMOST_CERTAIN = -1e-7  # largest log-probability, whose logit float32 can tell from that of 1


class AbstractValidity(eqx.Module):
    """The probability that a simulation at theta is valid."""

    @abc.abstractmethod
    def __call__(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return log P(valid | theta)."""


class AlwaysValid(AbstractValidity):
    """P(valid | theta) = 1: no simulation failed."""

    def __call__(self, theta):
        """Return 0."""
        return jnp.zeros((), theta.dtype)


class ValidityNet(AbstractValidity):
    r"""The geometric mean of a few networks' probabilities, recalibrated.

        P(valid | theta) = sigmoid(temper m(theta) + shift),   m = logit of prod_k sigmoid(net_k(t))^(1/K)

    Low as soon as one of them expects a failure, for the reason that `unle.models.consensus` has: of many parameters,
    those that one network is mistaken about would come to the top.

    Args:
        theta_space: standardises theta.
        nets: networks of t with one output, the logit; stacked along a leading axis.
        temper: factor on the logit m; 1 if the networks are calibrated by themselves.
        shift: added to it; 0 likewise.
    """

    theta_space: ThetaSpace
    nets: Mlp
    temper: Float[Array, ""]
    shift: Float[Array, ""]

    def __call__(self, theta):
        """Return log P(valid | theta)."""
        return jax.nn.log_sigmoid(self.temper * self.logit(theta) + self.shift)

    def logit(self, theta: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the logit of the networks' common probability, before recalibration."""
        log_probability = jnp.mean(jax.nn.log_sigmoid(self.member_logits(theta)))
        return log_probability - jnp.log(-jnp.expm1(jnp.minimum(log_probability, ALMOST_CERTAIN)))

    def member_logits(self, theta: Float[Array, " dim"]) -> Float[Array, " member"]:
        """Return the logit of each network, before recalibration."""
        t = self.theta_space.forward(theta)
        return eqx.filter_vmap(lambda net: net(t)[0])(self.nets)


class ValidPower(AbstractValidity):
    """Another probability to some power, for proposals that avoid failures more than a posterior does.

    Args:
        validity: log P(valid | theta).
        power: that multiplies it.
    """

    validity: AbstractValidity
    power: Float[Array, ""]

    def __call__(self, theta):
        """Return power log P(valid | theta)."""
        return self.power * self.validity(theta)


class GivenValid(TractableLikelihood):
    """A tractable likelihood of valid data times P(valid | theta); made by `with_validity`."""

    likelihood: TractableLikelihood
    validity: AbstractValidity

    @property
    def x_space(self):
        """The likelihood's standardisation of x, None if it has none."""
        return getattr(self.likelihood, "x_space", None)

    def prepare(self, x):
        """Return w."""
        return self.likelihood.prepare(x)

    def coordinates(self, x):
        """Return x in the coordinates of the likelihood."""
        return self.likelihood.coordinates(x)

    def log_likelihood(self, theta, w):
        """Return log q(w | theta, valid) + log P(valid | theta)."""
        return self.likelihood.log_likelihood(theta, w) + self.validity(theta)


class DoublyIntractableGivenValid(DoublyIntractableLikelihood):
    """A doubly intractable likelihood of valid data times P(valid | theta); made by `with_validity`.

    The normaliser Z(theta) is that of the data given that they are valid, so tilt and reference stay what they are.
    """

    likelihood: DoublyIntractableLikelihood
    validity: AbstractValidity

    @property
    def x_space(self):
        """The likelihood's standardisation of x, None if it has none."""
        return getattr(self.likelihood, "x_space", None)

    def prepare(self, x):
        """Return w."""
        return self.likelihood.prepare(x)

    def standardise(self, theta):
        """Return t."""
        return self.likelihood.standardise(theta)

    def log_unnormalised(self, theta, w):
        """Return log f(w | theta) + log P(valid | theta)."""
        return self.likelihood.log_unnormalised(theta, w) + self.validity(theta)

    def log_tilt(self, t, v):
        """Return the likelihood's tilt."""
        return self.likelihood.log_tilt(t, v)

    def log_reference(self, v):
        """Return the likelihood's reference density."""
        return self.likelihood.log_reference(v)

    def draws(self, key, n):
        """Draw from the likelihood's reference."""
        return self.likelihood.draws(key, n)

    def whiten(self, t, w):
        """Return the likelihood's coordinates of w."""
        return self.likelihood.whiten(t, w)

    def unwhiten(self, t, v):
        """Return w at the likelihood's coordinates v."""
        return self.likelihood.unwhiten(t, v)


def with_validity(
    likelihood: TractableLikelihood | DoublyIntractableLikelihood, validity: AbstractValidity
) -> TractableLikelihood | DoublyIntractableLikelihood:
    """Return the likelihood of an observation that is valid; of the same kind as the one given.

    Args:
        likelihood: of data given that they are valid, as trained on valid rows.  Not for a tilted model whose particles
            follow the prior: fitted to valid rows it has P(valid | theta) in it already.
        validity: P(valid | theta); with `AlwaysValid` the likelihood comes back as it is.
    """
    if isinstance(validity, AlwaysValid):
        return likelihood
    if isinstance(likelihood, DoublyIntractableLikelihood):
        return DoublyIntractableGivenValid(likelihood, validity)
    if isinstance(likelihood, Normalised):  # the factor goes inside: exchange still finds the unnormalised model
        return Normalised(DoublyIntractableGivenValid(likelihood.likelihood, validity), likelihood.log_normaliser)
    return GivenValid(likelihood, validity)
