"""What takes minutes: the JAX engine over eleven seconds, single against double precision, the tutorial."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.simulators import simulate_at
from unle_bench.pyloric import in_jax, on_cpu
from unle_bench.pyloric import specification as spec
from unle_bench.pyloric.noise import noise_of
from unle_bench.pyloric.simulators import OnCpu, statistics
from unle_bench.pyloric.statistics import explain
from unle_bench.tasks.pyloric import on_device

GOLDEN = dict(np.load(Path(__file__).with_name("golden.npz")))
pytestmark = pytest.mark.slow


def test_jax_engine_has_the_golden_eleven_seconds():
    noise = np.stack([np.random.RandomState(s).normal(size=(3, spec.SAMPLES))[:, 1:].T for s in GOLDEN["seed"]])
    with jax.enable_x64(True):
        run = jax.jit(jax.vmap(lambda t, n: in_jax.run(t, n, with_trace=True)))
        silent = run(jnp.asarray(GOLDEN["theta"]), jnp.zeros_like(jnp.asarray(noise))).trace
        assert np.abs(np.asarray(silent)[:, :, ::400] - GOLDEN["silent"]).max() < 1e-5
        noisy = jax.device_get(run(jnp.asarray(GOLDEN["theta"]), jnp.asarray(noise)).bursts)
    for k in range(3):
        x = statistics(type(noisy)(*[None if part is None else part[k] for part in noisy]), "paper")
        np.testing.assert_allclose(x, GOLDEN["statistics"][k, :15], rtol=1e-10)


def test_single_precision_agrees_with_double_where_it_matters():
    theta = GOLDEN["once_valid"]
    keys = jr.split(jr.key(0), len(theta))
    run = jax.jit(jax.vmap(lambda key, t: statistics(in_jax.run(t, key).bursts, "free", jnp)))
    single = np.asarray(run(keys, jnp.asarray(theta, jnp.float32)), float)
    words = np.asarray(jr.key_data(keys)).tolist()
    double = np.stack(
        [
            statistics(on_cpu.run(t.astype(float), noise_of((a, b), spec.SAMPLES - 1)).bursts)
            for t, (a, b) in zip(theta, words, strict=True)
        ]
    )
    valid = [np.isfinite(x).all(axis=1) for x in (single, double)]
    both = valid[0] & valid[1]
    assert (valid[0] == valid[1]).mean() >= 0.97
    assert (np.abs(single[both, 0] / double[both, 0] - 1) < 0.01).mean() >= 0.95
    other = np.stack([OnCpu()(t.astype(float), np.random.default_rng(k)) for k, t in enumerate(theta)])
    same = both & np.isfinite(other).all(axis=1)
    assert (np.abs(other[same, 0] / double[same, 0] - 1) < 0.01).mean() < 0.95  # other noise would be seen


def test_simulator_for_accelerators_gives_rows_and_reasons():
    simulator = on_device(batch=(2, 4))
    simulations = simulate_at(simulator, GOLDEN["theta"].astype(float), seed=3)
    for k in range(3):
        key = jr.fold_in(jr.fold_in(jr.key(3), 0), k)
        noise = noise_of(tuple(np.asarray(jr.key_data(key)).tolist()), spec.SAMPLES - 1)
        double = statistics(on_cpu.run(GOLDEN["theta"][k], noise).bursts)
        np.testing.assert_allclose(simulations.x[k, 0], double[0], rtol=0.05)
        assert simulations.reasons[k] == explain(simulations.x[k])
    assert simulations.x.shape == (3, 8)


def test_the_tutorial_runs_from_top_to_bottom(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "pyloric.md"
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace)
    assert {"trace.png", "published.png"} <= {file.name for file in tmp_path.iterdir()}
