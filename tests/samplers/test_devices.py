"""Chains over several devices: four virtual ones, in a process of its own, against one."""

import os
import subprocess
import sys

import numpy as np
import pytest

CHAINS = """
import sys
import jax, jax.numpy as jnp, jax.random as jr, numpy as np
from unle.samplers import run_chains, over_devices

move = jax.jit(lambda key, start: run_chains(key, start, lambda x: -0.5 * jnp.sum((x - 1) ** 2), steps=20, keep=5))
run = move(jr.key(0), jnp.zeros((8, 3)))
islands = jax.jit(lambda x: over_devices(x, axes=2))(jnp.zeros((2, 6, 3)))
odd = jax.jit(over_devices)(jnp.zeros((7, 3)))
n = jax.local_device_count()
for array, parts in ((run.positions, min(n, 8)), (run.draws, min(n, 8)), (islands, n), (odd, 1)):
    held = {tuple((s.start, s.stop) for s in shard.index) for shard in array.addressable_shards}
    assert len(held) == parts, (array.shape, held)
with jax.default_device(jax.local_devices()[0]):
    assert len(jax.jit(lambda x: over_devices(x + 1))(jnp.zeros(8)).sharding.device_set) == 1
np.save(sys.argv[1], run.draws)
"""

INFERENCE = """
import sys
import jax, numpy as np
import unle

prior = unle.Prior.uniform(low=[-1.0, -1.0], high=[1.0, 1.0])
layouts = []
sample, jit = unle.Posterior.sample, jax.lax.with_sharding_constraint
jax.lax.with_sharding_constraint = lambda x, layout: layouts.append(dict(layout.mesh.shape)) or jit(x, layout)
theta = np.asarray(prior.sample(400, seed=0))
x = theta + 0.2 * np.random.default_rng(0).normal(size=theta.shape)
method = unle.AUNLE(prior, members=1, training=unle.train.EnergyTraining(iterations=200))
posterior = method.fit((theta, x), seed=1)
trained = len(layouts)
draws = np.asarray(posterior.sample([0.2, -0.3], 4000, seed=2))
if jax.local_device_count() == 4:
    assert layouts[:trained] and all(layout["chains"] == 4 for layout in layouts[:trained]), layouts
    assert layouts[trained:] and all(layout["chains"] == 4 for layout in layouts[trained:]), layouts
np.save(sys.argv[1], draws)
"""


def on_devices(code, n, file):
    flags = f"--xla_force_host_platform_device_count={n}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, file], env=environment, check=True)
    return np.load(file)


def test_chains_lie_on_all_devices_and_move_as_on_one(tmp_path, monkeypatch):
    four = on_devices(CHAINS, 4, tmp_path / "four.npy")
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "one.npy")])
    exec(CHAINS, {})
    one = np.load(tmp_path / "one.npy")
    np.testing.assert_allclose(four, one, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_training_and_sampling_on_four_devices_agree_with_one(tmp_path):
    four, one = (on_devices(INFERENCE, n, tmp_path / f"{n}.npy") for n in (4, 1))
    error = one.std(axis=0) / np.sqrt(500)  # far fewer effective draws than there are
    assert (np.abs(four.mean(axis=0) - one.mean(axis=0)) < 4 * error).all()
    np.testing.assert_allclose(four.std(axis=0), one.std(axis=0), rtol=0.15)
