"""Settings of tilted maximum likelihood, and the optimiser that they stand for."""

import equinox as eqx
import jax
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from unle.models import MlpEnergy
from unle.train.abstract_particles import AbstractParticles
from unle.train.importance_particles import DataParticles

WARM_UP = 50  # iterations over which the learning rate rises from zero
FINAL_RATE = 0.02  # the cosine ends at this share of the peak
CLIP = 5.0  # of every entry of the gradient


class TiltedTraining(eqx.Module):
    """Settings of tilted maximum likelihood; the defaults serve every task.

    Args:
        particles: how expectations under the model are followed.
        width: units per hidden layer of the energy.
        depth: hidden layers of the energy.
        bound: largest |E| in nats over a fitted base; None for none.
        iterations: most optimiser steps; early stopping may end before.
        batch: data rows per step (fewer if there are fewer).
        learning_rate: peak of the schedule.
        weight_decay: decoupled decay of weight matrices.
        average: decay of the running mean of the weights that is validated and returned.
        chunk: iterations between validations.
        patience: chunks without improvement after which training stops (no more than three for the theta-free energy).
    """

    particles: AbstractParticles = DataParticles()
    width: int = eqx.field(static=True, default=48)  # a multiple of 16 is faster than 50
    depth: int = eqx.field(static=True, default=4)
    bound: float | None = eqx.field(static=True, default=20.0)
    iterations: int = eqx.field(static=True, default=600)
    batch: int = eqx.field(static=True, default=256)
    learning_rate: float = eqx.field(static=True, default=0.02)
    weight_decay: float = eqx.field(static=True, default=0.2)
    average: float = eqx.field(static=True, default=0.98)
    chunk: int = eqx.field(static=True, default=50)
    patience: int = eqx.field(static=True, default=5)

    def untrained(
        self,
        dim_theta: int,
        dim_seen: int,
        *,
        members: int,
        key: PRNGKeyArray | None = None,
        sees_theta: bool = True,
        reach: Float[Array, " member"] | None = None,
    ) -> MlpEnergy:
        """Return nearly constant energies, stacked along a leading axis; of a fixed key if none is given.

        Args:
            dim_theta: number of parameters.
            dim_seen: how many numbers the energies are given of w.
            members: how many energies.
            key: of their initial weights.
            sees_theta: whether they have weights on t.
            reach: where they fade out, see `unle.models.reach_of`.
        """
        sizes = {"members": members, "width": self.width, "depth": self.depth, "bound": self.bound, "reach": reach}
        key = jr.key(0) if key is None else key
        return MlpEnergy.stacked(key, dim_theta, dim_seen, sees_theta=sees_theta, **sizes)


def optimiser_of(settings: TiltedTraining) -> optax.GradientTransformation:
    """Return Adam with decaying weights, a rise and a cosine, and clipped gradients."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0,
        settings.learning_rate,
        min(WARM_UP, settings.iterations // 2),
        settings.iterations,
        FINAL_RATE * settings.learning_rate,
    )

    def matrices(tree):  # biases do not decay
        return jax.tree.map(lambda leaf: leaf.ndim > 1, tree)

    decay = optax.adamw(schedule, weight_decay=settings.weight_decay, mask=matrices)
    return optax.chain(optax.clip(CLIP), decay)


def begin_at(step: Int[Array, ""], state: optax.OptState) -> optax.OptState:
    """Return the state of an optimiser whose learning rate is that of a later step; its moments know nothing yet."""

    def is_schedule(path, value):
        return getattr(path[-1], "tuple_name", None) == "ScaleByScheduleState"

    return optax.tree_utils.tree_set(state, is_schedule, count=step)
