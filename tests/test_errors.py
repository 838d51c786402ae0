import pytest

import unle
from unle.errors import FitError, InputError, Outcome, StoreError, UnleError


@pytest.mark.parametrize(("error", "kind"), [(InputError, ValueError), (FitError, RuntimeError), (StoreError, OSError)])
def test_an_error_is_caught_by_its_kind_and_by_the_library_s_own(error, kind):
    for caught in (kind, UnleError):
        with pytest.raises(caught, match="^one sentence$"):
            raise error("one sentence")


def test_an_outcome_says_what_happened():
    assert str(Outcome.CONVERGED) == "Converged."
    assert [outcome.name for outcome in Outcome if not outcome.usable] == ["DIVERGED"]


def test_a_name_that_another_library_uses_is_answered_with_ours():
    prior = unle.Prior.uniform([0.0], [1.0])
    with pytest.raises(InputError, match="expected `n`; got `num_simulations`; try unle.simulate"):
        unle.simulate(lambda theta, rng: theta, prior, num_simulations=100)
    with pytest.raises(InputError, match="expected keywords among simulator, prior, n, .*; got `nonsense`"):
        unle.simulate(lambda theta, rng: theta, prior, 100, nonsense=1)


def test_settings_and_names_of_other_libraries_are_answered():
    prior = unle.Prior.uniform([0.0], [1.0])
    with pytest.raises(InputError, match="expected `base`; got `density_estimator`"):
        unle.AUNLE(prior, density_estimator="maf")
    with pytest.raises(InputError, match=r"got `training_batch_size`; try unle.AUNLE\(prior\).fit\(simulations\)"):
        unle.AUNLE(prior).fit(([[0.0]], [[1.0]]), training_batch_size=50)
    with pytest.raises(InputError, match="expected `budget`; got `num_simulations`"):
        unle.SUNLE(prior, lambda theta, rng: theta).run([1.0], num_simulations=100)
    with pytest.raises(AttributeError, match=r"try unle.Prior.uniform\(low, high\)"):
        _ = unle.BoxUniform
    with pytest.raises(AttributeError, match=r"numpyro.distributions.HalfNormal"):
        _ = unle.HalfNormal
    with pytest.raises(InputError, match="expected `mean`; got `mu`; try Prior.normal"):
        unle.Prior.normal(mu=0.0, sigma=1.0)
    with pytest.raises(InputError, match="expected `seed`; got `random_seed`"):
        unle.simulate(lambda theta, rng: theta, prior, 10, random_seed=1)
