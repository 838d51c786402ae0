r"""Likelihoods of raw data, and several of them as one: what a posterior is made of.

The class of a likelihood says what is known of its normaliser.  A `TractableLikelihood` lacks at most a constant that
does not depend on theta, so any sampler may use it as it is.  The other kind, `DoublyIntractableLikelihood`, lacks a
normaliser that does.  `OverCells` is the likelihood of data that are spread over cells: counts, yes or no, exact zeros.

Several likelihoods as one are their mean, or what they agree on:

    `Ensemble`, `Mixture`:  q(x | theta) = 1/K sum_k q_k(x | theta)
    `Consensus`:            q(x | theta) \propto prod_k q_k(x | theta)^(1/K)

A mixture calls a parameter likely as soon as one member does.  In many dimensions that is too easy: of all parameters,
those that one member is mistaken about come to the top, and there are no simulations to prove it wrong.  The geometric
mean needs the consent of all.  Sequential methods propose by it, and report it: the posterior is then where the
simulations are.
"""

import abc
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from unle.errors import InputError
from unle.models.energy_model import EnergyModel
from unle.space import ThetaSpace, XSpace
from unle.space.host_device import on_device

POINTS = 16  # of a cell; a power of two
MOST_CELLS = 12  # coordinates with cells: with more, one of the points would have all the weight; the middle is taken


class AbstractLikelihood(eqx.Module):
    """A model of x given theta, in two steps so that work on x alone is done once.

    `prepare` turns raw data into what the model sees of it; the density of either kind takes that.
    """

    @abc.abstractmethod
    def prepare(self, x: Float[Array, " dim_x"]) -> Float[Array, "*point data"]:
        """Return the standardised data w of one raw x, or of several points that stand for it."""

    def coordinates(self, x: Float[Array, " dim_x"]) -> Float[Array, " data"]:
        """Return one raw x in the coordinates of the fit: w, unless the model sees more of x than one point."""
        return self.prepare(x)

    def space_of_x(self) -> XSpace | None:
        """Return the standardisation of x that the model was fitted with; None if it has none."""
        return None


Likelihood = TypeVar("Likelihood", bound=AbstractLikelihood)


class TractableLikelihood(AbstractLikelihood):
    """A likelihood whose missing constant, if any, is the same for every theta."""

    @abc.abstractmethod
    def log_likelihood(self, theta: Float[Array, " dim"], w: Float[Array, "*point data"]) -> Float[Array, ""]:
        """Return the log-density of w given theta, up to that constant."""


class AbstractWrapper(TractableLikelihood):
    """A tractable likelihood made of another one, which sees x in its place; to make one, define the density."""

    likelihood: eqx.AbstractVar[AbstractLikelihood]

    def space_of_x(self):
        return self.likelihood.space_of_x()

    def prepare(self, x):
        return self.likelihood.prepare(x)

    def coordinates(self, x):
        return self.likelihood.coordinates(x)


class EnergyLikelihood(TractableLikelihood):
    """An energy-based model with the maps from raw theta and x, and log Z_pi, estimated after training.

        log q(x | theta) = log q0(w | t) - E(t, w) - log Z_pi,   t = theta_space(theta), w = x_space(x)

    log Z_pi makes members of an ensemble comparable.
    """

    theta_space: ThetaSpace
    x_space: XSpace
    model: EnergyModel
    log_z: Float[Array, ""]

    def space_of_x(self):
        return self.x_space

    def prepare(self, x):
        return self.x_space.forward(x)

    def log_likelihood(self, theta, w):
        return self.model.log_density(self.theta_space.forward(theta), w) - self.log_z


class Tempered(AbstractWrapper):
    """A likelihood to the power of beta, between 0 and 1, for proposals that do not run ahead of the simulations."""

    likelihood: TractableLikelihood
    temperature: Float[Array, ""]

    def log_likelihood(self, theta, w):
        return self.temperature * self.likelihood.log_likelihood(theta, w)


class Ensemble(TractableLikelihood):
    """The equal mixture of K models q0 exp(-E) that share their coordinates.

    Members see different training splits and initial weights.  Where data are plenty they agree; where data are few
    they differ, and the mixture is as wide as their disagreement.
    """

    theta_space: ThetaSpace  # standardises theta
    x_space: XSpace  # standardises x
    models: EnergyModel  # the K models, stacked along a leading axis of every array
    log_z: Float[Array, " members"]  # log Z_pi of each, shape (K,)

    @property
    def size(self) -> int:
        """Number of members K."""
        return self.log_z.shape[0]

    def space_of_x(self):
        return self.x_space

    def prepare(self, x):
        return self.x_space.forward(x)

    def log_likelihood(self, theta, w):
        return logsumexp(self.member_log_likelihoods(theta, w)) - jnp.log(self.size)

    def member_log_likelihoods(self, theta: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " members"]:
        """Return every member's own log-likelihood; their spread shows where the data say little."""
        t = self.theta_space.forward(theta)
        values = eqx.filter_vmap(lambda model: model.log_density(t, w))(self.models)
        return values - self.log_z

    def member(self, k: int) -> EnergyLikelihood:
        """Return member k as a likelihood of its own."""
        return EnergyLikelihood(self.theta_space, self.x_space, unstacked(self.models, k), self.log_z[k])


class Mixture(AbstractWrapper):
    """An equal mixture of likelihoods of any one class; made by `mixture`.

    Their missing constants must be the same.  Those of conditional models divided by normalisers in absolute units are,
    and then the mixture weighs each member by how well it explains the observation.
    """

    members: TractableLikelihood  # likelihoods of one class and shape, every array stacked along a leading axis

    @property
    def size(self) -> int:
        """Number of members K."""
        return jax.tree.leaves(eqx.filter(self.members, eqx.is_array))[0].shape[0]

    @property
    def likelihood(self) -> TractableLikelihood:
        """The first member: all see the same of x."""
        return self.member(0)

    def member(self, k: int) -> TractableLikelihood:
        """Return member k."""
        return unstacked(self.members, k)

    def log_likelihood(self, theta, w):
        return logsumexp(self.member_log_likelihoods(theta, w)) - jnp.log(self.size)

    def member_log_likelihoods(self, theta: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, " members"]:
        """Return every member's own log-likelihood."""
        return eqx.filter_vmap(lambda member: member.log_likelihood(theta, w))(self.members)


class Consensus(AbstractWrapper):
    """The geometric mean of an ensemble's densities, up to a constant that is taken not to depend on theta."""

    members: Ensemble | Mixture

    @property
    def likelihood(self) -> Ensemble | Mixture:
        """The ensemble."""
        return self.members

    def log_likelihood(self, theta, w):
        return jnp.mean(self.members.member_log_likelihoods(theta, w))


def geometric_mean(likelihood: Any) -> Any:
    """Return the geometric mean of the members of an ensemble; any other likelihood as it is."""
    if not isinstance(likelihood, Ensemble | Mixture):
        return likelihood
    return Consensus(likelihood)  # pyright: ignore[reportCallIssue]  (`likelihood` is a property)


def mixture(members: Sequence[TractableLikelihood]) -> TractableLikelihood:
    """Return the equal mixture of likelihoods that share their coordinates of x; of one member, that member."""
    if len(members) == 1:
        return members[0]
    return Mixture(stacked(members))  # pyright: ignore[reportCallIssue]  (`likelihood` is a property)


def stacked(members: Sequence[Likelihood]) -> Likelihood:
    """Return likelihoods of one class as one, every array stacked along a leading axis."""
    if not members:
        raise InputError("expected at least one member; got none.")
    first, *others = [eqx.partition(member, eqx.is_array) for member in members]
    if any(not eqx.tree_equal(first[1], static) for _, static in others):
        raise InputError("expected members of one class with the same settings; try one mixture for each kind.")
    arrays = jax.tree.map(lambda *leaves: jnp.stack(leaves), first[0], *(arrays for arrays, _ in others))
    return eqx.combine(arrays, first[1])


def unstacked(members: Any, k: int) -> Any:
    """Return member k of modules whose arrays are stacked along a leading axis."""
    arrays, static = eqx.partition(members, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda leaf: leaf[k], arrays), static)


class OverCells(AbstractWrapper):
    r"""The probability of a cell: the mean density of points in it, up to the cell's volume.

    q(x | theta) \propto 1/J sum_j q(x_j | theta),    x_j the place u_j of the cell of x
    """

    likelihood: TractableLikelihood  # a density of spread data; see `unle.space.Cells`
    places: Float[Array, "point dim_x"]  # the u_j, evenly in the unit cube

    def prepare(self, x):
        """Return w of every point in the cell of x."""
        space: Any = self.space_of_x()
        return jax.vmap(lambda u: space.forward(x, u))(self.places)

    def log_likelihood(self, theta, w):
        values = jax.vmap(lambda w: self.likelihood.log_likelihood(theta, w))(w)
        return logsumexp(values) - jnp.log(len(values))


def over_cells(likelihood: Any) -> Any:
    """Return the likelihood of cells for members of an ensemble, if the data have cells; any other as it is."""
    if not isinstance(likelihood, Ensemble | Mixture | Consensus):
        return likelihood
    space = likelihood.space_of_x()
    if space is None or not 0 < len(space.cells.which) <= MOST_CELLS:
        return likelihood
    from scipy.stats import qmc  # takes long to import, and few data are discrete

    places = qmc.Sobol(space.dim_x, rng=np.random.default_rng(0)).random(POINTS)
    return OverCells(likelihood, on_device(places))
