"""What all methods have in common: a prior, checked before anything else, and a short text about their settings."""

import equinox as eqx

from unle.arrays import brief
from unle.space import Prior, check_prior


class AbstractMethod(eqx.Module):
    """A way to learn a posterior from simulations of draws of a prior."""

    prior: eqx.AbstractVar[Prior]

    def __check_init__(self):
        check_prior(self.prior, self)

    def __repr__(self) -> str:
        """Show the prior and the settings that differ from the defaults."""
        return brief(self)
