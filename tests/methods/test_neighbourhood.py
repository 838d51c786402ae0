"""Which data a sequential likelihood is fitted to, and what becomes of the others."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from unle.methods import SUNLE, region_fit
from unle.methods.region_fit import REACH, TWO_THIRDS, Neighbourhood
from unle.methods.round_state import Round
from unle.methods.rounds import RoundState
from unle.models import AlwaysValid
from unle.space import Prior
from unle.train import GaussianTraining, ValidityFit, ValidityTraining, fit_validity

PRIOR = Prior.uniform([-2.0], [2.0])
NOISE = 0.3
X_O = 0.5
BUDGET = 500  # one for all: what is compiled for it serves again


def test_a_box_around_the_observation_in_units_of_the_data():
    rng = np.random.default_rng(0)
    w = rng.normal([0.0, 5.0], [1.0, 10.0], size=(20_000, 2))
    box = Neighbourhood.of(np.array([[0.0, 5.0]]), w)
    # The error of a quantile is sqrt(p (1 - p) / n) over the density there, of |z| at 1.
    error = np.sqrt(TWO_THIRDS * (1 - TWO_THIRDS) / len(w)) / (2 * norm.pdf(1.0))
    assert np.all(np.abs(box.reach / (REACH * norm.ppf((1 + TWO_THIRDS) / 2) * np.array([1.0, 10.0])) - 1) < 4 * error)
    assert box.contains(np.array([[2.8, 5.0], [3.2, 5.0], [0.0, 33.0], [0.0, 37.0]])).tolist() == [1, 0, 1, 0]


def test_it_holds_the_observation_and_half_of_the_data_however_far_they_are():
    rng = np.random.default_rng(0)
    w_o = rng.normal(0.0, 0.1, size=(3, 40))
    w = rng.standard_t(1.5, size=(1000, 40))  # heavy tails in many coordinates
    box = Neighbourhood.of(w_o, w)
    assert box.contains(w_o).all()
    assert 0.5 <= box.contains(w).mean() < 0.6
    tight = Neighbourhood(box.low, box.high, box.reach / 2)
    assert tight.contains(w).mean() < 0.5
    assert Neighbourhood.of(w_o + 10_000.0, w).contains(w).all()


def test_coordinates_that_hardly_vary():
    w = np.column_stack([np.linspace(-1, 1, 101), np.zeros(101), np.zeros(101)])
    w[:20, 1] = 7.0
    w[0, 1] = 1000.0
    box = Neighbourhood.of(np.zeros((1, 3)), w)
    assert box.contains(w).tolist() == [False] + 100 * [True]
    assert box.reach[2] == np.inf


@pytest.mark.parametrize("rows", [1, 10, 50])
def test_rows_of_an_observation_do_not_hide_what_is_far(rows):
    rng = np.random.default_rng(rows)
    w_o, w = rng.normal(size=(rows, 3)), rng.normal(size=(1000, 3))
    w[:50] += 40.0
    near = Neighbourhood.of(w_o, w).contains(w)
    assert not near[:50].any()
    assert near[50:].mean() > 0.95


def simulated(theta, seed):
    """N(theta, 0.3^2), more often nothing or something far away the larger theta is."""
    rng = np.random.default_rng(seed)
    x = theta + NOISE * rng.normal(size=theta.shape)
    fate = rng.uniform(size=theta.shape)
    x = np.where(fate < 0.4 * share_lost(theta), np.nan, x)
    return np.where((fate >= 0.4 * share_lost(theta)) & (fate < share_lost(theta)), theta + 40.0, x)


def share_lost(theta):
    return 1 / (1 + np.exp(-3 * (theta - 0.5)))


@pytest.fixture(scope="module")
def one_round() -> RoundState:
    base = GaussianTraining(width=8, depth=1, iterations=200, batch=128, chunk=50)
    method = SUNLE(PRIOR, base=base, proposals="bases", members=2)
    state = method.begin([X_O], budget=3000, rounds=[2000, 1000], seed=0)
    theta = state.propose()
    settings = ValidityTraining(members=4, width=32, iterations=2000, patience=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region_fit, "fit_validity", partial(fit_validity, settings=settings))
        return method.update(state, (theta, simulated(theta, 1)))


def test_far_data_count_as_failures(one_round):
    sims = one_round.simulations
    near = one_round.fitting.near(sims)
    assert not near[~sims.valid].any()
    np.testing.assert_array_equal(near, sims.valid & (sims.x[:, 0] < 20))
    assert len(one_round.fitting.rows.t) == near.sum()
    assert one_round.fitting.validity is not None
    assert one_round.fitting.validity.rate == pytest.approx(near.mean())


def _on_grid(state):
    theta = np.linspace(-2, 2, 2001)
    points = jnp.asarray(theta[:, None], jnp.float32)
    lost = np.asarray(eqx.filter_jit(eqx.filter_vmap(state.fitting.validity.validity))(points), float)
    target = state.fitting.restrict(state.fitting.likelihood)
    w = target.prepare(jnp.asarray([X_O], jnp.float32))
    log_target = np.asarray(jax.jit(jax.vmap(lambda point: target.log_likelihood(point, w)))(points), float)
    return theta, np.exp(log_target - log_target.max()), np.exp(lost)


def test_both_factors_make_the_posterior_and_one_does_not(one_round):
    theta, target, chance = _on_grid(one_round)
    exact = np.exp(-0.5 * ((X_O - theta) / NOISE) ** 2) * (1 - share_lost(theta))
    mean, sd = _moments(theta, exact)
    found, _ = _moments(theta, target)
    without, _ = _moments(theta, target / chance)
    assert abs(found - mean) < 0.15 * sd  # some 250 simulations are within two sd of it
    assert abs(without - mean) > 0.3 * sd


def test_proposals_have_the_second_factor_twice(one_round):
    assert one_round.history[0].temperature == 1
    theta, target, chance = _on_grid(one_round)
    drawn = np.interp(one_round.proposals[:, 0], theta, chance)
    (once, _), (twice, _) = _moments(chance, target), _moments(chance, target * chance)
    error = drawn.std() / np.sqrt(len(drawn) / 4)  # draws of the sampler are not quite independent
    assert abs(drawn.mean() - twice) < 4 * error
    assert abs(drawn.mean() - once) > 4 * error


def _moments(values, weights):
    weights = weights / weights.sum()
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


def test_without_failures_all_data_count():
    base = GaussianTraining(width=8, depth=1, iterations=50, batch=64, chunk=50)
    method = SUNLE(PRIOR, base=base, proposals="bases", members=1)
    state = method.begin([X_O], budget=BUDGET, rounds=[100, 400], seed=0)
    theta = state.propose()
    state = method.update(state, (theta, np.where(np.arange(100)[:, None] < 5, theta + 40.0, theta)))
    assert state.fitting.near(state.simulations).all()
    assert len(state.fitting.rows.t) == 100
    assert state.fitting.validity is None


class Flags:
    """Stands for `fit_validity`: keeps what it was given, and found that it does not depend on theta."""

    def __init__(self):
        self.valid = []

    def __call__(self, key, theta, valid, **options):
        self.valid.append(np.asarray(valid))
        return ValidityFit(AlwaysValid(), float(np.mean(valid)), 0.0, 0.0, 0.0, depends=False)


def test_data_are_kept_if_nothing_can_be_learned_of_where_they_come_out_far(monkeypatch):
    flags = Flags()
    monkeypatch.setattr(region_fit, "fit_validity", flags)
    base = GaussianTraining(width=8, depth=1, iterations=50, batch=64, chunk=50)
    method = SUNLE(PRIOR, base=base, proposals="bases", members=1)
    state = method.begin([X_O], budget=BUDGET, rounds=[400, 100], seed=0)
    theta = state.propose()
    x = simulated(theta, 2)
    state = method.update(state, (theta, x))
    far, lost = x[:, 0] > 20, np.isnan(x[:, 0])
    assert far.sum() > 20
    for found, expected in zip(flags.valid, [~(far | lost), ~lost], strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(state.fitting.rows.t) == (~lost).sum()


def test_a_round_with_few_valid_simulations_borrows_from_those_before(monkeypatch):
    monkeypatch.setattr(region_fit, "fit_validity", Flags())
    base = GaussianTraining(width=8, depth=1, iterations=50, batch=64, chunk=50)
    method = SUNLE(PRIOR, base=base, proposals="bases", members=1)
    state = method.begin([X_O], budget=BUDGET, rounds=[200, 40, 260], seed=0)
    theta = state.propose()
    state = state.recall(
        (theta, simulated(theta, 3)), Round(0, 200, 1.0, 0, 1.0, 0.0, 1.0, 0.0), np.linspace(0.0, 1.0, 1000)[:, None]
    )
    last = np.linspace(0.4, 0.6, 40)[:, None]
    seen, plain = [], Neighbourhood.of

    def of(w_o, w):
        seen.append(len(w))
        return plain(w_o, w)

    monkeypatch.setattr(Neighbourhood, "of", staticmethod(of))
    method.update(state, (last, last))
    assert seen == [64]
