r"""Base densities q0(w | t): what an energy tilts.

t and w stand for theta and x in the standardised coordinates of the training data.  A tilted model is

    q(w | t) \propto q0(w | t) exp(-E(t, w)),

so the base decides three things: where the model has mass when the energy says nothing, in which coordinates chains
move (`whiten` and `unwhiten`), and what the energy sees of w (`features`).  A base that is already close leaves the
energy little to learn.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models.corrections import AbstractCorrection, NoCorrection
from unle.models.mlp import normals

LOG_2PI = 1.8378770664093453


class AbstractBase(eqx.Module):
    """A normalised density of w given t, with coordinates v in which it is simple.

    To make one, define these methods; all take single points.
    """

    @abc.abstractmethod
    def whiten_with_log_det(
        self, t: Float[Array, " dim"], w: Float[Array, " data"]
    ) -> tuple[Float[Array, " data"], Float[Array, ""]]:
        """Return the coordinates v of w, given t, and log |det dv/dw|."""

    @abc.abstractmethod
    def unwhiten(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return w at the coordinates v, given t."""

    @abc.abstractmethod
    def log_density_whitened(self, v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return the log-density of v, which must not depend on t."""

    @abc.abstractmethod
    def draws_whitened(self, key: PRNGKeyArray, n: int) -> Float[Array, "n data"]:
        """Draw n of v, so that each `unwhiten(t, v)` is a draw of q0(. | t)."""

    @abc.abstractmethod
    def features(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " seen"]:
        """Return r, what an energy sees of w next to t: as many numbers as w has, but for `TwoViews`."""

    @abc.abstractmethod
    def features_whitened(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, " seen"]:
        """Return r at the coordinates v, without the detour over w."""

    def sees_whitened(self) -> bool:
        """Return whether `features` are v itself."""
        return False

    def seen(self, v: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return v as an energy sees it, if its features have v among them: as it is, for most."""
        return v

    def whiten(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " data"]:
        """Return the coordinates v of w, given t."""
        return self.whiten_with_log_det(t, w)[0]

    def log_density(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return log q0(w | t) = log q0(v) + log |det dv/dw|."""
        v, log_det = self.whiten_with_log_det(t, w)
        return self.log_density_whitened(v) + log_det

    def log_density_and_features(
        self, t: Float[Array, " dim"], w: Float[Array, " data"]
    ) -> tuple[Float[Array, ""], Float[Array, " seen"]]:
        """Return both; where they have something in common, it need not be done twice."""
        return self.log_density(t, w), self.features(t, w)


class AbstractBaseWrapper(AbstractBase):
    """A base made of another one, with the same coordinates; to make one, say what an energy sees."""

    base: eqx.AbstractVar[AbstractBase]

    def whiten_with_log_det(self, t, w):
        return self.base.whiten_with_log_det(t, w)

    def unwhiten(self, t, v):
        return self.base.unwhiten(t, v)

    def log_density_whitened(self, v):
        return self.base.log_density_whitened(v)

    def draws_whitened(self, key, n):
        return self.base.draws_whitened(key, n)


class FixedMeasure(AbstractBase):
    """The wide Gaussian N(0, s^2 I) on standardised data, whatever theta is.

    With it the energy has to learn everything, as in the original AUNLE; the measure only makes exp(-E) integrable.
    """

    centre: Float[Array, " data"]  # zeros, of the length of w
    scale: Float[Array, ""]  # the standard deviation s

    def whiten_with_log_det(self, t, w):
        """Return w itself: standardised data need no other coordinates."""
        return w, jnp.zeros((), w.dtype)

    def unwhiten(self, t, v):
        return v

    def log_density_whitened(self, v):
        return -0.5 * jnp.sum(jnp.square(v / self.scale)) - v.shape[0] * (0.5 * LOG_2PI + jnp.log(self.scale))

    def draws_whitened(self, key, n):
        return self.centre + self.scale * normals(key, n, self.centre.shape[0])

    def sees_whitened(self):
        return True

    def features(self, t, w):
        return w

    def features_whitened(self, t, v):
        return v


class ConditionalGaussian(AbstractBase):
    """A Gaussian whose mean and covariance depend on theta, around a linear fit.

    The linear part (fitted in closed form, with a shrunken covariance) gives residuals of unit covariance,

        r = P (w - b - A' t),

    and a correction turns them into v ~ N(0, I): nothing, a polynomial or a network of t, see
    `unle.models.corrections`.

    Energies see r: shapes are simpler next to data than next to residuals of a mean that wiggles.  `TwoViews` lets them
    see v besides.
    """

    intercept: Float[Array, " data"]  # b, shape (k,)
    slope: Float[Array, "dim data"]  # A, shape (d, k)
    whitener: Float[Array, "data data"]  # P, lower triangular, shape (k, k)
    correction: AbstractCorrection  # from r to v

    def sees_whitened(self):
        return isinstance(self.correction, NoCorrection)

    def features(self, t, w):
        return self.whitener @ (w - self.intercept - t @ self.slope)

    def whiten_with_log_det(self, t, w):
        v, log_det = self.correction(t, self.features(t, w))
        return v, log_det + jnp.sum(jnp.log(jnp.diagonal(self.whitener)))

    def unwhiten(self, t, v):
        r = self.features_whitened(t, v)
        return self.intercept + t @ self.slope + solve_triangular(self.whitener, r, lower=True)

    def features_whitened(self, t, v):
        return self.correction.inverse(t, v)

    def log_density_whitened(self, v):
        return -0.5 * jnp.sum(jnp.square(v)) - 0.5 * v.shape[0] * LOG_2PI

    def draws_whitened(self, key, n):
        return normals(key, n, self.intercept.shape[0])
