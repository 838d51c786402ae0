"""Compare single precision in JAX with double precision on CPU cores: equal parameters, equal noise.

    python scripts/pyloric_precision.py --parameters valid.npz --simulations 200

The file holds `theta` and `valid`. Without it, parameters are drawn from the prior until enough are valid, which takes
100 simulations each. Prints the two shares: validity that agrees, and periods that agree within 1 %.
"""

import argparse
import json

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from unle_bench.pyloric import in_jax, on_cpu
from unle_bench.pyloric.noise import noise_of
from unle_bench.pyloric.simulators import OnCpu, statistics
from unle_bench.pyloric.specification import LOWER, SAMPLES, UPPER


def valid_parameters(n: int) -> np.ndarray:
    """Return parameters of the prior that were valid once."""
    rng, found, simulator = np.random.default_rng(1), [], OnCpu()
    while len(found) < n:
        theta = rng.uniform(LOWER, UPPER)
        if np.isfinite(simulator(theta, rng)).all():
            found.append(theta)
    return np.stack(found)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters")
    parser.add_argument("--simulations", type=int, default=200)
    chosen = parser.parse_args()
    if chosen.parameters:
        known = np.load(chosen.parameters)
        theta = known["theta"][known["valid"]]
    else:
        theta = valid_parameters(chosen.simulations)
    theta = np.resize(theta, (chosen.simulations, theta.shape[1])).astype(np.float32)
    keys = jr.split(jr.key(0), len(theta))

    run = jax.jit(jax.vmap(lambda key, t: statistics(in_jax.run(t, key).bursts, "free", jnp)))
    single = np.asarray(run(keys, jnp.asarray(theta)), float)
    words = np.asarray(jr.key_data(keys))
    double = np.stack(
        [
            statistics(on_cpu.run(t.astype(float), noise_of((int(a), int(b)), SAMPLES - 1)).bursts)
            for t, (a, b) in zip(theta, words, strict=True)
        ]
    )
    valid = [np.isfinite(x).all(axis=1) for x in (single, double)]
    both = valid[0] & valid[1]
    apart = np.abs(single[both, 0] / double[both, 0] - 1)
    result = {
        "simulations": len(theta),
        "valid_single": int(valid[0].sum()),
        "valid_double": int(valid[1].sum()),
        "validity_agrees": float((valid[0] == valid[1]).mean()),
        "period_within_1_percent": float((apart < 0.01).mean()),
        "median_difference_of_period": float(np.median(apart)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
