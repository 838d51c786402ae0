"""Both engines against golden traces, and against each other.

The golden file holds, for three parameter vectors, voltages every 10 ms and statistics of the public simulator, and the
spikes in its traces. The first vector is valid with its noise, the others are not triphasic.
"""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError
from unle_bench.pyloric import in_jax, lookup, on_cpu
from unle_bench.pyloric import specification as spec
from unle_bench.pyloric.noise import noise_of
from unle_bench.pyloric.simulators import statistics

GOLDEN = dict(np.load(Path(__file__).with_name("golden.npz")))
SECOND = 40_000  # samples


def seeded_noise(seed: int) -> np.ndarray:
    """Return the noise that the golden runs were made with, one row per step."""
    return np.random.RandomState(seed).normal(scale=0.001, size=(3, spec.SAMPLES))[:, 1:].T / 0.001


@pytest.fixture(scope="module")
def on_a_core():
    """Return golden vectors simulated by the compiled engine, without noise and with it."""
    zeros = np.zeros((spec.SAMPLES - 1, 3))
    return {
        "silent": [on_cpu.run(theta, zeros, with_trace=True) for theta in GOLDEN["theta"]],
        "noisy": [
            on_cpu.run(theta, seeded_noise(seed), with_trace=True, with_plateaus=True)
            for theta, seed in zip(GOLDEN["theta"], GOLDEN["seed"], strict=True)
        ],
    }


def every_10_ms(simulated) -> np.ndarray:
    return np.stack([one.trace[:, ::400] for one in simulated])


def test_first_second_without_noise_is_the_golden_one(on_a_core):
    error = np.abs(every_10_ms(on_a_core["silent"]) - GOLDEN["silent"])[:, :, :100]
    assert error.max() < 1e-5
    assert np.ptp(GOLDEN["silent"][:, :, :100]) > 50  # with spikes in it


@pytest.mark.parametrize("noise", ["silent", "noisy"])
def test_spikes_of_eleven_seconds_are_the_golden_ones(on_a_core, noise):
    for k, simulated in enumerate(on_a_core[noise]):
        for j, spikes in enumerate(simulated.spikes):
            golden = GOLDEN[f"spikes_{noise}_{k}_{j}"]
            assert len(spikes) == len(golden)
            assert np.abs(spikes - golden).max(initial=0) <= 1


def test_statistics_are_the_golden_ones(on_a_core):
    ours = np.stack([statistics(one.bursts, "plateaus") for one in on_a_core["noisy"]])
    np.testing.assert_allclose(ours, GOLDEN["statistics"], rtol=1e-10)
    assert ours[0, 16] > 9  # the one plateau among them
    assert np.isfinite(ours[0]).all()
    assert np.isnan(ours[1:, 7:15]).all()


def test_a_wrong_constant_would_be_seen(monkeypatch, on_a_core):
    wrong = on_cpu.CONSTANTS._replace(step_per_capacitance=spec.STEP / spec.AREA)  # 0.628 for 0.6283
    monkeypatch.setattr(on_cpu, "CONSTANTS", wrong)
    silent = on_cpu.run(GOLDEN["theta"][0], np.zeros((SECOND - 1, 3)), samples=SECOND, with_trace=True)
    assert np.abs(silent.trace[:, ::400] - GOLDEN["silent"][0, :, :100]).max() > 1e-3


@pytest.fixture(scope="module")
def in_double():
    """Return golden vectors simulated by the JAX engine in double precision for 1.2 s, without noise."""
    with jax.enable_x64(True):
        run = jax.jit(jax.vmap(lambda t, n: in_jax.run(t, n, samples=48_000, with_trace=True, unroll=1)))
        noise = np.stack([np.zeros((48_000, 3)), *[seeded_noise(seed)[:48_000] for seed in GOLDEN["seed"][:2]]])
        theta = GOLDEN["theta"][[0, 0, 1]]
        return theta, noise, jax.device_get(run(jnp.asarray(theta), jnp.asarray(noise)))


def test_jax_engine_in_double_precision_has_the_golden_first_second(in_double):
    _, _, simulated = in_double
    assert np.abs(simulated.trace[0, :, :SECOND:400] - GOLDEN["silent"][0, :, :100]).max() < 1e-5
    assert np.abs(simulated.trace[1:, :, :SECOND:400] - GOLDEN["noisy"][:2]).max() < 1e-5


def test_engines_agree_with_the_same_noise(in_double):
    theta, noise, simulated = in_double
    for k in range(3):
        ours = on_cpu.run(theta[k], noise[k], samples=48_000, with_trace=True)
        assert np.abs(ours.trace - simulated.trace[k]).max() < 1e-3
        np.testing.assert_array_equal(ours.bursts.number, simulated.bursts.number[k])
    other = on_cpu.run(theta[1], noise[1] * 1.001, samples=48_000, with_trace=True)
    assert np.abs(other.trace - simulated.trace[1]).max() > 1e-3  # a thousandth of the noise would be seen


def test_noise_of_a_key_is_the_same_on_both_engines_and_normal():
    key = jr.key(5)
    draw = in_jax.noise_from(key, jnp.float32)
    ours = noise_of(tuple(np.asarray(jr.key_data(key)).tolist()), 4000)
    theirs = np.asarray(jax.vmap(draw)(jnp.arange(4000)))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    many = noise_of((1, 2), 200_000)
    assert np.abs(many.mean(0)).max() < 4 / np.sqrt(len(many))
    assert np.abs(many.var(0) - 1).max() < 4 * np.sqrt(2 / len(many))
    assert np.abs(np.corrcoef(many.T)[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(len(many))
    assert np.abs((many[1:] * many[:-1]).mean(0)).max() < 4 / np.sqrt(len(many))
    assert abs((many[:, 0] > 2).mean() - 0.02275) < 4 * np.sqrt(0.02275 / len(many))
    assert (noise_of((1, 3), 10) != many[:10]).all()


def test_tables_follow_the_equations():
    v = np.random.default_rng(0).uniform(-90, 60, 2000)
    place = (v - lookup.FIRST_V) * lookup.ROWS_PER_MV
    row, f = lookup.table()[place.astype(int)], (place % 1)[:, None]
    for exact, part in zip(lookup.columns(v), (row[:, :3], row[:, 3:]), strict=True):
        looked_up = part[:, 0] + f * (part[:, 1] + f * part[:, 2])
        np.testing.assert_allclose(looked_up[:, :11], exact[:, :11], atol=3e-9)
        np.testing.assert_allclose(looked_up[:, 11], exact[:, 11], rtol=1e-6)


def test_seeds_decide(on_a_core):
    run = [on_cpu.run(GOLDEN["theta"][0], np.random.default_rng(s), samples=4000, with_trace=True) for s in (1, 1, 2)]
    np.testing.assert_array_equal(run[0].trace, run[1].trace)
    assert np.abs(run[0].trace - run[2].trace).max() > 0.1


def test_wrong_parameters_are_refused():
    with pytest.raises(InputError, match="vector of 31 parameters"):
        on_cpu.run(np.zeros(30), np.random.default_rng(0))


def test_workers_do_not_import_jax_and_a_missing_numba_is_one_sentence():
    code = (
        "import sys, numpy as np; from unle_bench.pyloric import on_cpu\n"
        "assert 'jax' not in sys.modules and 'numba' not in sys.modules\n"
        "sys.modules['numba'] = None\n"
        "try: on_cpu.run(np.zeros(31), np.zeros((1, 3)))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.startswith("InputError")
    assert "unle[pyloric]" in done.stdout
