"""Residuals of repeated measurements, and of others."""

import numpy as np
import pytest

from unle.train.residuals import look_repeated

N, K, D = 900, 6, 2


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


T = normals(N, 3, seed=1)


def test_those_of_repeated_measurements_pass_in_all_but_few_data_sets():
    """Three questions at a level of 1/10,000 each: one or more of fifty fail with a probability of 0.015."""
    passed = [look_repeated(normals(N, K, D, seed=seed), T) for seed in range(10, 60)]
    assert all(passed)


@pytest.mark.parametrize("spread", [lambda t: np.exp(0.5 * t), lambda t: 0.5 + 0 * t])
def test_a_wrong_spread_is_no_reason_to_refuse(spread):
    assert look_repeated(normals(N, K, D) * spread(T[:, :1, None]), T)


@pytest.mark.parametrize(
    "changed",
    [
        lambda v: v + 0.15 * np.linspace(-1, 1, K)[:, None],  # means that drift
        lambda v: v + 0.15 * np.linspace(-1, 1, K)[:, None] * T[:, :1, None],  # a slope that drifts
        lambda v: np.sqrt(0.9) * v + np.sqrt(0.1) * normals(N, 1, D, seed=2),  # noise in common
        lambda v: v + 0.4 * normals(N, 1, 1, seed=2) * np.array([1.0, 0.0]),  # in one coordinate alone
        lambda v: v + 0.6 * np.sign(T[:, :1, None]) * np.array([1, -1] * 3)[:, None] * normals(N, 1, 1, seed=2),
        lambda v: v + 0.3 * np.roll(v, 1, axis=1),  # neighbours in time
        lambda v: v - 0.9 * v.mean(axis=1, keepdims=True),  # a sum that is nearly fixed
        lambda v: np.where(np.arange(K)[:, None] == 1, 0.4 * v[:, :1] + np.sqrt(0.84) * v, v),  # one pair alone
        lambda v: np.full_like(v, np.nan),
    ],
)
def test_others_do_not(changed):
    assert not look_repeated(changed(normals(N, K, D)), T)


def test_a_correlation_that_changes_its_sign_with_theta_is_seen():
    v = normals(N, 2, 1)
    v[:, 1] = np.tanh(2 * T[:, :1]) * v[:, 0] + np.sqrt(1 - np.tanh(2 * T[:, :1]) ** 2) * v[:, 1]
    assert abs(np.mean(v[:, 0] * v[:, 1])) < 0.1
    assert not look_repeated(v, T)


def test_a_network_that_follows_noise_is_forgiven_on_its_own_rows_only():
    v = normals(N, K, D)
    followed = v - 0.5 * v.mean(axis=1, keepdims=True)
    one_pair = np.where(np.arange(K)[:, None] == 1, 0.4 * v[:, :1] + np.sqrt(0.84) * v, v)
    assert not look_repeated(one_pair, T, trained=True)
    assert look_repeated(followed, T, trained=True)
    assert not look_repeated(followed, T)
