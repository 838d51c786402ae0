"""The record of draws: axes, numbers that judge them, round trips through files."""

import pickle

import numpy as np
import numpyro.distributions as dist
import pytest

import unle
from unle.errors import InputError
from unle.posterior import Draws


@pytest.fixture
def draws():
    """Chain c lives around 100 c and parameter k around k: any mix-up of the axes shows."""
    rng = np.random.default_rng(0)
    centres = 100.0 * np.arange(4)[:, None, None] + np.arange(2)
    values = (centres + rng.normal(size=(4, 50, 2))).astype(np.float32)
    info = {"acceptance": 0.25, "temperatures": [[0.1, 1.0], [1.0]]}
    return Draws(values, ("drift", "noise"), np.array([[1.0, 2.0, 3.0]]), 7, -12.5, info)


def test_as_an_array_chains_follow_one_another(draws):
    flat = np.asarray(draws)
    assert flat.shape == draws.shape == (200, 2)
    assert len(draws) == 200
    np.testing.assert_array_equal(flat[50:100], draws.values[1])
    assert np.asarray(draws, dtype=float).dtype == np.float64
    copied = np.array(draws, copy=True)
    copied[:] = 0
    assert draws.values[1].min() > 50


def test_means_are_those_of_the_array(draws):
    array = np.asarray(draws)
    np.testing.assert_array_equal(draws.mean(0), array.mean(axis=0))
    np.testing.assert_array_equal(np.mean(draws, axis=0), array.mean(axis=0))
    np.testing.assert_array_equal(np.std(draws, axis=0), array.std(axis=0))
    assert draws.std() == array.std()


def test_arviz_sees_the_axes(draws):
    tree = draws.to_arviz()
    assert tree["posterior"]["noise"].dims == ("chain", "draw")
    np.testing.assert_array_equal(tree["posterior"]["noise"].sel(chain=2, draw=5), draws.values[2, 5, 1])
    np.testing.assert_array_equal(tree["observed_data"]["x"], draws.x_o)


def test_arviz_sees_simulations_at_the_draws(draws):
    x = np.asarray(draws)[:, [0, 1, 0]]
    tree = draws.to_arviz(posterior_predictive=x)
    seen, observed = tree["posterior_predictive"]["x"], tree["observed_data"]["x"]
    assert seen.dims == ("chain", "draw", *observed.dims)
    np.testing.assert_array_equal(seen.sel(chain=2, draw=5)[0], draws.values[2, 5, [0, 1, 0]])
    for wrong in (x[:10], x[:, :2]):
        with pytest.raises(InputError, match="for each of 200 draws"):
            draws.to_arviz(posterior_predictive=wrong)


def test_draws_in_the_place_of_a_tree_say_what_to_hand_over(draws):
    with pytest.raises(InputError, match=r"draws\.to_arviz\(\)"):
        draws["posterior"]
    with pytest.raises(InputError) as caught:
        draws["typo"]
    assert "to_arviz" not in str(caught.value)


def test_several_rows_need_as_many_simulations_at_every_draw():
    draws = Draws(np.zeros((2, 5, 1)), ("a",), np.zeros((3, 4)), seed=0)
    with pytest.raises(InputError, match=r"np.repeat\(np.asarray\(draws\), 3, axis=0\)\).x.reshape"):
        draws.to_arviz(posterior_predictive=np.zeros((10, 4)))
    tree = draws.to_arviz(posterior_predictive=np.zeros((10, 3, 4)))
    assert tree.posterior_predictive["x"].shape == (2, 5, 3, 4)


def test_what_only_arviz_has_is_said_where_to_find(draws):
    with pytest.raises(AttributeError, match=r"draws have no attribute 'posterior'; try .*draws.to_arviz\(\)"):
        _ = draws.posterior
    name = draws.names[0]
    with pytest.raises(AttributeError, match=f'try draws."{name}".,'):
        getattr(draws, name)
    assert pickle.loads(pickle.dumps(draws)).names == draws.names


def test_summary_judges_chains_that_disagree(draws):
    apart = draws.summary()
    assert list(apart.index) == ["drift", "noise"]
    assert (apart["r_hat"] > 1.5).all()
    assert (apart["ess_bulk"] < 10).all()
    together = Draws(draws.values - 100 * np.arange(4, dtype=np.float32)[:, None, None], *_rest(draws)).summary()
    assert (together["r_hat"] < 1.1).all()
    assert (together["ess_bulk"] > 100).all()
    np.testing.assert_allclose(together["mean"], [0, 1], atol=0.3)


def test_summary_does_not_round_small_parameters_away(draws):
    small = Draws(1e-6 * draws.values, *_rest(draws)).summary()
    np.testing.assert_allclose(small["mean"], 1e-6 * np.asarray(draws, float).mean(0), rtol=1e-3)


def test_draws_survive_a_file(draws, tmp_path):
    path = draws.save(tmp_path / "draws.nc")
    assert [file.name for file in tmp_path.iterdir()] == ["draws.nc"]
    again = Draws.load(path)
    np.testing.assert_array_equal(again.values, draws.values)
    np.testing.assert_array_equal(again.x_o, draws.x_o)
    assert (again.names, again.seed, again.log_evidence, again.info) == _rest(draws)[:1] + (7, -12.5, draws.info)


def test_unknown_evidence_survives_a_file(draws, tmp_path):
    unknown = Draws(draws.values, draws.names, draws.x_o, 0)
    assert np.isnan(Draws.load(unknown.save(tmp_path / "draws.nc")).log_evidence)


def _rest(draws):
    return draws.names, draws.x_o, draws.seed, draws.log_evidence, draws.info


def test_a_name_with_a_slash_survives_files_and_tables(draws, tmp_path):
    named = Draws(draws.values, ("AB/PD Na", "noise"), draws.x_o, 7)
    assert "AB|PD Na" in named.to_arviz()["posterior"]
    again = Draws.load(named.save(tmp_path / "draws.nc"))
    assert again.names == named.names
    np.testing.assert_array_equal(again.values, named.values)
    assert list(named.summary().index) == ["AB/PD Na", "noise"]


def test_arviz_gets_counts_as_integers_and_the_prior_if_it_is_given():
    draws = Draws(np.zeros((2, 50, 1)), ("rate",), np.array([[3.0, 0.0]]), seed=0)
    counts = np.random.default_rng(0).poisson(2.0, size=(100, 2)).astype(float)
    prior = unle.Prior({"rate": dist.Gamma(2.0, 1.0)})
    tree = draws.to_arviz(counts, prior=prior, prior_predictive=counts[:30])
    assert tree.observed_data["x"].dtype == tree.posterior_predictive["x"].dtype == int
    assert tree.prior_predictive["x"].shape == (1, 30, 1, 2)
    assert tree.prior["rate"].shape == (2, 50)
    assert float(tree.prior["rate"].mean()) == pytest.approx(2.0, abs=0.6)  # four standard errors
    assert draws.to_arviz(counts + 0.5).observed_data["x"].dtype == float
    with pytest.raises(InputError, match="a prior of rate; got one of speed"):
        draws.to_arviz(prior=unle.Prior({"speed": dist.Normal(0.0, 1.0)}))


def test_draws_are_not_written_as_netcdf_into_a_table(tmp_path):
    draws = Draws(np.zeros((2, 10, 1)), ("a",), np.zeros((1, 1)), seed=0)
    with pytest.raises(InputError, match="draws.nc; got draws.csv; for tables try draws.to_pandas"):
        draws.save(tmp_path / "draws.csv")
    assert not list(tmp_path.iterdir())
