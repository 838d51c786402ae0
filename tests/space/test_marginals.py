"""Marginal transforms: laws over all kinds, and the choice among them on data with a known answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unle.errors import InputError
from unle.space.marginals import ASINH, IDENTITY, KINDS, LOG, YEO_JOHNSON, Marginals, choose_marginals

# kind, centre, scale, floor, power: all kinds side by side, as they are used
COORDINATES = [
    (IDENTITY, 0.0, 1.0, 1.0, 1.0),
    (LOG, 0.0, 1.0, 1e-9, 1.0),
    (LOG, 0.0, 1.0, 0.5, 1.0),
    (ASINH, 2.0, 0.1, 1.0, 1.0),
    (ASINH, -3.0, 50.0, 1.0, 1.0),
    (YEO_JOHNSON, 1.0, 2.0, 1.0, 0.0),
    (YEO_JOHNSON, 1.0, 0.5, 1.0, 0.4),
    (YEO_JOHNSON, 0.0, 1.0, 1.0, 1.0),
    (YEO_JOHNSON, -1.0, 2.0, 1.0, 1.6),
    (YEO_JOHNSON, 0.0, 1.0, 1.0, 2.0),
]
DIM = len(COORDINATES)


def marginals_of(coordinates):
    kind, *rest = zip(*coordinates, strict=True)
    centre, scale, floor, power = (jnp.array(values, jnp.float32) for values in rest)
    return Marginals(kind=jnp.array(kind, jnp.int32), centre=centre, scale=scale, floor=floor, power=power)


ALL = marginals_of(COORDINATES)
# From far below zero through every floor, centre and seam to far above.
LINE = np.concatenate([-np.logspace(6, -6, 60), [0.0, 1e-9, 0.5, 1.0, 2.0, -3.0, -1.0], np.logspace(-8, 6, 70)]).astype(
    np.float32
)
LINE = np.unique(LINE)


def on_line(function):
    """Apply to every coordinate the same values, one after the other."""
    return np.asarray(jax.jit(jax.vmap(function))(jnp.asarray(LINE[:, None] * np.ones(DIM, np.float32))))


@pytest.mark.usefixtures("strict_ranks")
def test_inverse_undoes_forward():
    back = on_line(lambda v: ALL.inverse(ALL.forward(v)))
    scale = np.maximum(np.abs(LINE)[:, None], np.array([row[2] for row in COORDINATES]))
    assert np.max(np.abs(back - LINE[:, None]) / scale) < 3e-5


def test_forward_undoes_inverse():
    w = jnp.asarray(np.linspace(-8, 8, 81, dtype=np.float32)[:, None] * np.ones(DIM, np.float32))
    again = jax.jit(jax.vmap(lambda w: ALL.forward(ALL.inverse(w))))(w)
    assert np.max(np.abs(again - w) / (1 + np.abs(w))) < 1e-4


def test_forward_is_increasing_and_finite_everywhere():
    w = on_line(ALL.forward)
    assert np.isfinite(w).all()
    assert (np.diff(w, axis=0) >= 0).all()
    farther_apart = np.diff(LINE) > 1e-5 * np.abs(LINE[1:])
    assert farther_apart.sum() > 100
    # A step that is lost in float32 after a shift by the centre may leave w equal; a visible one may not.
    visible = np.diff(LINE)[:, None] > 1e-6 * np.maximum(
        np.abs(LINE[1:, None]), [abs(r[1]) + r[2] for r in COORDINATES]
    )
    assert (np.diff(w, axis=0) > 0)[visible].all()


def test_log_det_is_that_of_the_jacobian():
    log_det = on_line(ALL.log_det)
    jacobian = on_line(jax.jacfwd(ALL.forward)).astype(np.float64)
    off_diagonal = jacobian[:, ~np.eye(DIM, dtype=bool)]
    assert (off_diagonal == 0).all()
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-5, atol=1e-3)


def test_gradients_are_finite_in_both_directions():
    assert np.isfinite(on_line(jax.grad(ALL.log_det))).all()
    assert np.isfinite(on_line(jax.jacrev(ALL.forward))).all()
    wide = jnp.asarray(np.array([-200.0, -60.0, 0.0, 60.0, 200.0], np.float32)[:, None] * np.ones(DIM, np.float32))
    assert np.isfinite(jax.jit(jax.vmap(jax.jacrev(ALL.inverse)))(wide)).all()
    assert np.isfinite(jax.jit(jax.vmap(ALL.inverse))(wide)).all()


def test_table_on_the_host_agrees():
    values = np.linspace(-3, 9, 25)[:, None] * np.ones(DIM)
    expected = jax.jit(jax.vmap(ALL.forward))(jnp.asarray(values, jnp.float32))
    np.testing.assert_allclose(ALL.forward_table(values), expected, rtol=1e-4, atol=1e-4)


def test_log_goes_on_linearly_below_its_floor():
    m = marginals_of([(LOG, 0.0, 1.0, 0.5, 1.0)])
    below = np.asarray(jax.jit(jax.vmap(m.forward))(jnp.array([[-1.5], [-0.5], [0.5]])))[:, 0]
    np.testing.assert_allclose(below, np.log(0.5) + np.array([-4.0, -2.0, 0.0]), rtol=1e-5)


def scale_mixture(rng, n):
    """Gaussian given theta = (mean, root of the sd), kurtosis about 6: a typical Gaussian likelihood."""
    theta = rng.uniform(-3, 3, (n, 2))
    return theta[:, 0] + theta[:, 1] ** 2 * rng.normal(size=n)


IDENTITY_DATA = {
    "normal": lambda rng, n: 3 + 2 * rng.normal(size=n),
    "far from zero": lambda rng, n: 1e4 + rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(0, 10, n),
    "kurtosis 5": lambda rng, n: rng.normal(size=n) * np.sqrt(rng.choice([0.3, 1.7], n)),
    "scale mixture": scale_mixture,
    "laplace": lambda rng, n: rng.laplace(size=n),
    "ring": lambda rng, n: np.cos(rng.uniform(0, 2 * np.pi, n)) + 0.1 * rng.normal(size=n),
    "two clusters": lambda rng, n: rng.choice([-1.0, 1.0], n) + 0.1 * rng.normal(size=n),
    "unequal clusters": lambda rng, n: np.where(rng.random(n) < 0.7, 1.0, 10.0) + 0.1 * rng.normal(size=n),
    "rare cluster": lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, 10.0) + rng.normal(size=n),
    "coin": lambda rng, n: rng.binomial(1, 0.3, n).astype(float),
    "rare event": lambda rng, n: rng.binomial(1, 0.01, n).astype(float),
    "small counts": lambda rng, n: rng.poisson(3, n).astype(float),
    "cut at zero": lambda rng, n: np.maximum(rng.normal(size=n), 0),
    "narrow log-normal": lambda rng, n: np.exp(0.3 * rng.normal(size=n)),
}
OTHER_DATA = {
    "log-normal": ("log", lambda rng, n: np.exp(rng.normal(size=n))),
    "population from 1e-6 to 1e3": ("log", lambda rng, n: np.exp(rng.normal(-3, 3, n))),
    "log-uniform": ("log", lambda rng, n: 10 ** rng.uniform(-6, 3, n)),
    "extinct or not": (
        "log",
        lambda rng, n: np.exp(np.where(rng.random(n) < 0.4, rng.normal(-15, 2, n), rng.normal(4, 1, n))),
    ),
    "student with two degrees of freedom": ("asinh", lambda rng, n: 5 + rng.standard_t(2, n)),
    "cauchy": ("asinh", lambda rng, n: rng.standard_cauchy(n)),
    "both signs over decades": (
        "asinh",
        lambda rng, n: rng.choice([-1, 1], n) * np.exp(2 * rng.normal(size=n)),
    ),
    "one gross outlier": ("asinh", lambda rng, n: np.append(rng.normal(size=n - 1), 1e6)),
    "counts over decades": ("asinh", lambda rng, n: rng.poisson(np.exp(rng.normal(2, 2, n))).astype(float)),
    "one-sided from an offset": ("Yeo-Johnson", lambda rng, n: np.exp(1.5 * rng.normal(size=n)) - 100),
}


@pytest.mark.parametrize("n", [1_000, 20_000])
@pytest.mark.parametrize("name", IDENTITY_DATA)
def test_ordinary_data_are_left_alone(name, n):
    rng = np.random.default_rng(11)
    values = np.column_stack([IDENTITY_DATA[name](rng, n) for _ in range(3)])
    assert choose_marginals(values).names() == ("identity",) * 3


@pytest.mark.parametrize("n", [1_000, 20_000])
@pytest.mark.parametrize("name", OTHER_DATA)
def test_data_over_decades_are_transformed(name, n):
    expected, draw = OTHER_DATA[name]
    rng = np.random.default_rng(12)
    values = np.column_stack([draw(rng, n) for _ in range(3)])
    assert choose_marginals(values).names() == (expected,) * 3


def test_the_threshold_is_what_keeps_mild_tails_alone():
    """The companion that must turn bad: without a price, a Gaussian likelihood's marginal would be bent."""
    values = scale_mixture(np.random.default_rng(11), 5_000)[:, None]
    assert choose_marginals(values, gain=0.0).names() == ("asinh",)


def test_the_choice_depends_on_neither_units_nor_origin():
    rng = np.random.default_rng(4)
    for draw in (rng.standard_t(2, 2_000), rng.normal(size=2_000), np.exp(rng.normal(size=2_000)) - 100):
        names = {choose_marginals((a * draw + b)[:, None]).names() for a, b in ((1, 0), (1e-7, 3e-7), (1e6, -4e6))}
        assert len(names) == 1


def test_standardised_result_is_tame():
    rng = np.random.default_rng(5)
    x = np.column_stack([np.exp(rng.normal(-3, 3, 3_000)), rng.standard_cauchy(3_000)])
    w = choose_marginals(x).forward_table(x)
    z = (w - w.mean(0)) / w.std(0)
    assert np.abs(z).max() < 10
    assert (np.abs((x - x.mean(0)) / x.std(0)).max(0) > 20).all()


def test_constant_column_is_identity():
    assert choose_marginals(np.column_stack([np.ones(50), np.arange(50.0)])).names() == ("identity",) * 2


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.zeros(5), r"expected training values of shape \(n, d\)"),
        (np.zeros((1, 2)), "with n > 1"),
        (np.array([[1.0], [np.nan]]), "got NaN or infinity"),
    ],
)
def test_unusable_values_are_refused(values, sentence):
    with pytest.raises(InputError, match=sentence):
        choose_marginals(values)


def test_codes_name_their_kinds():
    assert [KINDS[kind] for kind in (IDENTITY, LOG, ASINH, YEO_JOHNSON)] == list(KINDS)
