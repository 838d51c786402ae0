"""Programs whose parameters have names: those of the prior, in its order."""

import pytest
from numpyro import distributions as dist

import unle
from unle.errors import InputError, UnleWarning
from unle.simulators import dry_run

PRIOR = unle.Prior({"b": dist.Normal(100.0, 1.0), "a": dist.Normal(0.0, 1.0)})


@pytest.mark.parametrize("names", [["a", "b"], ["b"], ["lambda", "phi"]])
def test_other_names_than_those_of_the_prior_are_refused(names):
    program = unle.command(["echo", "{theta[0]}"], names=names)
    for use in (lambda: unle.simulate(program, PRIOR, 2), lambda: dry_run(program, PRIOR)):
        with pytest.raises(InputError, match=r"try names=\['b', 'a'\]"):
            use()


def test_the_same_names_are_taken_and_any_with_a_prior_without():
    program = unle.command(["echo", "{b}", "{a}"], names=["b", "a"])
    for prior in (PRIOR, unle.Prior.normal([100.0, 0.0], [1.0, 1.0])):
        made = unle.simulate(program, prior, 2, seed=0)
        assert abs(made.x - made.theta).max() < 1e-4


def test_few_simulations_that_all_fail_are_told():
    with pytest.warns(UnleWarning, match="no simulation is valid .*returned nothing"):
        unle.simulate(lambda theta, rng: None, PRIOR, 5, seed=0)
