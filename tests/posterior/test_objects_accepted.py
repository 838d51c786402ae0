"""Objects that users of scipy, sbi, pandas, xarray and ArviZ bring along."""

import importlib.util
import sys
from types import SimpleNamespace

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import xarray as xr
from numpyro import distributions as dist

import unle
from unle import plot
from unle.arrays import as_array, as_count, brief, column_names
from unle.diagnose import c2st_fast, conditional
from unle.errors import InputError, StoreError, UnleWarning
from unle.methods.abstract_method import round_sizes
from unle.methods.training_pairs import as_simulations, with_column_names
from unle.posterior import Draws, Posterior, TemperedSmc
from unle.samplers import Sweep
from unle.simulators import Simulations


class Tensor:
    """What a tensor of PyTorch with a gradient does: it refuses to become an array."""

    def __init__(self, values):
        self.values = np.asarray(values, np.float32)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.values


def torch_like(name, *bases, module="torch.distributions", **parameters):
    """Return an object of a class with this name and module."""
    return type(name, bases, {"__module__": module, **parameters})()


def like_torch():
    """Yield (name, distribution, equivalent of scipy) that look like those of PyTorch and sbi."""
    box = torch_like("Uniform", low=Tensor([-1.0, 0.0]), high=Tensor([1.0, 4.0]))
    independent = type(torch_like("Independent"))
    full = Tensor([[2.0, 0.5], [0.5, 1.0]])
    scipys = st.uniform([-1.0, 0.0], [2.0, 4.0]), st.multivariate_normal([1.0, 2.0], full.values)
    yield "Uniform", box, scipys[0]
    yield "Normal", torch_like("Normal", loc=Tensor(1.0), scale=Tensor(2.0)), st.norm(1.0, 2.0)
    yield "Independent", torch_like("Independent", base_dist=box), scipys[0]
    yield "BoxUniform", torch_like("BoxUniform", independent, module="sbi.utils.torchutils", base_dist=box), scipys[0]
    normal = torch_like("MultivariateNormal", loc=Tensor([1.0, 2.0]), covariance_matrix=full)
    yield "MultivariateNormal", normal, scipys[1]


SCIPY = [
    st.uniform(2, 3),
    st.norm(1, 2),
    st.lognorm(0.5, scale=2),
    st.lognorm(0.5, loc=1, scale=2),
    st.expon(1, 2),
    st.gamma(2, 1, 3),
    st.beta(2, 3, 1, 2),
    st.halfnorm(scale=2),
    st.halfcauchy(scale=2),
    st.cauchy(1, 2),
    st.t(4, 1, 2),
    st.truncnorm(-1, 2, 1, 2),
    st.truncnorm(0, np.inf, 1, 2),
    st.loguniform(0.1, 10),
    st.weibull_min(2, scale=3),
    st.pareto(3, scale=2),
    st.invgamma(3, scale=2),
    st.chi2(3),
    st.gumbel_r(1, 2),
    st.logistic(1, 2),
    st.laplace(1, 2),
]


@pytest.mark.parametrize("frozen", SCIPY, ids=lambda frozen: frozen.dist.name)
def test_frozen_distributions_of_scipy(frozen):
    prior = unle.Prior(frozen)
    theta = frozen.ppf([0.1, 0.5, 0.9])
    np.testing.assert_allclose(prior.log_prob(theta[:, None]), frozen.logpdf(theta), atol=1e-5)
    again = unle.Prior.from_spec(prior.spec())
    np.testing.assert_array_equal(again.bounds, prior.bounds)


@pytest.mark.parametrize(("name", "distribution", "same"), list(like_torch()), ids=lambda value: str(value)[:18])
def test_distributions_of_torch(name, distribution, same):
    prior = unle.Prior(distribution)
    theta = np.array([[0.5] * prior.dim, [0.8] * prior.dim])
    expected = same.logpdf(theta)
    expected = expected if expected.ndim == 1 else expected.sum(axis=1)
    np.testing.assert_allclose(prior.log_prob(theta), expected, atol=1e-5)


def test_torch_itself():
    torch = pytest.importorskip("torch")
    box = torch.distributions.Independent(torch.distributions.Uniform(torch.zeros(2), torch.ones(2)), 1)
    np.testing.assert_array_equal(unle.Prior(box).bounds[1], [1, 1])
    theta = torch.rand(64, 2, requires_grad=True)
    assert Simulations.from_arrays(theta, 2 * theta).x.shape == (64, 2)


def test_priors_do_not_import_torch():
    before = "torch" in sys.modules
    assert unle.Prior(st.norm()).dim == 1
    assert ("torch" in sys.modules) == before


def test_simulators_may_return_tensors():
    prior = unle.Prior.uniform([0, 0], [1, 1])
    assert unle.simulate(lambda theta, rng: Tensor(2 * theta), prior, 5).valid.all()
    named = unle.simulate(lambda theta, rng: {"a": Tensor(theta), "b": Tensor(1.0)}, prior, 5)
    assert named.x_names == ("a[0]", "a[1]", "b")


def test_a_list_and_a_dictionary_of_several_kinds():
    pair = torch_like("Uniform", low=Tensor([0.0, 0.0]), high=Tensor([1.0, 2.0]))
    assert unle.Prior([st.norm(), dist.Normal(0, 1), pair]).dim == 4
    prior = unle.Prior({"beta": st.uniform(0, 1), "gamma": dist.LogNormal(0, 1), "w": pair})
    assert prior.names == ("beta", "gamma", "w_1", "w_2")
    assert "beta ~ Uniform on [0, 1]" in repr(prior)
    wrapped = torch_like("OneDimPriorWrapper", prior=torch_like("Normal", loc=Tensor([0.0]), scale=Tensor([1.0])))
    several = torch_like("MultipleIndependent", dists=[pair, st.norm(), wrapped])
    assert unle.Prior(several).dim == 4


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"beta": (0, 1)}, "could mean limits or mean and width"),
        (st.kappa3(1.0), "expected one of the families beta, .*; got scipy.stats.kappa3"),
        (st.halfnorm, "expected a frozen distribution of scipy.stats; got halfnorm; try scipy.stats.halfnorm"),
        (st.poisson(3), "got scipy.stats.poisson, which is discrete; try one fit for each of its values"),
        (st.dirichlet([1, 1]), "expected one of the families beta, .*; got scipy.stats.dirichlet"),
        (torch_like("VonMises"), "got torch's VonMises"),
        (lambda theta: theta, "got a function"),
        ({}, "at least one distribution"),
    ],
)
def test_what_is_no_prior_gets_one_sentence(wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        unle.Prior(wrong)


THETA = np.random.default_rng(0).uniform(size=(40, 2))
X = np.column_stack([THETA, THETA.sum(axis=1)])
NAMES, X_NAMES = ["growth", "noise"], ["a", "b", "c"]
TABLES = {
    "list": (THETA.tolist(), X.tolist()),
    "numpy": (THETA, X),
    "pandas": (pd.DataFrame(THETA, columns=NAMES), pd.DataFrame(X, columns=X_NAMES)),
    "pandas in another order": (pd.DataFrame(THETA[:, ::-1], columns=NAMES[::-1]), pd.DataFrame(X, columns=X_NAMES)),
    "xarray": (
        xr.DataArray(THETA, dims=("row", "parameter"), coords={"parameter": NAMES}),
        xr.Dataset({name: ("row", X[:, i]) for i, name in enumerate(X_NAMES)}),
    ),
    "dictionary": (dict(zip(NAMES, THETA.T, strict=True)), dict(zip(X_NAMES, X.T, strict=True))),
    "torch": (Tensor(THETA), Tensor(X)),
    "list of tensors": ([Tensor(row) for row in THETA], [Tensor(row) for row in X]),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_to_fit(kind):
    prior = unle.Prior.uniform([0, 0], [1, 1], NAMES)
    record = as_simulations(TABLES[kind], prior)
    np.testing.assert_allclose(record.theta, THETA, rtol=1e-6)
    np.testing.assert_allclose(record.x, X, rtol=1e-6)
    named = kind not in ("list", "numpy", "torch", "list of tensors")
    assert record.x_names == (tuple(X_NAMES) if named else ())


def test_columns_with_other_names_than_the_prior_are_refused_unless_the_prior_has_none(posterior):
    table = pd.DataFrame(THETA, columns=["p", "q"])
    with pytest.raises(InputError, match="expected theta with the columns growth, noise, as the prior; got p, q"):
        as_simulations((table, X), unle.Prior.uniform([0, 0], [1, 1], NAMES))
    nameless = unle.Prior.uniform([0, 0], [1, 1])
    assert len(as_simulations((table, X), nameless)) == 40
    assert with_column_names(nameless, (table, X)).names == ("p", "q")
    np.testing.assert_array_equal(with_column_names(nameless, (table, X)).sample(3), nameless.sample(3))
    assert with_column_names(nameless, (THETA, X)) is nameless

    class Named(unle.NLE):
        def _fit(self, *arguments):
            return Posterior(self.prior, posterior.likelihood)

    assert Named(nameless).fit((table, X)).prior.names == ("p", "q")


def test_names_of_columns_may_name_the_prior():
    assert unle.Prior.uniform([0, 0], [1, 1], pd.DataFrame(THETA, columns=NAMES).columns).names == tuple(NAMES)
    assert column_names(pd.DataFrame(THETA)) == ()
    assert column_names(THETA) == ()


MIXED = pd.DataFrame(X, columns=X_NAMES).assign(b="yes")


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        ("three", "'three'; try np.loadtxt"),
        (object(), "object"),
        ([[1, 2], [3]], "a list of rows with 1 to 2 numbers"),
        (MIXED, "a DataFrame whose column 'b' holds something else"),
        (MIXED.assign(b=pd.Timestamp("2020-01-01")), "a DataFrame whose column 'b' holds something else"),
        (X + 1j, "ndarray of complex128"),
        (np.array(["2020-01-01"], "M8[D]"), "ndarray of datetime64"),
    ],
)
def test_what_holds_no_numbers_gets_one_sentence(wrong, got):
    with pytest.raises(InputError, match=f"expected `x` as an array of numbers; got {got}"):
        as_array(wrong, "x")


def test_what_is_missing_in_a_table_or_hidden_by_a_mask_is_nan():
    holes = np.where(X > 0.9, np.nan, X)
    masked = np.ma.masked_array(X, X > 0.9)
    for table in (pd.DataFrame(holes).astype("Float64"), pd.DataFrame(holes).astype(object), masked):
        np.testing.assert_array_equal(as_array(table, "x"), holes)
    whole = pd.DataFrame({"a": [1, 2, None]}, dtype="Int64")
    np.testing.assert_array_equal(as_array(whole, "x"), [[1], [2], [np.nan]])


def test_rows_of_two_tables_in_two_orders_are_refused():
    theta, x = pd.DataFrame(THETA, columns=NAMES), pd.DataFrame(X)
    prior, shuffled = unle.Prior.uniform([0, 0], [1, 1], NAMES), theta.sample(frac=1, random_state=0)
    with pytest.raises(InputError, match="the same index in two orders"):
        as_simulations((shuffled, x), prior)
    assert len(as_simulations((shuffled, x.loc[shuffled.index]), prior)) == 40
    assert len(as_simulations((theta, x.set_axis(x.index + 7)), prior)) == 40


def test_columns_of_theta_are_put_into_order_for_a_density(posterior):
    prior = posterior.prior
    theta = prior.sample(3)
    table = pd.DataFrame(theta[:, ::-1], columns=prior.names[::-1])
    np.testing.assert_array_equal(posterior.log_prob(table, OBSERVED), posterior.log_prob(theta, OBSERVED))
    np.testing.assert_array_equal(prior.log_prob(table), prior.log_prob(theta))


def test_theta_and_x_may_be_two_arguments(posterior, monkeypatch):
    fitted_to = []
    monkeypatch.setattr(unle.AUNLE, "_fit", lambda _, simulations, *__: fitted_to.append(simulations) or posterior)
    unle.AUNLE(posterior.prior).fit(THETA, X, seed=1)
    ((theta, x),) = fitted_to
    assert theta is THETA
    assert x is X


def test_theta_and_x_in_a_mapping_are_a_pair(tmp_path):
    np.savez(tmp_path / "made.npz", theta=THETA, x=X)
    prior = unle.Prior.uniform([0, 0], [1, 1])
    np.testing.assert_array_equal(as_simulations(np.load(tmp_path / "made.npz"), prior).x, X)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("made.npz", r"Simulations\.load"),
        ((THETA, X, X), r"fit\(\(theta, x\)\)"),
        (list(zip(THETA, X, strict=True)), r"fit\(\(theta"),
    ],
)
def test_what_is_no_pair_gets_one_sentence(wrong, hint):
    with pytest.raises(InputError, match=f"a pair .theta, x.; got .*; try .*{hint}"):
        as_simulations(wrong, unle.Prior.uniform([0, 0], [1, 1]))


@pytest.mark.parametrize(("n", "whole"), [(1000, 1000), (1e3, 1000), (np.int64(5), 5), (np.float32(4), 4)])
def test_whole_numbers(n, whole):
    assert as_count(n) == whole


@pytest.mark.parametrize("n", [2.5, 0, -1e3, "many", None, float("nan"), float("inf"), True])
def test_other_numbers_get_one_sentence(n):
    with pytest.raises(InputError, match="number of draws; got n = "):
        as_count(n)


@pytest.fixture
def untyped(monkeypatch):
    """Check no types, as where users are: the tests alone do."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize("seed", [None, "a", 2.5, 2**70, np.random.default_rng(0)], ids=str)
def test_a_seed_is_a_whole_number(posterior, seed, untyped):
    with pytest.raises(InputError, match="expected a whole number as seed; got .*; try seed=0"):
        posterior.sample(OBSERVED, 10, seed=seed)


@pytest.mark.parametrize("rounds", [2, 2.0, np.int64(2), [500, 500], np.array([500, 500])])
def test_a_budget_and_rounds_in_any_notation(rounds, untyped):
    assert round_sizes(1e3, rounds) == [500, 500]


@pytest.mark.parametrize(("budget", "rounds"), [(None, 2), ("many", 2), (2.5, 2), (100, None), (100, 2.5)])
def test_a_budget_that_is_no_number_gets_one_sentence(budget, rounds, untyped):
    with pytest.raises(InputError, match="number of (simulations|rounds); got (budget|rounds) = "):
        round_sizes(budget, rounds)


@pytest.mark.parametrize("prior", [st.norm(), dist.Normal(0, 1), torch_like("Normal")])
def test_a_distribution_is_no_prior_to_simulate_from(prior, untyped):
    with pytest.raises(InputError, match=r"expected a Prior; got a .*; try unle.Prior\(...\) around it"):
        unle.simulate(simulator, prior, 10)


def simulator(theta, rng):
    return theta


@pytest.mark.parametrize("method", [unle.AUNLE, unle.NLE, unle.SMNLE, unle.SUNLE, unle.SNLE])
def test_arguments_the_wrong_way_round(method, untyped):
    prior = unle.Prior.uniform([0.0], [1.0])
    with pytest.raises(
        InputError, match=f"expected a Prior as the first argument of {method.__name__}; got a function"
    ):
        method(simulator, prior)
    assert repr(method(prior)) == f"{method.__name__}(prior={prior!r})"


def test_settings_that_differ_from_the_defaults_are_shown():
    assert brief(unle.AUNLE(unle.Prior.normal([0.0], 1.0), members=2)).endswith(", members=2)")
    assert len(repr(unle.Prior.normal(np.zeros(31), 1.0))) < 200


@pytest.fixture(scope="module")
def posterior(linear_gaussian):
    prior, likelihood, _ = linear_gaussian.fitted(np.random.default_rng(0))
    return Posterior(prior, likelihood, TemperedSmc(islands=2, particles=200, sweep=Sweep(walks=2, langevin=0)))


OBSERVED = [104.0, 35.0]


@pytest.mark.parametrize(
    "x_o",
    [
        OBSERVED,
        np.array(OBSERVED),
        pd.Series(OBSERVED),
        pd.DataFrame([OBSERVED]),
        xr.DataArray(OBSERVED),
        Tensor(OBSERVED),
    ],
    ids=["list", "numpy", "series", "frame", "xarray", "torch"],
)
def test_observations(posterior, x_o):
    theta = posterior.prior.sample(3)
    np.testing.assert_array_equal(posterior.log_prob(Tensor(theta), x_o), posterior.log_prob(theta, OBSERVED))


UNIFORM = {
    "numpyro": [dist.Uniform(0.0, 1.0), dist.Uniform(0.0, 1.0)],
    "scipy": st.uniform([0.0, 0.0], [1.0, 1.0]),
    "torch": torch_like("Uniform", low=Tensor([0.0, 0.0]), high=Tensor([1.0, 1.0])),
    "dictionary": {"growth": st.uniform(0, 1), "noise": dist.Uniform(0.0, 1.0)},
}
AS_DATA = {
    "list": lambda values, names: np.asarray(values).tolist(),
    "numpy": lambda values, names: np.asarray(values),
    "pandas": lambda values, names: pd.DataFrame(np.atleast_2d(values), columns=names),
    "xarray": lambda values, names: xr.DataArray(np.atleast_2d(values), dims=("row", "k"), coords={"k": names}),
    "torch": lambda values, names: Tensor(values),
}
if importlib.util.find_spec("torch"):  # the real ones, where they are: nothing of the library needs them
    import torch

    UNIFORM["torch itself"] = torch.distributions.Independent(
        torch.distributions.Uniform(torch.zeros(2, requires_grad=True), torch.ones(2)), 1
    )
    AS_DATA |= {
        "float32 of torch": lambda values, names: torch.as_tensor(values, dtype=torch.float32),
        "bfloat16 of torch": lambda values, names: torch.as_tensor(np.asarray(values)).bfloat16(),
        "torch with a gradient": lambda values, names: torch.as_tensor(np.asarray(values)).requires_grad_(),
        "rows of torch": lambda values, names: list(torch.as_tensor(np.asarray(values)).requires_grad_()),
    }
if importlib.util.find_spec("sbi"):
    from sbi.utils import BoxUniform
    from sbi.utils.user_input_checks import process_prior

    box = BoxUniform(torch.zeros(2), torch.ones(2))
    parts = [torch.distributions.Uniform(torch.zeros(1), torch.ones(1)) for _ in range(2)]
    UNIFORM |= {"sbi's box": box, "sbi's box, processed": process_prior(box)[0]}
    UNIFORM |= {"sbi's list, processed": process_prior(parts)[0]}


@pytest.mark.parametrize("data", AS_DATA)
@pytest.mark.parametrize("kind", UNIFORM)
def test_objects_accepted(posterior, kind, data):
    """Every kind of prior with every kind of data, from the simulations over draws to ArviZ and back."""
    prior = unle.Prior(UNIFORM[kind], None if kind == "dictionary" else NAMES)
    assert prior.names == tuple(NAMES)
    convert = AS_DATA[data]
    record = as_simulations((convert(THETA, NAMES), convert(X, X_NAMES)), prior)
    accuracy = 0.01 if data.startswith("bfloat16") else 1e-6
    np.testing.assert_allclose(record.theta, THETA, rtol=accuracy)
    np.testing.assert_allclose(record.x, X, rtol=accuracy)
    fitted = Posterior(prior, posterior.likelihood)
    values = fitted.log_prob(convert(THETA[:3], NAMES), convert(OBSERVED, ["a", "b"]))
    there = fitted.log_prob(
        as_array(convert(THETA[:3], NAMES), "theta"), as_array(convert(OBSERVED, ["a", "b"]), "x_o")
    )
    np.testing.assert_allclose(values, there, rtol=1e-5)
    drawn = Draws(record.theta.reshape(2, -1, 2), prior.names, np.array([OBSERVED]), seed=0)
    tree = drawn.to_arviz()
    assert set(tree["posterior"].data_vars) == set(NAMES)
    np.testing.assert_array_equal(Draws.from_arviz(tree)["noise"], record.theta[:, 1])


@pytest.fixture(scope="module")
def draws(posterior):
    return posterior.sample(OBSERVED, 2e2, seed=0)


def test_draws_by_name_as_a_table_and_as_text(draws, tmp_path):
    first = draws.names[0]
    np.testing.assert_array_equal(draws[first], np.asarray(draws)[:, 0])
    np.testing.assert_array_equal(draws[list(draws.names)], np.asarray(draws))
    np.testing.assert_array_equal(draws[:5], np.asarray(draws)[:5])
    with pytest.raises(InputError, match="expected one of the parameters .*; got 'delta'"):
        draws["delta"]
    table = draws.to_pandas()
    assert tuple(table.columns) == draws.names
    assert len(table) == len(draws)
    assert repr(draws).startswith(f"Draws({len(draws)} of {first}, ")
    with pytest.raises(StoreError, match="nowhere/draws.nc could not be written"):
        draws.save(tmp_path / "nowhere" / "draws.nc")
    with pytest.raises(StoreError, match="could not be read"):
        Draws.load(tmp_path / "missing.nc")


def test_the_summary_fits_on_a_screen_and_has_central_intervals(draws):
    table = draws.summary()
    assert {"mean", "sd", "eti95_lb", "eti95_ub", "ess_bulk", "ess_tail", "r_hat"} == set(table.columns)
    np.testing.assert_allclose(table["eti95_lb"], np.quantile(np.asarray(draws, float), 0.025, axis=0), rtol=0.05)
    assert max(map(len, str(table).splitlines())) <= 80


def test_a_posterior_says_what_it_is_in_a_few_lines(posterior):
    lines = repr(posterior).splitlines()
    assert len(lines) <= 6
    assert max(map(len, lines)) <= 120
    assert lines[2] == "  likelihood: EnergyLikelihood (ConditionalGaussian, NoEnergy)"
    assert lines[3] == "  x: 2 numbers"
    assert "TemperedSmc(islands=2, particles=200" in lines[-1]


def test_an_observation_far_from_the_simulations_gives_one_warning(posterior):
    with pytest.warns(UnleWarning, match=r"x_o\[0\] .*; x_o\[1\]") as caught:
        posterior.log_prob(posterior.prior.sample(1), [1e5, -1e5])
    assert len(caught) == 1


def test_arviz_there_and_back(draws):
    tree = draws.to_arviz()
    for data in (
        tree,
        tree["posterior"].to_dataset(),
        SimpleNamespace(posterior=tree["posterior"].to_dataset(), attrs={}),
    ):
        again = Draws.from_arviz(data)
        assert again.names == draws.names
        np.testing.assert_array_equal(again.values, draws.values)
    vector = xr.Dataset({"a": (("chain", "draw", "k"), np.zeros((2, 5, 3)))})
    assert Draws.from_arviz(vector).names == ("a[0]", "a[1]", "a[2]")
    with pytest.raises(InputError, match="group `posterior`"):
        Draws.from_arviz(xr.Dataset({"a": ("row", np.zeros(3))}))


def test_what_cannot_be_saved_leaves_nothing_behind(draws, tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(StoreError, match="taken could not be written: Is a directory"):
        draws.save(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    (tmp_path / "notes.nc").write_text("no draws")
    with pytest.raises(StoreError, match="could not be read: it is no NetCDF file"):
        Draws.load(tmp_path / "notes.nc")
    with pytest.raises(StoreError, match="could not be read: there is no such file"):
        Draws.load(tmp_path / "missing.nc")


@pytest.mark.parametrize("names", [("a", "a"), ("a",), ("a", ""), ("chain", "a"), ("a/b", "a|b")])
def test_draws_have_names_that_tables_and_files_can_tell_apart(draws, names):
    with pytest.raises(InputError, match="names"):
        Draws(draws.values[..., :2], names, draws.x_o, 0)


def test_scores_take_tensors(draws):
    values = np.asarray(draws, np.float32)
    assert c2st_fast(Tensor(values), draws) < 0.6


def test_figures_take_priors_draws_arviz_tables_and_arrays(posterior, draws):
    figure = plot.marginals(draws, prior=posterior.prior)
    assert [axis.get_title() for axis in figure.axes] == list(draws.names)
    for values in (draws.to_arviz(), draws.to_pandas()):
        axes = plot.pairs(values).axes
        assert axes[-1].get_xlabel() == draws.names[-1]
    assert len(plot.pairs(np.asarray(draws), reference=posterior.prior).axes) == 3
    with pytest.raises(InputError, match="`draws` of shape"):
        plot.pairs([1.0, 2.0])


def test_priors_without_bounds_have_limits(posterior):
    low, high = posterior.prior.limits()
    assert np.isfinite(low).all()
    assert (low < high).all()
    centre = posterior.prior.sample(1)[0]
    record = conditional(posterior, OBSERVED, centre, points=5)
    np.testing.assert_allclose(record.axes[:, [0, -1]], np.stack([low, high], axis=1))
    assert len(plot.likelihood_slices(posterior, OBSERVED, centre).axes) >= 2
    bounded = unle.Prior([dist.Uniform(0, 1), dist.HalfNormal(1.0)])
    np.testing.assert_array_equal(np.isfinite(bounded.bounds[1]), [True, False])
    assert bounded.limits()[0].tolist() == [0, 0]
    assert 2 < bounded.limits()[1][1] < 5
