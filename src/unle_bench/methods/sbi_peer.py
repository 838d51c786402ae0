# pyright: reportMissingImports=false, reportOptionalMemberAccess=false
"""The other end of `peers`: run by the Python of an environment that has sbi; imports nothing of ours."""

import json
import sys
import time
from pathlib import Path

import numpy as np


def main(folder: Path) -> None:
    """Fit and draw as the files in the folder say."""
    import sbi
    import torch
    from sbi.inference import NLE, NPE

    say("versions " + json.dumps({"sbi": sbi.__version__, "torch": torch.__version__}))
    wanted = json.loads((folder / "wanted.json").read_text())
    torch.manual_seed(wanted["seed"])
    prior = prior_of(wanted["prior"], torch)
    observations = torch.as_tensor(np.load(folder / "observations.npy"), dtype=torch.float32)
    seconds = {"train": 0.0, "infer": 0.0}
    inference = {"nle": NLE, "npe": NPE}[wanted["method"]](prior, show_progress_bars=False)
    proposal, posterior, began = prior, None, time.perf_counter()
    for number in range(wanted["rounds"]):
        size = wanted["budget"] // wanted["rounds"] + (number < wanted["budget"] % wanted["rounds"])
        start = time.perf_counter()
        if posterior is None:
            theta = proposal.sample((size,))
        else:
            theta = posterior.sample((size,), x=observations[0], show_progress_bars=False)
        seconds["train"] += time.perf_counter() - start
        x = simulated(theta, folder, torch)
        start = time.perf_counter()
        later = {"proposal": posterior} if wanted["method"] == "npe" and posterior is not None else {}
        finite = torch.isfinite(x).all(dim=1)
        inference.append_simulations(theta[finite], x[finite], **later).train()
        posterior = inference.build_posterior()
        seconds["train"] += time.perf_counter() - start
        say(f"round {number + 1} {time.perf_counter() - began}")
    start = time.perf_counter()
    draws = [posterior.sample((wanted["draws"],), x=x_o, show_progress_bars=False).numpy() for x_o in observations]
    seconds["infer"] = time.perf_counter() - start
    np.save(folder / "draws.npy", np.stack(draws))
    say("done " + json.dumps(seconds))


def simulated(theta, folder: Path, torch):
    """Ask for x at theta."""
    np.save(folder / "theta.npy", theta.numpy())
    say("simulate")
    sys.stdin.readline()
    return torch.as_tensor(np.load(folder / "x.npy"), dtype=torch.float32)


def prior_of(blocks: list, torch):
    """Build the prior: one block, of a family that the tasks have."""
    from torch import distributions as td

    (block,) = blocks
    while "base_dist" in block["arguments"]:
        block = block["arguments"]["base_dist"]
    family = block["family"]
    values = {k: torch.as_tensor(v, dtype=torch.float32) for k, v in block["arguments"].items() if k != "validate_args"}
    if family == "Uniform":
        from sbi.utils import BoxUniform

        return BoxUniform(low=values["low"], high=values["high"])
    if family == "MultivariateNormal":
        return td.MultivariateNormal(values["loc"], scale_tril=values["scale_tril"])
    return td.Independent({"Normal": td.Normal, "LogNormal": td.LogNormal}[family](values["loc"], values["scale"]), 1)


OURS = sys.stdout


def say(line: str) -> None:
    """Write one line to the parent."""
    OURS.write(line + "\n")
    OURS.flush()


if __name__ == "__main__":
    sys.stdout = sys.stderr  # what sbi prints must not be taken for an answer
    main(Path(sys.argv[1]))
