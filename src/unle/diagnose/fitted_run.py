"""What the checks of one run look at, made when first asked for and once only.

The dear parts are simulations that the fit has not seen: pairs (theta*, x*) for calibration, and replicas at posterior
draws for the predictive check.  Which are made, and what happens when they are too dear, is decided here:

* a number asked for (`simulations`) is simulated, whatever it takes;
* otherwise 300 pairs and 500 replicas are, if by the recorded times of the run each takes half a minute at most;
* otherwise replicas are fewer, and calibration takes the simulations of the fit itself.  That flatters the fit, and no
  check on such pairs says better than doubtful.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from unle.diagnose.calibration import Calibration, calibrate, calibrate_around, nearest_rows
from unle.diagnose.likelihoods import Members, member_log_likelihoods, members_within
from unle.diagnose.predictive_checks import Replicas
from unle.diagnose.record import NotApplicable, NotMade
from unle.diagnose.support_check import DRAWS, FEWEST_SIMULATIONS, SIMULATIONS, SharpEnd, sharp_ends
from unle.methods import summarise_simulations
from unle.models import TractableLikelihood
from unle.posterior import Draws, Posterior
from unle.simulators import Simulations, simulate, simulate_at

PAIRS = 300  # fresh simulations from the prior
WEIGHED = 500  # draws of each of their posteriors: levels are exact with any number
MANY_REPLICAS = 4000  # where they take little time: an extreme of so many is one
MORE_REPLICAS = 20_000  # rows, where these take little time too: some of so many are near x_o
REPLICAS = 500  # simulations at posterior draws, two at each
FEWEST_REPLICAS = 50
MOST_TIMES = 16  # as many replicas, where nearly all of them fail
SECONDS_ALLOWED = 30.0  # of simulation that are spent without being asked to
ANOTHER_SEED = 1_000_003  # added to the seed of a run: fresh simulations must not repeat those of the fit
MEMBER_DRAWS = 2000  # at which the members are compared
NO_DENSITY = "the likelihood has no density to weigh draws with; a learned normaliser has one: --normaliser divi."


@dataclass
class FittedRun:
    """A fitted posterior and everything known about how it came about.

    Args:
        posterior: fitted.
        draws: of it at the observation, or None.
        theta: parameters of the valid simulations it was fitted to.
        x: their data.
        metrics: the records of the fit.
        simulator: to make fresh simulations, or None if there is none at hand.
        seconds: one simulation took on average.
        simulations: fresh pairs to make; None to decide by their cost, 0 for none.
        seed: fixes what is random about the checks.
        amortised: whether the likelihood was learned for all observations; a sequential method's was for one.
    """

    posterior: Posterior
    draws: Draws | None
    theta: Float[np.ndarray, "n dim"]
    x: Float[np.ndarray, "n dim_x"]
    metrics: Sequence[Mapping[str, Any]] = ()
    simulator: Callable | None = None
    seconds: float = 0.0
    simulations: int | None = None
    seed: int = 0
    amortised: bool = True
    notes: list[str] = field(default_factory=list)

    def __post_init__(self):
        """Put summaries in the place of data, if the likelihood is of a summary: all checks are then of these."""
        self._summary = self.posterior.summary
        if self._summary is None:
            return
        self.x = self._summary(self.x)
        self.draws = None if self.draws is None else replace(self.draws, x_o=self._summary(self.draws.x_o), x_names=())
        self.posterior = self.posterior.without_summary()
        self.notes.extend(str(record["sentence"]) for record in self.metrics if record.get("stage") == "summary")
        self.notes.append("All checks are made in terms of the summary: they do not see what it leaves out of x.")

    def _simulate(self, theta: Float[np.ndarray, "n dim"], seed: int) -> Simulations:
        """Return simulations at these parameters, in terms of the summary if there is one."""
        assert self.simulator is not None
        return summarise_simulations(self._summary, simulate_at(self.simulator, theta, seed=seed))

    def for_all_observations(self) -> None:
        """Refuse checks that look at other data than the observation where the likelihood was learned for it alone."""
        if not self.amortised:
            raise NotApplicable("the likelihood was learned around one observation only.")

    @cached_property
    def at_x_o(self) -> Draws:
        """The draws at the observation."""
        if self.draws is None:
            raise NotApplicable("there is no observation yet; draw at one with `unle run --observation FILE`.")
        return self.draws

    @cached_property
    def effective_draws(self) -> float:
        """How many independent draws they are worth, for the parameter with the fewest."""
        return float(np.nan_to_num(np.asarray(self.at_x_o.summary()["ess_bulk"], dtype=float)).min())

    @cached_property
    def whole_x_o(self) -> Draws:
        """The draws, for a check that needs every entry of the observation."""
        if np.isnan(self.at_x_o.x_o).any():
            raise NotMade("entries of x_o are missing: leave them out of x, fit again, and check that fit.")
        return self.at_x_o

    def some_draws(self, most: int) -> Float[np.ndarray, "n dim"]:
        """Return up to so many draws, evenly from all chains."""
        values = np.asarray(self.at_x_o, float)
        return values[np.linspace(0, len(values) - 1, min(len(values), most)).astype(int)]

    @cached_property
    def calibration(self) -> Calibration:
        """Posteriors of simulated observations."""
        self.for_all_observations()
        _ = self.tractable
        wanted = self.simulations
        if wanted is None:
            wanted = PAIRS if PAIRS * self.seconds <= SECONDS_ALLOWED else 0
        if wanted and self.simulator is not None:
            fresh = simulate(self.simulator, self.posterior.prior, wanted, seed=self.seed + ANOTHER_SEED)
            fresh = summarise_simulations(self._summary, fresh)
            self.notes.append(f"{len(fresh)} fresh simulations, {int(fresh.valid.sum())} of them valid.")
            return calibrate(self.posterior, fresh.valid_theta, fresh.valid_x, draws=WEIGHED, seed=self.seed)
        if self.simulations:
            raise NotMade("fresh simulations need the simulator: unle check DIR --model FILE.")
        rows = np.random.default_rng([self.seed, 606]).permutation(len(self.theta))[:PAIRS]
        self.notes.append("Calibration used the simulations of the fit.")
        return calibrate(self.posterior, self.theta[rows], self.x[rows], draws=WEIGHED, seed=self.seed, in_sample=True)

    @cached_property
    def replica_pairs(self) -> Replicas:
        """Two simulations at each of some posterior draws, with as many rows each as the observation has."""
        draws = self.whole_x_o
        if self.simulator is None:
            raise NotMade("replicas need the simulator: unle check DIR --model FILE.")
        rows = len(draws.x_o)
        affordable = REPLICAS if self.seconds == 0 else int(SECONDS_ALLOWED / (self.seconds * rows))
        n = min(REPLICAS, affordable if self.simulations is None else self.simulations)
        if n < FEWEST_REPLICAS:
            minutes = FEWEST_REPLICAS * rows * self.seconds / 60
            raise NotMade(
                f"{FEWEST_REPLICAS} replicas would take {minutes:.0f} minutes: unle check DIR --simulations {PAIRS}."
            )
        pairs = self._pairs_of_replicas(n // 2)
        if self.simulations is not None:
            return pairs
        # Where many fail, so many more are made that about as many are valid as were wanted.
        more = min(int(n / max(pairs.valid.mean(), 1 / MOST_TIMES)), 2 * len(np.asarray(draws)))
        more = more if self.seconds == 0 else min(more, affordable)
        return self._pairs_of_replicas(more // 2) if more >= 2 * n else pairs

    def _pairs_of_replicas(self, n: int) -> Replicas:
        """Simulate twice at each of n draws."""
        values, rows = np.asarray(self.at_x_o, float), len(self.at_x_o.x_o)
        chosen = np.linspace(0, len(values) - 1, n).astype(int)
        theta = np.repeat(values[chosen], 2 * rows, axis=0)
        made = self._simulate(theta, self.seed + ANOTHER_SEED + 1)
        whole = np.asarray(made.valid.reshape(n, 2, rows).all(axis=2))
        return Replicas(values[chosen], chosen, made.x.reshape(n, 2, rows, -1), whole)

    @cached_property
    def around(self) -> tuple[Calibration, float]:
        """Posteriors given x_o and one more simulation each, and how many independent draws they share."""
        model = self.posterior.prior, self.tractable
        return calibrate_around(*model, self.at_x_o, self.replica_pairs, ess=self.effective_draws, seed=self.seed)

    @cached_property
    def many_replicas(self) -> Replicas:
        """Valid simulations, one at each of many draws: thousands if the simulator is quick, or those of the pairs."""
        pairs, draws = self.replica_pairs, self.at_x_o
        rows = len(draws.x_o)
        wanted = max(MANY_REPLICAS, MORE_REPLICAS // rows)
        if self.seconds * rows * wanted > SECONDS_ALLOWED:
            wanted = MANY_REPLICAS
        if self.seconds * rows * wanted > SECONDS_ALLOWED or self.simulations is not None:
            chosen, theta = np.repeat(pairs.index, 2), np.repeat(pairs.theta, 2, axis=0)
            x, whole = pairs.x.reshape(len(theta), *pairs.x.shape[2:]), pairs.valid.ravel()
        else:
            values = np.asarray(draws, float)
            chosen = np.linspace(0, len(values) - 1, wanted).astype(int)
            theta = values[chosen]
            made = self._simulate(np.repeat(theta, rows, axis=0), self.seed + ANOTHER_SEED + 2)
            x = made.x.reshape(len(theta), rows, -1)
            whole = np.asarray(made.valid.reshape(-1, rows).all(axis=1))
        return Replicas(theta[whole], chosen[whole], x[whole, None], whole[whole, None])

    @cached_property
    def nearest(self) -> tuple[Calibration, float]:
        """As `around`, but the simulations are those of many that are most like x_o."""
        space = self.posterior.likelihood.space_of_x()
        if space is None:
            raise NotApplicable("the likelihood has no coordinates in which to compare data.")
        replicas, x_o, ess = self.many_replicas, self.at_x_o.x_o, self.effective_draws
        # A few for every independent draw, evenly from all chains: then the nearest are of different ones.
        some = np.unique(np.linspace(0, len(replicas.x) - 1, max(int(4 * ess), 1)).astype(int))
        like = some[nearest_rows(space, replicas.x[some, 0], x_o)]
        near = Replicas(*(part[np.sort(like)] for part in replicas))
        model = self.posterior.prior, self.tractable
        return calibrate_around(*model, self.at_x_o, near, ess=ess, seed=self.seed + 1)

    @cached_property
    def sharp_ends(self) -> list[SharpEnd]:
        """Sharp ends of the noise, by raw coordinate, where simulating many times at a few draws is affordable."""
        space = self.posterior.likelihood.space_of_x()
        n = SIMULATIONS if self.seconds == 0 else min(SIMULATIONS, int(SECONDS_ALLOWED / (DRAWS * self.seconds)))
        if n < FEWEST_SIMULATIONS or self.simulator is None or space is None:
            self.notes.append("Sharp ends of the noise were not looked for: simulations take too long.")
            return []
        theta = self.some_draws(DRAWS)
        made = self._simulate(np.repeat(theta, n, axis=0), self.seed + ANOTHER_SEED + 3)
        valid = made.valid.reshape(DRAWS, n)
        fewest = int(valid.sum(axis=1).min())
        if fewest < FEWEST_SIMULATIONS:
            self.notes.append("Sharp ends of the noise were not looked for: too many simulations fail.")
            return []
        rows = np.concatenate([x[ok][:fewest] for x, ok in zip(made.x.reshape(DRAWS, n, -1), valid, strict=True)])
        standard = space.forward_table(rows)
        smooth = [j for j, raw in enumerate(space.modelled) if raw not in space.cells.which]
        ends = sharp_ends(standard.reshape(DRAWS, fewest, -1)[:, :, smooth])
        return [end._replace(coordinate=space.modelled[smooth[end.coordinate]]) for end in ends]

    @cached_property
    def replicas(self) -> Float[np.ndarray, "n rows dim_x"]:
        """Simulations at posterior draws that did not fail."""
        pairs = self.replica_pairs
        if pairs.valid.sum() < FEWEST_REPLICAS:
            raise NotMade(f"only {int(pairs.valid.sum())} of {pairs.valid.size} replicas are valid.")
        return pairs.x[pairs.valid]

    @cached_property
    def tractable(self) -> TractableLikelihood:
        """The likelihood, if it has a density."""
        if not isinstance(self.posterior.likelihood, TractableLikelihood):
            raise NotMade(NO_DENSITY)
        return self.posterior.likelihood

    @cached_property
    def standardised(self) -> tuple[Float[np.ndarray, "n data"], Float[np.ndarray, "rows data"]]:
        """The training data and the observation in the coordinates of the fit."""
        prepare = jax.vmap(self.posterior.likelihood.coordinates)
        both = np.concatenate([self.x, self.whole_x_o.x_o])
        standard = np.asarray(prepare(jnp.asarray(both, jnp.float32)), float)
        return standard[: len(self.x)], standard[len(self.x) :]

    @cached_property
    def members(self) -> Members:
        """The members of the likelihood, wherever they are in it."""
        members = members_within(self.posterior.likelihood)
        if members is None:
            raise NotApplicable("the likelihood is not an ensemble.")
        return members

    @cached_property
    def member_logs(self) -> tuple[Float[np.ndarray, "n member"], Float[np.ndarray, "n dim"]]:
        """Every member's log-likelihood of the observation at some of its draws, and these draws."""
        ensemble = self.members.ensemble
        if ensemble.size < 2:
            raise NotApplicable("the fit has one member only.")
        draws = self.some_draws(MEMBER_DRAWS)
        return member_log_likelihoods(ensemble, draws, self.whole_x_o.x_o), draws
