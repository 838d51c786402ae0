"""Temperatures that simulations support, and boxes around draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import unle
from unle.methods.proposals import MARGIN, TAIL, Box, draw_proposals, supported_power
from unle.models import Mlp, TractableLikelihood, ValidityNet, with_validity
from unle.posterior import Posterior, TemperedSmc
from unle.space import fit_theta_space


def ess(log_likelihoods, beta):
    weights = np.exp(beta * (log_likelihoods - log_likelihoods.max()))
    return weights.sum() ** 2 / (weights**2).sum()


def test_the_temperature_is_the_one_at_which_the_wanted_simulations_are_effective():
    values = -0.5 * np.random.default_rng(0).normal(size=500) ** 2 * 400
    beta = supported_power(values, effective=40)
    assert 0 < beta < 1
    assert ess(values, beta) == pytest.approx(40, rel=1e-3)
    assert ess(values, 1.0) < 40


def test_a_likelihood_that_is_supported_is_not_tempered():
    assert supported_power(np.zeros(50), effective=15) == 1.0


def test_simulations_without_a_likelihood_do_not_count():
    values = np.array([0.0, -1.0, -2.0, np.nan, -np.inf, np.inf])
    assert 0 < supported_power(values, effective=1.2) <= 1
    assert supported_power(np.full(4, np.nan), effective=2) == 0.0


def test_a_box_holds_the_bulk_and_a_margin():
    t = np.random.default_rng(1).uniform(-1, 3, size=(20_000, 2))
    box = Box.around(t)
    width = 4 * (1 - 2 * TAIL)
    np.testing.assert_allclose(box.high - box.low, (1 + 2 * MARGIN) * width, rtol=0.01)
    assert box.contains(t).all()
    assert not box.contains(t + 10).any()
    assert Box.everywhere(2).contains(1e6 * t).all()


class Nothing(TractableLikelihood):
    """Data that say nothing of theta."""

    def prepare(self, x):
        return x

    def log_likelihood(self, theta, w):
        return jnp.zeros(())


def networks(slopes):
    """P(valid) of one parameter with the logits slope x t; swish(t) - swish(-t) is t."""
    space = fit_theta_space(np.random.default_rng(0).normal(size=(100, 1)))
    nets = Mlp.stacked(jr.key(0), len(slopes), 1, 1, width=2, depth=1, output_scale=1.0)
    first = jnp.broadcast_to(jnp.array([[1.0, -1.0]]), (len(slopes), 1, 2))
    last = jnp.asarray(slopes)[:, None, None] * jnp.array([[1.0], [-1.0]])
    return ValidityNet(space, eqx.tree_at(lambda n: n.weights, nets, (first, last)), jnp.ones(()), jnp.zeros(()))


def test_one_network_that_expects_a_failure_is_enough():
    net, theta = networks([4.0, -1.0]), jnp.array([1.5])
    logits = np.asarray(net.member_logits(theta), float)
    assert logits[0] == pytest.approx(4 * float(net.theta_space.forward(theta)[0]), rel=1e-5)
    assert float(net(theta)) == pytest.approx(-np.logaddexp(0, -logits).mean(), rel=1e-5)
    assert float(net(theta)) < np.log(np.mean(1 / (1 + np.exp(-logits))))  # the mean would hear the other one


def test_a_probability_that_rounds_to_one_has_a_logit():
    net = networks([40.0, 40.0])
    assert 10 < float(net.logit(jnp.array([3.0]))) < 50
    assert np.isfinite(float(jax.grad(lambda theta: net(theta))(jnp.array([3.0]))[0]))


def test_proposals_avoid_failures_as_much_as_the_posterior_does():
    prior, net = unle.Prior.uniform(low=[-2.0], high=[2.0]), networks([2.0, 2.0])
    posterior = Posterior(prior, with_validity(Nothing(), net), TemperedSmc(islands=2, particles=1000))
    theta = draw_proposals(jr.key(1), posterior, np.zeros((1, 1)), 4000)
    assert theta.shape == (4000, 1)
    grid = np.linspace(-2, 2, 401)[:, None]
    chance = np.exp(np.asarray(jax.vmap(net)(jnp.asarray(grid, jnp.float32)), float))

    def rate(power):
        return np.average(chance, weights=chance**power)

    drawn = np.exp(np.asarray(jax.vmap(net)(jnp.asarray(theta, jnp.float32)), float))
    error = 4 * drawn.std() / np.sqrt(500)  # draws of a particle are alike
    assert drawn.mean() == pytest.approx(rate(1.0), abs=error)
    assert abs(rate(3.0) - rate(1.0)) > error  # more caution would not pass


def test_where_nothing_fails_proposals_are_the_posterior():
    prior = unle.Prior.uniform(low=[-2.0], high=[2.0])
    posterior = Posterior(prior, Nothing(), TemperedSmc(islands=2, particles=1000))
    theta = draw_proposals(jr.key(1), posterior, np.zeros((1, 1)), 2000)
    assert theta.shape == (2000, 1)
    assert theta.mean() == pytest.approx(0.0, abs=4 * 1.16 / np.sqrt(500))
