r"""What follows a tilted model while it trains: particles, of several kinds.

The gradient of the log-likelihood needs an expectation under the model of the moment.  Ways to follow it:

* draws of the base with weights exp(-E): `unle.train.importance_particles`;
* particles that Markov kernels move under the new model: `unle.train.persistent_particles`;
* particles of a conditional model, which lives at the parameters of the data: `unle.train.per_pair_particles`.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.models import AbstractBase, EnergyModel
from unle.train.joint import JointSpace

Seen = tuple[Float[Array, "particle dim"], Float[Array, "particle seen"]]  # (t, r): what an energy sees


class Batch(NamedTuple):
    """Data of one iteration: which rows, and their parameters."""

    rows: Int[Array, " batch"]
    t: Float[Array, "batch dim"]


class ParticleBatch(NamedTuple):
    """The particles of one moment, and how they came about."""

    seen: Seen  # (t, r) of each particle
    # weights that make them a sample of the model; without the factor exp(-E) where `of_base` is set
    log_weights: Float[Array, " particle"]
    of_base: bool  # whether exp(-E) is still missing from the weights; the gradient evaluates E there anyway
    acceptance: Float[Array, ""]  # mean acceptance probability of the moves that made them; 1 if there were none
    step_size: Float[Array, ""]  # of these moves; 0 if there were none


class AbstractParticles(eqx.Module):
    """How particles follow a model that changes.  States are pytrees that only their own class reads."""

    @property
    @abc.abstractmethod
    def normaliser_draws(self) -> int:
        """How many draws `log_z` rests on."""

    @property
    def at_data(self) -> bool:
        """Whether the particles' parameters are those of the data; otherwise they follow the prior."""
        return True

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, joint: JointSpace, base: AbstractBase, t: Float[Array, "n dim"]) -> Any:
        """Return a state for a model whose energy is still constant; t are the parameters of all data."""

    @abc.abstractmethod
    def advance(
        self, key: PRNGKeyArray, joint: JointSpace, state: Any, old: EnergyModel, new: EnergyModel, batch: Batch
    ) -> tuple[Any, ParticleBatch]:
        """Turn particles of the old model into particles of the new one.

        `state` is that of the previous call; only particles that belong to data look at the batch.
        """

    def started(self, state: Any, known: Any) -> Any:
        """Take over the particles of a warm start, if there are any; nothing to do for most."""
        return state

    def renew(self, key: PRNGKeyArray, joint: JointSpace, state: Any, model: EnergyModel) -> Any:
        """Prepare for another chunk of training, with the model as it is now; nothing to do for most."""
        return state

    @abc.abstractmethod
    def log_z(
        self, key: PRNGKeyArray, joint: JointSpace, state: Any, model: EnergyModel, t: Float[Array, "m dim"]
    ) -> tuple[Float[Array, "*m"], Float[Array, ""]]:
        """Estimate the log-normaliser of a model, and return the smallest ESS/N met on the way.

        It is one number, log Z_pi, for a tilted model; for a conditional one it is log Z at each of the m points t.
        """


def some_rows(key: PRNGKeyArray, rows: Float[Array, "n k"], most: int) -> Float[Array, "m k"]:
    """Return all rows, or a random sample of `most` (with replacement) where there are more.

    The first rows of a table are no sample of it: sequential runs store simulations round by round, people sort them.
    """
    n = rows.shape[0]
    return rows if n <= most else rows[jr.randint(key, (most,), 0, n)]
