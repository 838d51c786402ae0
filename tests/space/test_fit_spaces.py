"""A new standardisation is an affine change of the old one, and nothing else."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unle.space import add_transforms, affine_change, fit_theta_space, fit_x_space, restandardise_theta, restandardise_x


@eqx.filter_jit
def forward(space, rows):
    return jax.vmap(space.forward)(rows)


def data(seed, n=400, scale=1.0):
    rng = np.random.default_rng(seed)
    a, b = np.exp(scale * rng.normal(size=(2, n)))  # log scale
    c = rng.normal(size=n)
    return np.column_stack([a, c, np.full(n, 7.0), np.log(a) + 2 * c, b])


def test_new_coordinates_are_standard_and_affine_in_the_old_ones():
    theta = data(0)[:, [0, 1]]
    old = fit_theta_space(theta)
    near = theta[(theta[:, 0] > 1) & (theta[:, 0] < 2)]
    new = restandardise_theta(old, near)
    z_old, z_new = (np.asarray(forward(space, jnp.asarray(near, jnp.float32))) for space in (old, new))
    np.testing.assert_allclose(z_new.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(z_new.std(axis=0), 1, rtol=1e-3)
    a, b = affine_change(old.standardiser, new.standardiser)
    np.testing.assert_allclose(z_old, np.asarray(a) + np.asarray(b) * z_new, atol=1e-4)


def test_constant_and_redundant_coordinates_stay_what_they_were():
    x = data(1)
    old = fit_x_space(x)
    near = x[np.abs(x[:, 1]) < 0.5]
    new = restandardise_x(old, near)
    assert (new.modelled, new.redundant, new.constant) == (old.modelled, old.redundant, old.constant)
    assert new.redundant
    assert new.constant
    row = jnp.asarray(near[3], jnp.float32)
    np.testing.assert_allclose(jax.jit(lambda row: new.inverse(new.forward(row)))(row), row, rtol=2e-3)


def test_a_coordinate_that_stopped_varying_keeps_a_usable_scale():
    x = data(2)
    old = fit_x_space(x)
    stuck = x.copy()
    stuck[:, 1] = 0.25
    new = restandardise_x(old, stuck)
    assert np.isfinite(np.asarray(forward(new, jnp.asarray(x, jnp.float32)))).all()


def calm_then_wild(n=1500, unit=1.0):
    """Return an early fit to normal data, and later data whose second coordinate has outliers."""
    rng = np.random.default_rng(5)
    later = np.column_stack([rng.normal(size=n), 0.1 * rng.standard_t(1.0, size=n)])
    return fit_x_space(unit * rng.normal(size=(200, 2))), unit * later


def test_outliers_that_come_later_are_drawn_in():
    old, later = calm_then_wild()
    before, after = restandardise_x(old, later), restandardise_x(add_transforms(old, later), later)
    assert np.abs(before.forward_table(later)).max() > 100  # an affine map does not help
    assert np.abs(after.forward_table(later)).max() < 15
    assert after.standardiser.marginals.names() == ("identity", "asinh")
    np.testing.assert_allclose(after.forward_table(later)[:, 0], before.forward_table(later)[:, 0], atol=1e-6)
    row = jnp.asarray(later[7], jnp.float32)
    np.testing.assert_allclose(after.inverse(after.forward(row)), row, rtol=1e-3)


def test_units_do_not_matter_where_transforms_are_chosen_again():
    w = []
    for unit in (1.0, 1e8, 1e-8):
        old, later = calm_then_wild(unit=unit)
        w.append(restandardise_x(add_transforms(old, later), later).forward_table(later))
    np.testing.assert_allclose(w[1], w[0], atol=1e-4)
    np.testing.assert_allclose(w[2], w[0], atol=1e-4)


def test_calm_data_transformed_coordinates_and_relations_stay_what_they_were():
    old, later = calm_then_wild()
    assert eqx.tree_equal(add_transforms(old, np.clip(later, -0.3, 0.3)), old)
    bent = fit_x_space(later)
    assert eqx.tree_equal(add_transforms(bent, 0.1 * later[::2] + 3.0), bent)
    related = fit_x_space(np.column_stack([later[:, 0], 2 * later[:, 0]]))
    assert eqx.tree_equal(add_transforms(related, np.column_stack([later[:, 1], 2 * later[:, 1]])), related)


def test_counts_keep_their_scale():
    rng = np.random.default_rng(0)
    old, later = fit_x_space(rng.poisson(3.0, size=(200, 1)).astype(float)), rng.poisson(3.0, size=(2000, 1)) * 1.0
    later[::50] *= 10_000
    assert old.cells.which == [0]
    assert eqx.tree_equal(add_transforms(old, later), old)
