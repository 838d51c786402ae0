"""The record of draws: axes, numbers that judge them, round trips through files."""

import pickle
from dataclasses import replace

import numpy as np
import numpyro.distributions as dist
import pytest

import unle
from unle.diagnose.summary import hdi
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


def test_summary_takes_the_words_of_arviz(draws):
    skewed = Draws(np.random.default_rng(1).exponential(size=draws.values.shape), *_rest(draws))
    one = skewed.summary(var_names="noise", hdi_prob=0.5)
    assert list(one.index) == ["noise"]
    assert one.loc["noise", "hdi50_ub"] == pytest.approx(hdi(skewed["noise"], 0.5)[1], rel=0.1)  # of 200 draws
    assert one.loc["noise", "hdi50_ub"] < 0.8 * np.quantile(skewed["noise"], 0.75)
    two = draws.summary(["noise", "drift"], ci_prob=0.8)
    assert list(two.index) == ["noise", "drift"]
    np.testing.assert_allclose(two["eti80_lb"], np.quantile(draws, 0.1, axis=0)[::-1], rtol=0.01)
    with pytest.raises(InputError, match=r"between 0 and 1 in the interval; got 94.0; try 0.95"):
        draws.summary(hdi_prob=94.0)
    with pytest.raises(InputError, match="one of the parameters drift, noise; got 'nose'"):
        draws.summary(var_names=["nose"])
    with pytest.raises(InputError, match=r"one of the parameters drift, noise; got '0\.9'"):
        draws.summary(0.9)
    with pytest.raises(InputError, match="keywords among var_names, ci_prob, hdi_prob; got `round_to`"):
        draws.summary(round_to=2)


def test_medians_are_there_and_quantiles_said_where(draws):
    np.testing.assert_array_equal(draws.median(axis=0), np.median(np.asarray(draws), axis=0))
    with pytest.raises(AttributeError, match=r"no attribute 'quantile'; try np\.quantile\(draws"):
        _ = draws.quantile
    assert np.quantile(draws, [0.025, 0.975], axis=0).shape == (2, 2)


def test_the_data_have_their_names_in_arviz_and_in_files(draws, tmp_path):
    named = replace(draws, x_names=("mean", "sd", "slope"))
    tree = named.to_arviz(posterior_predictive=np.zeros((200, 3)), prior_predictive=np.zeros((10, 3)))
    for group in ("observed_data", "posterior_predictive", "prior_predictive"):
        assert tree[group]["x"].sel(x_dim_1="sd").shape == tree[group]["x"].shape[:-1]
    assert float(tree["observed_data"]["x"].sel(x_dim_1="sd").item()) == 2.0
    assert Draws.load(named.save(tmp_path / "named.nc")).x_names == named.x_names
    assert Draws.load(draws.save(tmp_path / "draws.nc")).x_names == ()


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
