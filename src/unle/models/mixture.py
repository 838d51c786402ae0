r"""The equal mixture of several tractable likelihoods.

    q(x | theta) = 1/K sum_k q_k(x | theta)

Members may be of any one class, as long as their missing constants are the same: conditional models divided by
normalisers in absolute units are, and then the mixture weighs each member by how well it explains the observation.
"""

from collections.abc import Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from unle.errors import InputError
from unle.models.likelihood import AbstractLikelihood, TractableLikelihood

Likelihood = TypeVar("Likelihood", bound=AbstractLikelihood)


class Mixture(TractableLikelihood):
    """An equal mixture; made by `mixture`.

    Args:
        members: likelihoods of one class and shape, every array stacked along a leading axis.
    """

    members: TractableLikelihood

    @property
    def size(self) -> int:
        """Number of members K."""
        return jax.tree.leaves(eqx.filter(self.members, eqx.is_array))[0].shape[0]

    @property
    def x_space(self):
        """The members' common standardisation of x, None if they have none."""
        return getattr(self.member(0), "x_space", None)

    def member(self, k: int) -> TractableLikelihood:
        """Return member k."""
        return unstacked(self.members, k)

    def prepare(self, x):
        """Return w, the same for all members."""
        return self.member(0).prepare(x)

    def log_likelihood(self, theta, w):
        """Return the log of the members' mean density."""
        return logsumexp(self.member_log_likelihoods(theta, w)) - jnp.log(self.size)

    def member_log_likelihoods(self, theta: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " members"]:
        """Return every member's own log-likelihood."""
        return eqx.filter_vmap(lambda member: member.log_likelihood(theta, w))(self.members)


def mixture(members: Sequence[TractableLikelihood]) -> TractableLikelihood:
    """Return the equal mixture of likelihoods that share their coordinates of x; of one member, that member.

    Args:
        members: of one class, with arrays of the same shapes.
    """
    return members[0] if len(members) == 1 else Mixture(stacked(members))


def stacked(members: Sequence[Likelihood]) -> Likelihood:
    """Return likelihoods of one class as one, every array stacked along a leading axis."""
    if not members:
        raise InputError("expected at least one member; got none.")
    first, *others = [eqx.partition(member, eqx.is_array) for member in members]
    if any(not eqx.tree_equal(first[1], static) for _, static in others):
        raise InputError("expected members of one class with the same settings; try one mixture for each kind.")
    arrays = jax.tree.map(lambda *leaves: jnp.stack(leaves), first[0], *(arrays for arrays, _ in others))
    return eqx.combine(arrays, first[1])


def unstacked(members: Likelihood, k: int) -> Likelihood:
    """Return member k of what `stacked` made."""
    arrays, static = eqx.partition(members, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda leaf: leaf[k], arrays), static)
