r"""Auxiliary draws by a plain Markov chain, as the paper makes them: from a point drawn for a similar condition.

Training leaves particles behind: v_i, drawn from g(. | c_i) for the conditions c_i of the data.  An auxiliary draw for
another condition c starts at the particle whose condition is the nearest among some taken at random, and makes local
moves under g(. | c).  Over many draws the starts are spread over modes as the particles are: a chain that always began
at the observed data would hardly ever see another mode than theirs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from unle.errors import InputError
from unle.samplers.inner import AbstractInner, InnerDraw
from unle.samplers.kernels import AbstractKernel, Mala


class FollowingInner(AbstractInner):
    """A chain from one of many known points.

    Attributes:
        conditions: of the known points, c_i.
        points: v_i.
        moves: kernel steps.
        among: points, taken at random, of which the one with the nearest condition is chosen.
        kernel: MALA by default.
        target_acceptance: at which the step size aims.
    """

    conditions: Float[Array, "known dim"]
    points: Float[Array, "known data"]
    moves: int = eqx.field(static=True, default=100)
    among: int = eqx.field(static=True, default=64)
    kernel: AbstractKernel = Mala()
    target_acceptance: float = eqx.field(static=True, default=0.574)

    def __check_init__(self):
        if self.moves < 2 or self.among < 1:
            raise InputError(f"expected moves >= 2 and among >= 1; got {self.moves} and {self.among}; try moves=100.")

    @property
    def rungs(self):
        """One step size."""
        return 1

    def draw(self, key, condition, family, step_sizes):
        """Start at a similar condition, and move."""
        key_some, key_moves = jr.split(key)
        some = jr.randint(key_some, (self.among,), 0, self.conditions.shape[0])
        distances = jnp.sum(jnp.square(self.conditions[some] - condition), axis=1)
        start = self.points[some[jnp.argmin(distances)]]

        def density(v):
            return family.log_reference(v) + family.log_tilt(condition, v)

        def move(state, key):
            state, info = self.kernel.step(key, state, density, step_sizes[0])
            return state, info.acceptance

        keys = jr.split(key_moves, self.moves)
        half = self.moves // 2
        state, first = jax.lax.scan(move, self.kernel.init(start, density), keys[:half])
        early = family.log_tilt(condition, state.position)
        state, second = jax.lax.scan(move, state, keys[half:])
        tilt = family.log_tilt(condition, state.position)
        acceptance = jnp.mean(jnp.concatenate([first, second]))
        return InnerDraw(state.position, tilt, early, acceptance[None], jnp.isfinite(tilt))
