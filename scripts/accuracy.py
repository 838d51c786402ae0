"""Measure AUNLE's accuracy: C2ST against reference posteriors, over observations and seeds.

    python scripts/accuracy.py two_moons --budget 1000 --seeds 0 1 2
    python scripts/accuracy.py bimodal --seeds 0 1 2 3 4            # weight of a posterior mode instead of C2ST
    python scripts/accuracy.py two_moons --particles mala           # the paper's persistent chains; smc: weighted SMC

Official observations and references are used where the `sbibm` data files are installed, the library's own otherwise.
A run whose draws are not finite counts with C2ST 1.  One line per seed, then the mean over all.
"""

import argparse
import time

import jax
import numpy as np

import unle
from unle.diagnose import c2st_fast_batch

PARTICLES = {
    "data": unle.train.DataParticles,
    "base": unle.train.BaseParticles,
    "smc": unle.train.WarmSmc,
    "mala": unle.train.PersistentChains,
}
DRAWS = 10_000


def main() -> None:
    """Run the sweep that the arguments describe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--observations", type=int, nargs="+", default=list(range(1, 11)))
    parser.add_argument("--particles", choices=PARTICLES, default="data")
    parser.add_argument("--members", type=int, default=unle.AUNLE.members)
    arguments = parser.parse_args()

    task = unle.task(arguments.task)
    numbers = [1] if arguments.task == "bimodal" else arguments.observations
    observations = [task.observation(i) for i in numbers]
    training = unle.train.EnergyTraining(particles=PARTICLES[arguments.particles]())
    method = unle.AUNLE(task.prior, training=training, members=arguments.members)
    print(f"{arguments.task}: {task.observation_source} observations, {jax.devices()[0].device_kind}")
    scores = []
    for seed in arguments.seeds:
        scores.append(one_seed(task, method, observations, numbers, arguments.budget, seed))
    values = np.concatenate(scores)
    error = values.std() / np.sqrt(len(values))
    print(f"mean {values.mean():.4f}, standard error {error:.4f}, over {len(values)} posteriors")


def one_seed(task, method: unle.AUNLE, observations, numbers, budget: int, seed: int) -> np.ndarray:
    """Simulate, fit, sample and score; print one line."""
    theta = task.prior.sample(budget, seed=seed)
    x = np.asarray(task.simulate(theta, seed + 1000))
    records: list[dict] = []
    start = time.perf_counter()
    posterior = method.fit((theta, x), seed=seed, on_metrics=lambda **values: records.append(values))
    fitted = time.perf_counter()
    draws = [np.asarray(d)[:DRAWS] for d in posterior.sample_many(observations, DRAWS, seed=seed)]
    sampled = time.perf_counter()
    if task.name == "bimodal":
        values = np.array([np.mean(d.sum(axis=1) > 0) for d in draws])
    else:
        references = [task.official_reference(i) for i in numbers]
        references = [
            task.reference(x_o, DRAWS) if found is None else found
            for x_o, found in zip(observations, references, strict=True)
        ]
        finite = np.array([np.isfinite(d).all() for d in draws])
        values = np.where(finite, c2st_fast_batch(references, [np.nan_to_num(d) for d in draws]), 1.0)
    last = records[-1]
    print(
        f"seed {seed}: {values.mean():.4f} [{' '.join(f'{value:.2f}' for value in values)}], energy {last['energy']}, "
        f"gain {last['gain']:.2f}, {last['outcome'].lower()}, "
        f"fit {fitted - start:.1f} s, sample {sampled - fitted:.1f} s",
        flush=True,
    )
    return values


if __name__ == "__main__":
    main()
