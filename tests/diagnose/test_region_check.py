"""The part of a posterior that the rounds of a sequential run cut off."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import t as student

from unle.diagnose.record import NotApplicable
from unle.diagnose.region_check import region_mass
from unle.models import GivenValid, Region, TractableLikelihood
from unle.posterior import Draws, Posterior
from unle.space import Prior, fit_theta_space

NOISE = 0.3
PRIOR = Prior.uniform(low=[-3.0, -3.0], high=[3.0, 3.0], names=["a", "b"])
X_O = np.array([4.5, 0.0])


class StudentNoise(TractableLikelihood):
    """x = theta + noise with a Student t of three degrees of freedom."""

    def prepare(self, x):
        return x

    def log_likelihood(self, theta, w):
        return -2.0 * jnp.sum(jnp.log1p(((w - theta) / NOISE) ** 2 / 3))


def confined(low: float) -> tuple[Posterior, Draws, float]:
    """Return the posterior where a > low, draws of it, and the exact mass outside in units of that inside."""
    rng = np.random.default_rng(0)
    a, b = np.linspace(-3, 3, 60_001), np.linspace(-3, 3, 6001)
    of_a, of_b = (student.pdf((grid - x) / NOISE, 3) for grid, x in zip((a, b), X_O, strict=True))
    inside = np.where(a > low, of_a, 0.0)
    values = np.stack([rng.choice(grid, 2000, p=mass / mass.sum()) for grid, mass in ((a, inside), (b, of_b))], axis=1)
    space = fit_theta_space(np.asarray(PRIOR.sample(500, seed=1)))
    corners = np.asarray([space.forward(jnp.asarray(corner)) for corner in ([low, -3.0], [3.0, 3.0])])
    region = Region(space, jnp.asarray(corners[0]), jnp.asarray(corners[1]))
    draws = Draws(values.reshape(4, 500, 2), PRIOR.names, X_O[None], 0)
    return Posterior(PRIOR, GivenValid(StudentNoise(), region)), draws, of_a[a <= low].sum() / inside.sum()


@pytest.mark.parametrize(("low", "verdict"), [(1.5, "doubtful"), (-2.9, "good")])
def test_a_tail_that_was_cut_off_is_seen(low, verdict):
    posterior, draws, exact = confined(low)
    check = region_mass(posterior, draws)
    assert check.verdict == verdict
    np.testing.assert_allclose(check.numbers["outside"], exact, rtol=0.1, atol=0.005)
    if verdict == "doubtful":
        assert "along a" in check.advice


def test_a_posterior_without_a_region_is_not_asked():
    draws = Draws(np.zeros((4, 50, 2)), PRIOR.names, X_O[None], 0)
    with pytest.raises(NotApplicable):
        region_mass(Posterior(PRIOR, StudentNoise()), draws)
