import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unle.errors import InputError
from unle.samplers import PerChainStepSize, SharedStepSize

CONTROLLERS = {"shared": SharedStepSize(), "per_chain": PerChainStepSize()}


def acceptance_at(step, scale):
    """A kernel in a nutshell: the longer the step against the target's scale, the rarer the acceptance."""
    return jnp.exp(-step / scale)


def adapt(controller, state, scales, steps):
    def one(state, scale):
        acceptance = jnp.broadcast_to(acceptance_at(controller.value(state), scale), (3,))
        state = controller.update(state, acceptance, 0.574)
        return state, controller.value(state)

    return jax.lax.scan(one, state, jnp.broadcast_to(scales, (steps,)))


@pytest.fixture(params=CONTROLLERS)
def controller(request):
    return CONTROLLERS[request.param]


@pytest.mark.parametrize("scale", [1e-5, 20.0])
def test_finds_the_step_from_orders_of_magnitude_away(controller, scale):
    state, values = adapt(controller, controller.init(3), scale, 80)
    np.testing.assert_allclose(acceptance_at(controller.value(state), scale), 0.574, atol=0.02)
    assert values.shape[1:] == controller.value(controller.init(3)).shape


def test_follows_a_target_that_drifts_over_three_decades():
    controller = SharedStepSize()
    state, _ = adapt(controller, controller.init(3), 1.0, 200)
    scales = jnp.logspace(0, -3, 2000)
    state, values = adapt(controller, state, scales, 2000)
    assert (abs(acceptance_at(values, scales)[100:] - 0.574) < 0.1).all()


def test_a_frozen_gain_would_not_follow():
    controller = SharedStepSize(floor=0.0)
    state = controller.init(3)._replace(crossings=jnp.array(1e6))
    _, values = adapt(controller, state, jnp.logspace(0, -3, 2000), 2000)
    assert acceptance_at(values[-1], 1e-3) < 0.1


def test_stays_within_its_limits(controller):
    controller = type(controller)(smallest=0.01, largest=1.0)
    low, high = (adapt(controller, controller.init(3), scale, 100)[0] for scale in (1e-9, 1e9))
    np.testing.assert_allclose(controller.value(low), 0.01, rtol=1e-5)
    np.testing.assert_allclose(controller.value(high), 1.0, rtol=1e-5)


def test_works_under_vmap_and_jit(controller):
    run = jax.jit(jax.vmap(lambda scale: adapt(controller, controller.init(3), scale, 80)[0]))
    states = run(jnp.array([0.1, 10.0]))
    for index, scale in enumerate((0.1, 10.0)):
        alone, _ = adapt(controller, controller.init(3), scale, 80)
        np.testing.assert_allclose(states.log_step[index], alone.log_step, rtol=1e-4)


def test_shared_is_one_number_and_per_chain_is_many():
    acceptance = jnp.array([0.0, 1.0, 0.574])
    shared, own = SharedStepSize(), PerChainStepSize()
    assert shared.value(shared.update(shared.init(3), acceptance, 0.574)).shape == ()
    low, high, same = own.value(own.update(own.init(3), acceptance, 0.574))
    assert low < 0.1 < high
    np.testing.assert_allclose(same, 0.1, rtol=1e-5)


@pytest.mark.parametrize("wrong", [{"initial": 0.0}, {"initial": 1e3}, {"smallest": 0.0}, {"floor": 2.0}])
def test_wrong_settings_are_refused(controller, wrong):
    with pytest.raises(InputError, match="expected"):
        type(controller)(**wrong)
