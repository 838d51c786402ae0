import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle.samplers import PerChainStepSize, RandomWalk, SharedStepSize, run_chains, run_chains_given


def gaussian(x, mean=0.0):
    return -0.5 * jnp.sum((x - mean) ** 2)


def test_draws_are_chain_by_draw_by_dim(strict_ranks):
    """Chain c lives around 100 c and coordinate k around k: any mix-up of the axes shows."""
    means = 100.0 * jnp.arange(3)[:, None] + jnp.arange(2)[None]
    run = run_chains(jr.key(0), means, gaussian, steps=30, keep=10, conditions=means, kernel=RandomWalk())
    assert run.draws.shape == (3, 10, 2)
    np.testing.assert_allclose(run.draws, jnp.broadcast_to(means[:, None], (3, 10, 2)), atol=8.0)
    np.testing.assert_array_equal(run.draws[:, -1], run.positions)


def test_coordinates_that_stay_are_conditioned_on():
    """Of (a, b) with b | a ~ N(2 a, 1), only b moves: to where its conditional is, not its marginal."""
    a = jnp.repeat(jnp.array([-3.0, 0.0, 3.0]), 200)
    start = jnp.stack([a, jnp.zeros(600)], axis=1)

    def joint(point):
        return -0.5 * (point[1] - 2 * point[0]) ** 2 - 0.5 * point[0] ** 2

    def run(still):
        options = {"steps": 60, "step_size": SharedStepSize()}
        return run_chains_given(jr.key(0), start, joint, n_fixed=still, **options).positions

    moved = run(1)
    np.testing.assert_array_equal(moved[:, 0], a)
    means, error = moved[:, 1].reshape(3, 200).mean(1), 1 / np.sqrt(200)
    np.testing.assert_allclose(means, [-6.0, 0.0, 6.0], atol=4.5 * error)
    assert (run(0)[:, 0] != a).all()  # without coordinates that stay all of them move


def test_a_frozen_step_size_stays():
    controller = SharedStepSize()
    state = controller.init(4)._replace(log_step=jnp.log(0.3))
    run = run_chains(
        jr.key(2), jnp.zeros((4, 2)), gaussian, steps=5, kernel=RandomWalk(), step_state=state, adapt=False
    )
    jax.tree.map(np.testing.assert_array_equal, run.step_state, state)
    assert run.draws is None


def test_a_chain_per_condition_with_a_step_size_each_and_a_stuck_one_is_seen():
    widths = jnp.array([0.01, 1.0, 100.0, 0.0])  # the last density is nowhere finite
    run = run_chains(
        jr.key(0),
        jnp.zeros((4, 1)),
        lambda x, width: gaussian(x / width),
        steps=600,
        kernel=RandomWalk(),
        step_size=PerChainStepSize(largest=1e4),
        conditions=widths,
    )
    steps = np.exp(run.step_state.log_step[:3]) / widths[:3]
    assert ((steps > 1) & (steps < 10)).all()
    assert (run.moved[:3] > 0.1).all()
    assert run.moved[3] == 0


def test_two_calls_trace_once(strict_keys):
    @jax.jit
    @eqx.debug.assert_max_traces(max_traces=1)
    def run(key, positions, mean):
        return run_chains(key, positions, lambda x: gaussian(x, mean), steps=5)

    first = run(jr.key(0), jnp.zeros((4, 2)), 0.0)
    second = run(jr.key(1), first.positions, 3.0)
    assert (second.positions != first.positions).any()


@pytest.mark.parametrize(("settings", "message"), [({"steps": 0}, "steps >= 1"), ({"steps": 10, "keep": 3}, "divide")])
def test_wrong_arguments_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        run_chains(jr.key(0), jnp.zeros((3, 1)), gaussian, **settings)
