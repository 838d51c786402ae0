r"""The tilted joint model of (theta, x).

    q(theta, x) = p(theta) q0(x | theta) exp(-E(theta, x)) / Z_pi,   Z_pi = E_{p q0}[exp(-E)]

The prior enters as it is and the missing constant Z_pi is one number.  Maximum likelihood on simulated pairs makes
q(theta, x) the simulator's joint density; since both have the marginal p(theta), Z(theta) = int q0 exp(-E) dx is then
the same for every theta and q0 exp(-E) is the likelihood up to that constant: the posterior is an ordinary,
singly-intractable one.
"""

import equinox as eqx
from jaxtyping import Array, Float

from unle.models.bases import AbstractBase
from unle.models.energy import AbstractEnergy


class TiltedModel(eqx.Module):
    """A base and the energy that tilts it, in standardised coordinates t of theta and w of x.

    Args:
        base: the normalised base density q0(w | t).
        energy: E(t, r), r the base's features of w.
    """

    base: AbstractBase
    energy: AbstractEnergy

    def log_density(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return log q0(w | t) - E, the log-likelihood up to the constant."""
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
