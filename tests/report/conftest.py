"""A finished run without a fit: the base alone, which knows nothing of theta, and draws made by hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.diagnose import FittedRun, run_checks
from unle.models import EnergyModel, Ensemble, NoEnergy
from unle.posterior import Draws, Posterior
from unle.simulators import simulate
from unle.space import Prior, fit_theta_space, fit_x_space
from unle.store import RunDirectory
from unle.train import FixedBase, Rows, make_splits

NAMES = ("rate", "<script>alert(1)", "a & b")


def simulator(theta, rng):
    return np.concatenate([theta, theta[:1] + theta[1:2]]) + 0.1 * rng.normal(size=4)


@pytest.fixture(scope="session")
def story(tmp_path_factory):
    path = tmp_path_factory.mktemp("story") / "run"
    prior = Prior.uniform(low=[-1.0] * 3, high=[1.0] * 3, names=NAMES)
    x_o = np.array([[0.2, -0.3, 0.1, -0.12]])
    settings = {"method": "aunle", "model": "mine.py", "model_sha256": "0" * 64, "prior": prior.spec(), "seed": 0}
    run = RunDirectory.create(path, settings | {"budget": 200, "draws": 400, "ensemble_agreement": 2, "x_o": x_o})
    with run.simulations() as store:
        sims = simulate(simulator, prior, 200, seed=0, store=store)
    theta_space, x_space = fit_theta_space(sims.theta), fit_x_space(sims.x)
    t = jax.vmap(theta_space.forward)(jnp.asarray(sims.theta, jnp.float32))
    w = jax.vmap(x_space.forward)(jnp.asarray(sims.x, jnp.float32))
    splits = make_splits(jr.key(0), 200, members=2)
    bases = FixedBase(scale=1.0).fit(jr.key(0), Rows(t, w, splits))
    likelihood = Ensemble(theta_space, x_space, EnergyModel(bases, NoEnergy()), jnp.zeros(2))
    posterior = Posterior(prior, likelihood)
    posterior.save(run.likelihood(0))
    values = x_o[0, :3] + 0.1 * np.random.default_rng(0).normal(size=(4, 500, 3))
    info = {"acceptance": 0.3, "temperatures": [[0.1, 1.0]] * 4, "ess": [[0.6, 0.7]] * 4}
    draws = Draws(values, NAMES, x_o, 2, -1.5, info | {"log_evidence_by_chain": [-1.4, -1.5, -1.6, -1.5]})
    draws.save(run.draws)
    for chunk in range(6):
        record = {"chunk": chunk, "sees_theta": True, "gain": chunk / 6, "gap": 0.0, "ess": 0.9, "recoveries": 0}
        run.append_metrics(stage="training", **record)
    run.append_metrics(stage="fitted", energy="full", outcome="CONVERGED", gain=1.0, log_z=[0.0, 0.0])
    run.append_metrics(stage="seconds", simulate=0.1, fit=2.0, sample=1.0)
    evidence = FittedRun(posterior, draws, sims.theta, sims.x, run.read_metrics())
    findings = run_checks(evidence, ["outlier", "training", "sampler", "ensemble_agreement", "predictive"])
    findings.save(run.path / "checks")
    return SimpleNamespace(run=run, posterior=posterior, draws=draws, findings=findings, evidence=evidence)
