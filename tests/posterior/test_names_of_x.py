"""Observations whose entries have names: they are matched with those of the simulations, never taken by position."""

import numpy as np
import pandas as pd
import pytest

import unle
from unle.arrays import in_order
from unle.cli.observation import Observation, read_observation
from unle.errors import InputError, UnleWarning
from unle.methods.rounds import RoundState
from unle.posterior import Posterior
from unle.train import EnergyTraining, GaussianTraining

PRIOR = unle.Prior.uniform(low=[0.0, 0.0], high=[1.0, 1.0], names=["a", "b"])
QUICK = {"base": GaussianTraining(iterations=1), "training": EnergyTraining(iterations=1), "members": 1}
RIGHT = {"p": 0.2, "q": 0.8}
TURNED = [
    pytest.param({"q": 0.8, "p": 0.2}, id="dictionary"),
    pytest.param({"q": np.array([0.8]), "p": np.array([0.2])}, id="dictionary of columns"),
    pytest.param(pd.Series({"q": 0.8, "p": 0.2}), id="series"),
    pytest.param(pd.DataFrame({"q": [0.8], "p": [0.2]}), id="table"),
    pytest.param(pd.Series({"q": 0.8, "p": 0.2}).to_frame(), id="column"),
    pytest.param([0.2, 0.8], id="no names"),
]


@pytest.fixture(scope="module")
def simulations():
    rng = np.random.default_rng(0)
    theta = rng.uniform(size=(200, 2))
    return theta, pd.DataFrame(theta + 0.1 * rng.normal(size=theta.shape), columns=["p", "q"])


@pytest.fixture(scope="module")
def posterior(simulations):
    return unle.AUNLE(PRIOR, **QUICK).fit(*simulations, seed=1)


@pytest.mark.parametrize("x_o", TURNED)
def test_names_decide_not_the_order(posterior, x_o):
    theta = [[0.2, 0.8], [0.8, 0.2]]
    assert np.array_equal(posterior.log_prob(theta, x_o), posterior.log_prob(theta, RIGHT))
    assert posterior.log_prob(theta, x_o)[0] > posterior.log_prob(theta, x_o)[1]


def test_other_names_are_refused(posterior):
    with pytest.raises(InputError, match="names that the simulations have, p, q; it lacks q and it has u"):
        posterior.log_prob([0.2, 0.8], {"p": 0.2, "u": 0.8})
    with pytest.raises(InputError, match="it has Unnamed: 0"):  # an index that was written into a file
        posterior.log_prob([0.2, 0.8], pd.DataFrame({"Unnamed: 0": [0], "p": [0.2], "q": [0.8]}))


def test_warnings_say_the_name_and_point_at_the_call(posterior):
    with pytest.warns(UnleWarning, match="q = 50 lies outside the simulations") as heard:
        posterior.log_prob([0.2, 0.8], {"q": 50.0, "p": 0.2})
    assert heard[0].filename == __file__


def test_draws_have_the_names_of_their_data_in_the_order_of_the_simulations(posterior):
    draws = posterior.sample({"q": 0.8, "p": 0.2}, 100, sampler=unle.Chains(chains=2, warm_up=2))
    observed = draws.to_arviz()["observed_data"]["x"]
    assert draws.x_names == ("p", "q")
    assert float(observed.sel(x_dim_1="q").item()) == pytest.approx(0.8)


def test_names_are_saved(posterior, tmp_path):
    posterior.save(tmp_path / "kept")
    assert Posterior.load(tmp_path / "kept").x_names == ("p", "q")


def test_rounds_put_the_observation_into_the_order_of_their_first_simulations(simulations):
    theta, x = simulations
    state = RoundState.begin(PRIOR, {"q": 0.8, "p": 0.2}, [200], seed=0)
    state, _ = state.with_simulations(unle.Simulations.from_arrays(theta, x))
    assert state.x_o.tolist() == [[0.2, 0.8]]
    state = RoundState.begin(PRIOR, {"u": 0.8, "p": 0.2}, [200], seed=0)
    with pytest.raises(InputError, match="it lacks q and it has u"):
        state.with_simulations(unle.Simulations.from_arrays(theta, x))


def test_a_file_has_the_names_of_its_header(tmp_path):
    file = tmp_path / "x_o.csv"
    file.write_text("x.q,x.p\n0.8,0.2\n")
    read = read_observation(str(file), None)
    assert in_order(read.of_length(2), ("p", "q")).tolist() == [[0.2, 0.8]]
    again = Observation.from_record(read.record())
    assert again is not None
    assert again.names == ("q", "p")


def test_an_observation_like_a_result_of_the_simulator_is_taken_apart():
    x_o = {"cases": np.array([3.0, 5.0]), "deaths": 1.0}
    assert in_order(x_o, ["deaths", "cases[0]", "cases[1]"]).tolist() == [1.0, 3.0, 5.0]
