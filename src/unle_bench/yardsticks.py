"""Two contestants that mark the ends of the scale: who has learned nothing, and who knows the answer."""

from unle_bench.contestant import AbstractContestant, Outcome


class FromPrior(AbstractContestant):
    """Draws from the prior, whatever was observed: the worst that an honest method can do."""

    def infer(self, task, *, budget, seed, observations, draws):
        """Draw from the prior."""
        outcome = Outcome()
        with outcome.stage("infer"):
            outcome.draws = {i: task.prior.sample(draws, seed=seed + i) for i in observations}
        return outcome


class Exact(AbstractContestant):
    """Draws from the exact posterior: what a perfect method scores."""

    def infer(self, task, *, budget, seed, observations, draws):
        """Draw from the exact posterior."""
        outcome = Outcome()
        with outcome.stage("infer"):
            # Not the seed of the references that the library makes for itself.
            outcome.draws = {i: task.reference(x_o, draws, seed=seed + 100 + i) for i, x_o in observations.items()}
        return outcome
