r"""From an energy to a likelihood of raw data: what a posterior is made of.

An energy E(t, r) tilts a base q0, and makes a model of theta and x together:

    q(theta, x) = p(theta) q0(x | theta) exp(-E(theta, x)) / Z_pi,   Z_pi = E_{p q0}[exp(-E)]

An energy is low where data are likely.  The prior enters as it is and the missing constant Z_pi is one number.  Maximum
likelihood on simulated pairs makes q(theta, x) the simulator's joint density.  Both have the marginal p(theta), so
Z(theta) = int q0 exp(-E) dx is then the same for every theta, and q0 exp(-E) is the likelihood up to that constant: the
posterior is an ordinary, singly intractable one.

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
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from unle.compiling import on_device
from unle.errors import InputError
from unle.models.bases import AbstractBase, without_views
from unle.models.mlp import Mlp
from unle.space import ThetaSpace, XSpace

POINTS = 16  # of a cell; a power of two
MOST_CELLS = 12  # coordinates with cells: with more, one of the points would have all the weight; the middle is taken
FADE_LENGTH = 16.0  # of |v|^2: a Gaussian base falls by 8 nats meanwhile, one with tails by less


class AbstractEnergy(eqx.Module):
    """A scalar function of t and of the base's features r of w."""

    @abc.abstractmethod
    def __call__(self, t: Float[Array, " dim"], r: Float[Array, " seen"]) -> Float[Array, ""]:
        """Return E(t, r)."""


class MlpEnergy(AbstractEnergy):
    """A network f on (t, r), optionally bounded.

        E(t, r) = c tanh(f(t, r) / c)

    With the bound c, log q and log q0 differ by at most c, so training cannot run away.  Without a bound E = f, as in
    the original AUNLE.

    An energy must not dig where no particle ever goes: nothing would count the mass that collects there.  So it fades
    out beyond the distances that draws of its base reach,

        E = phi(|v|^2) c tanh(f / c),   phi = 1 up to |v|^2 = reach, and 0 from reach + 16 on,

    and the model has the tails of its base.  |v|^2 is then the last entry of r; the network does not see it.
    """

    net: Mlp  # network with one output
    bound: float | None = eqx.field(static=True)  # c, in nats; None for an unbounded energy
    # |v|^2 up to which the energy counts in full; None for an energy that does not fade
    reach: Float[Array, "*member"] | None = None

    @classmethod
    def initial(
        cls,
        key: PRNGKeyArray,
        dim_theta: int,
        dim_seen: int,
        *,
        width: int,
        depth: int,
        bound: float | None,
        sees_theta: Bool[Array, ""] | bool = True,
    ) -> "MlpEnergy":
        """Return a new, nearly constant energy; one that does not see theta has no weight on t."""
        net = Mlp(key, dim_theta + dim_seen, 1, width=width, depth=depth, output_scale=0.1)
        first = net.weights[0]
        blind = jnp.where(
            (jnp.arange(dim_theta + dim_seen)[:, None] < dim_theta) & ~jnp.asarray(sees_theta), 0.0, first
        )
        return cls(eqx.tree_at(lambda n: n.weights[0], net, blind), bound)

    @classmethod
    def stacked(
        cls,
        key: PRNGKeyArray,
        dim_theta: int,
        dim_seen: int,
        *,
        members: int,
        width: int,
        depth: int,
        bound: float | None,
        sees_theta: bool,
        reach: Float[Array, " member"] | None = None,
    ) -> "MlpEnergy":
        """Return new energies of an ensemble, stacked along a leading axis; see `Mlp.stacked`."""
        inputs = dim_theta + dim_seen - (reach is not None)
        nets = Mlp.stacked(key, members, inputs, 1, width=width, depth=depth, output_scale=0.1)
        if not sees_theta:
            first = np.array(nets.weights[0])
            first[:, :dim_theta] = 0.0
            nets = eqx.tree_at(lambda n: n.weights[0], nets, on_device(first, first.dtype))
        return _around(cls, nets, bound, reach)

    def __call__(self, t, r):
        if self.reach is None:
            return self._bounded(jnp.concatenate([t, r]))
        beyond = (r[-1] - jax.lax.stop_gradient(self.reach)) / FADE_LENGTH  # a setting, which nothing trains
        return _smooth_step(1 - beyond) * self._bounded(jnp.concatenate([t, r[:-1]]))

    def _bounded(self, seen):
        value = self.net(seen)[0]
        return value if self.bound is None else self.bound * jnp.tanh(value / self.bound)


class NoEnergy(AbstractEnergy):
    """E = 0: the base alone."""

    def __call__(self, t, r):
        return jnp.zeros((), t.dtype)


class EnergyModel(eqx.Module):
    """A base q0(w | t) and the energy E(t, r) that tilts it, r the base's features of w."""

    base: AbstractBase
    energy: AbstractEnergy

    def log_density(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return log q0(w | t) - E, the log-likelihood up to the constant."""
        if isinstance(self.energy, NoEnergy):
            return self.base.log_density(t, w)
        log_base, seen = self.base.log_density_and_features(t, w)
        return log_base - self.energy(t, seen)

    @property
    def gives_cells(self) -> bool:
        """Whether the model gives probabilities of cells by itself."""
        return isinstance(self.energy, NoEnergy) and without_views(self.base).gives_cells()

    def log_cell_density(self, t: Float[Array, " dim"], cell: Float[Array, "5 data"]) -> Float[Array, ""]:
        """Return the log of the mean density over a cell, if the model gives it."""
        return without_views(self.base).log_cell_density(t, cell)

    def log_tilt(self, t: Float[Array, " dim"], w: Float[Array, " data"]) -> Float[Array, ""]:
        """Return -E at w."""
        return -self.energy(t, self.base.features(t, w))

    def log_tilt_whitened(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return -E at the base's coordinates v."""
        return -self.energy(t, self.base.features_whitened(t, v))

    def log_density_whitened(self, t: Float[Array, " dim"], v: Float[Array, " data"]) -> Float[Array, ""]:
        """Return the log-density of the base's coordinates v, up to the same constant."""
        return self.base.log_density_whitened(v) + self.log_tilt_whitened(t, v)


@eqx.filter_jit  # one small program, where `filter_vmap` alone would compile one for every array
def _around(cls: type[MlpEnergy], nets: Mlp, bound: float | None, reach: Array | None) -> MlpEnergy:
    return eqx.filter_vmap(lambda net, reach: cls(net, bound, reach))(nets, reach)


def _smooth_step(u: Float[Array, ""]) -> Float[Array, ""]:
    """Return 0 below 0, 1 above 1, and 3 u^2 - 2 u^3 between."""
    u = jnp.clip(u, 0.0, 1.0)
    return u * u * (3 - 2 * u)


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

    def member_log_likelihoods(
        self, theta: Float[Array, " dim"], w: Float[Array, "*point data"]
    ) -> Float[Array, " members"]:
        """Return every member's own log-likelihood; their spread shows where the data say little.

        A w of several rows is a cell: see `OverCells`.
        """
        t = self.theta_space.forward(theta)

        def of_member(model: EnergyModel):
            return model.log_density(t, w) if w.ndim == 1 else model.log_cell_density(t, w)

        return eqx.filter_vmap(of_member)(self.models) - self.log_z

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

    A likelihood that gives the probability of a cell needs no mean: it gets the cell itself
    (`unle.models.autoregressive.CELL_ROWS`).
    """

    likelihood: TractableLikelihood  # a density of spread data; see `unle.space.Cells`
    places: Float[Array, "point dim_x"]  # the u_j, evenly in the unit cube
    is_exact: bool = eqx.field(static=True, default=False)  # whether the likelihood gives the probability itself

    def prepare(self, x):
        """Return w of every point in the cell of x.

        Points are spread evenly over the cell in w, whose density the likelihood is.
        """
        space: Any = self.space_of_x()
        if self.is_exact:
            return space.cell(x)
        low, high = space.forward(x, 0.0), space.forward(x, 1.0)
        return low + self.places[:, np.array(space.modelled)] * (high - low)

    def log_likelihood(self, theta, w):
        if self.is_exact:
            return self.likelihood.log_likelihood(theta, w)
        values = jax.vmap(lambda w: self.likelihood.log_likelihood(theta, w))(w)
        return logsumexp(values) - jnp.log(len(values))


def in_the_middle(likelihood: Likelihood) -> Likelihood | None:
    """Return the likelihood with the density in the middle of a cell for its probability, if that is cheaper."""

    def has_points(node):
        return isinstance(node, OverCells) and not node.is_exact

    if not any(has_points(node) for node in jax.tree.leaves(likelihood, is_leaf=has_points)):
        return None

    def middle(node):
        return eqx.tree_at(lambda cells: cells.places, node, jnp.full_like(node.places[:1], 0.5))

    return jax.tree.map(lambda node: middle(node) if has_points(node) else node, likelihood, is_leaf=has_points)


def over_cells(likelihood: Any) -> Any:
    """Return the likelihood of cells for members of an ensemble, if the data have cells; any other as it is."""
    if not isinstance(likelihood, Ensemble | Mixture | Consensus):
        return likelihood
    space = likelihood.space_of_x()
    if space is None or not space.cells.which:
        return likelihood
    ensemble = likelihood.members if isinstance(likelihood, Consensus) else likelihood
    if isinstance(ensemble, Ensemble) and ensemble.models.gives_cells:
        return OverCells(likelihood, on_device(np.zeros((0, space.dim_x))), is_exact=True)
    if len(space.cells.which) > MOST_CELLS:
        return likelihood
    return OverCells(likelihood, on_device(places_in_cells(space.dim_x)))


def places_in_cells(dim_x: int) -> Float[np.ndarray, "point dim_x"]:
    """Return points that fill the unit cube evenly, to integrate over cells with."""
    from scipy.stats import qmc  # takes long to import, and few data are discrete

    return qmc.Sobol(dim_x, rng=np.random.default_rng(0)).random(POINTS)
