r"""One sweep of moves over all particles at one temperature.

The density at temperature $\beta$ is $r(u)\,e^{\beta\,\ell(u)}$: a reference r, tilted by a log-likelihood. A
particle remembers $\log r$ and $\ell$ apart, so that changing the temperature costs no evaluation. Two kinds
of moves complement each other:

* **walks** need one evaluation and no gradient. The step is a random multiple of the difference between two
  other particles (differential evolution, ter Braak 2006), or of Gaussian noise with the particles'
  covariance. Differences know the shape of the target: those within one mode are as long as that mode is
  wide, those between modes lead from mode to mode, more often so when applied to some coordinates only (a
  parameter that enters squared has a mirror image along one axis). The scale is log-uniform over two and a
  half decades, so that some step fits wherever a particle sits, even in a crescent a hundred times thinner
  than the whole.
* **Langevin moves** (MALA) follow the gradient in coordinates whitened by the particles' covariance, with one
  shared, adapted step size. They are what works beyond five dimensions or so. They are not `unle.samplers.Mala` because
  a particle remembers both parts of its density, and the random numbers come all at once (see `Sweep._dealt`).

Both are Metropolis-Hastings moves: given the particles that proposals are built from (the positions at the
beginning of the sweep), they leave the tempered density invariant. Walks come first because they need no
gradient; gradients are then computed once and carried along.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from unle.errors import InputError
from unle.samplers.kernels import LogDensity
from unle.samplers.particles import Whitening, choose_rows, ess, fit_whitening
from unle.samplers.step_size import SharedStepSize, StepSizeState

FEW_DIMENSIONS = 5  # up to here random walks mix as well as Langevin moves, without gradients
LANGEVIN_TARGET = 0.574  # Roberts & Rosenthal (1998)
# The acceptance is averaged over all particles, a clear signal, and there are few moves per temperature: a
# large floor lets the step size keep up with the temperature.
LANGEVIN_STEP = SharedStepSize(initial=0.5, floor=1.0, smallest=1e-6, largest=4.0)
WALK_DECADES = (-2.3, 0.2)  # log10 of the scale, relative to 2.38 / sqrt(dim), optimal for a Gaussian
GAUSSIAN_SHARE = 0.15  # of the walks take Gaussian steps: they can leave the span of few distinct particles
JUMP_SHARE = 0.3  # of the walks take a difference at full length: jumps from mode to mode
PARTIAL_SHARE = 0.7  # of the differences are applied to a random few of the coordinates only,
PARTIAL_NORMAL = 0.524  # each with probability .3, that of a normal number above this one
CLOSE = 0.5  # effective sample size of weights, as a share, from which on a reference counts as close to its target
WALK_UNIFORMS = 6  # that a walk of one particle takes


class TemperedParticles(NamedTuple):
    """Particles with both parts of their log-density."""

    positions: Float[Array, "particle dim"]  # u
    log_reference: Float[Array, " particle"]  # log r(u)
    log_tilt: Float[Array, " particle"]  # l(u); -inf where either part is not finite

    def at(self, temperature: Float[Array, ""]) -> Float[Array, " particle"]:
        """Return log r + beta l."""
        return self.log_reference + temperature * self.log_tilt


class SweepInfo(NamedTuple):
    """Mean acceptance probabilities of the two kinds of moves (NaN for a kind that was not used)."""

    walk_acceptance: Float[Array, ""]
    langevin_acceptance: Float[Array, ""]


class Sweep(eqx.Module):
    """How many moves of each kind make a sweep.

    The default costs 10 evaluations and 6 gradients per particle, and works in any dimension. In few dimensions walks
    alone do as well with 15 evaluations (see `for_dimension`). Both were chosen on posteriors with crescents, with four
    and with unequal modes, the first also on Gaussians in ten dimensions: fewer moves give away accuracy faster than
    they save time.
    """

    walks: int = eqx.field(default=10, static=True)  # gradient-free moves
    langevin: int = eqx.field(default=5, static=True)  # MALA moves; 0 for a log-likelihood without gradient

    @classmethod
    def for_dimension(cls, dim: int) -> "Sweep":
        """Return the cheapest sweep that mixes in this many dimensions."""
        return cls(walks=15, langevin=0) if dim <= FEW_DIMENSIONS else cls()

    def __check_init__(self):
        if self.walks < 0 or self.langevin < 0 or self.walks + self.langevin == 0:
            raise InputError(
                f"expected at least one move per sweep; got walks={self.walks}, langevin={self.langevin}; try Sweep()"
            )

    def __call__(
        self,
        numbers: Float[Array, " many"],  # randomness of the sweep: `numbers_needed` of them, uniform in (-1, 1)
        particles: TemperedParticles,  # equally weighted, with cached log-densities or `unevaluated`
        log_reference: LogDensity,  # log r of one point
        log_tilt: LogDensity,  # l of one point
        *,
        temperature: Float[Array, ""],  # beta; at 0 particles are evaluated, and do not move
        step_state: StepSizeState,  # of the controller of the Langevin step size, `LANGEVIN_STEP`
        n_walks: Int[Array, ""] | None = None,  # walks to make, if fewer
    ) -> tuple[TemperedParticles, StepSizeState, SweepInfo]:
        """Move all particles."""
        whitening = fit_whitening(particles.positions)
        archive = particles.positions
        walk_randomness, langevin_randomness = self._dealt(numbers, *particles.positions.shape)
        walk_acceptance = langevin_acceptance = jnp.full((), jnp.nan)

        if self.walks:

            def walk(i, carry):
                particles, total = carry
                randomness = jax.tree.map(lambda numbers: numbers[i], walk_randomness)
                particles, acceptance = walk_once(
                    randomness, particles, log_reference, log_tilt, temperature, whitening, archive
                )
                return particles, total + acceptance / wanted

            wanted = self.walks if n_walks is None else n_walks
            walks = jnp.where(temperature > 0.0, wanted, 1)  # at 0 one evaluates the particles
            particles, walk_acceptance = jax.lax.fori_loop(0, walks, walk, (particles, jnp.zeros(())))

        if self.langevin:
            value_and_gradient = _tempered_gradient(log_reference, log_tilt, temperature, whitening)

            def langevin(carry, randomness):
                particles, gradients, step_state = carry
                epsilon = LANGEVIN_STEP.value(step_state)
                particles, gradients, acceptance = _langevin(
                    randomness, particles, gradients, value_and_gradient, temperature, whitening, epsilon
                )
                step_state = LANGEVIN_STEP.update(step_state, acceptance, LANGEVIN_TARGET)
                return (particles, gradients, step_state), jnp.mean(acceptance)

            particles, gradients = value_and_gradient(particles.positions)
            gradients = jnp.where(jnp.isfinite(gradients), gradients, 0.0)
            carry = (particles, gradients, step_state)
            carry, acceptance = jax.lax.scan(langevin, carry, langevin_randomness)
            particles, _, step_state = carry
            langevin_acceptance = jnp.mean(acceptance)

        return particles, step_state, SweepInfo(walk_acceptance, langevin_acceptance)

    def numbers_needed(self, n: int, dim: int) -> int:
        """Return how many random numbers a sweep over n particles takes."""
        return n * (self.walks * (dim + WALK_UNIFORMS) + self.langevin * (dim + 1))

    def _dealt(self, numbers, n, dim):
        """Deal the random numbers out, to each kind of move: normal ones, as many as positions, and uniform ones.

        They come all at once and flat because a generator takes XLA on a CPU long to compile, longest for an array
        whose last axes are short (15 s instead of 0.4 s for the shape (15, 500, 10) under `vmap`).
        """
        moves = self.walks + self.langevin
        normals, uniforms = jnp.split(numbers, [moves * n * dim])
        normals = (jnp.sqrt(2.0) * jax.scipy.special.erfinv(normals)).reshape(moves, n, dim)
        uniforms = (0.5 + 0.5 * uniforms).reshape(-1, n)
        of_walks, of_langevin = jnp.split(uniforms, [WALK_UNIFORMS * self.walks])
        walks = (normals[: self.walks], of_walks.reshape(self.walks, WALK_UNIFORMS, n))
        return walks, (normals[self.walks :], of_langevin)


class SurrogateSweep(eqx.Module):
    r"""A sweep where the reference is cheap and close to the target: most moves never look at the tilt.

    Many walks under r alone end at a proposal y, and are reversible together. It is accepted with probability

    $$\min(1, e^{\beta\,(\ell(y) - \ell(u))}),$$

    which leaves $r\,e^{\beta\ell}$ invariant (Liu 2001, surrogate transitions) at the price of one evaluation.  Moves
    of the usual kind follow: one walk where r is close to the target, all of them where it is not, and proposals are
    refused again and again.
    """

    walks: int = eqx.field(default=15, static=True)  # under the reference
    moves: Sweep = Sweep(walks=15, langevin=0)  # under the target

    @classmethod
    def for_dimension(cls, dim: int) -> "SurrogateSweep":
        """Return the sweep that mixes in this many dimensions."""
        return cls() if dim <= FEW_DIMENSIONS else cls(walks=30, moves=Sweep(walks=15, langevin=1))

    def __call__(
        self,
        numbers: Float[Array, " many"],
        particles: TemperedParticles,
        log_reference: LogDensity,
        log_tilt: LogDensity,
        *,
        temperature: Float[Array, ""],
        step_state: StepSizeState,
    ) -> tuple[TemperedParticles, StepSizeState, SweepInfo]:
        """Move all particles; arguments as those of a `Sweep`."""
        n, dim = particles.positions.shape
        under_reference = Sweep(walks=self.walks, langevin=0)
        decisions, numbers, others = jnp.split(numbers, [n, n + under_reference.numbers_needed(n, dim)])
        moved, _, _ = under_reference(
            numbers,
            particles._replace(log_tilt=jnp.zeros(n)),
            log_reference,
            lambda position: jnp.zeros(()),
            temperature=jnp.ones(()),
            step_state=step_state,
        )
        tilt = jnp.where(jnp.isfinite(moved.log_tilt), jax.vmap(log_tilt)(moved.positions), -jnp.inf)
        proposed = _guarded(moved.positions, moved.log_reference, tilt)
        log_ratio = temperature * (proposed.log_tilt - particles.log_tilt)
        log_ratio = jnp.where(is_unevaluated(particles), 0.0, log_ratio)
        particles, _, _ = _accept(0.5 + 0.5 * decisions, particles, proposed, log_ratio)
        tilt = jnp.where(jnp.isfinite(particles.log_tilt), particles.log_tilt, 0.0)
        is_close = jnp.minimum(ess(tilt), ess(-tilt)) > CLOSE  # weights from one density to the other, and back
        return self.moves(
            others,
            particles,
            log_reference,
            log_tilt,
            temperature=temperature,
            step_state=step_state,
            n_walks=jnp.where(is_close, 1, self.moves.walks),
        )

    def numbers_needed(self, n: int, dim: int) -> int:
        """Return how many random numbers a sweep over n particles takes."""
        return n + Sweep(walks=self.walks, langevin=0).numbers_needed(n, dim) + self.moves.numbers_needed(n, dim)


def unevaluated(positions: Float[Array, "particle dim"]) -> TemperedParticles:
    """Return particles whose first move evaluates the densities where they are.

    To evaluate them before would be to compile the densities, most of a sampler's program, once more.
    """
    nothing = jnp.zeros(positions.shape[0])
    return TemperedParticles(positions, nothing - jnp.inf, nothing)


def is_unevaluated(particles: TemperedParticles) -> Bool[Array, " particle"]:
    """Return which particles wait for their first move."""
    return jnp.isneginf(particles.log_reference)


def evaluate(
    positions: Float[Array, "particle dim"], log_reference: LogDensity, log_tilt: LogDensity
) -> TemperedParticles:
    """Evaluate both parts of the log-density; a point where either is NaN or infinite gets weight zero."""
    return _guarded(positions, jax.vmap(log_reference)(positions), jax.vmap(log_tilt)(positions))


def _guarded(positions, log_reference, log_tilt) -> TemperedParticles:
    finite = jnp.isfinite(log_reference) & jnp.isfinite(log_tilt)
    return TemperedParticles(positions, jnp.where(finite, log_reference, 0.0), jnp.where(finite, log_tilt, -jnp.inf))


def _tempered_gradient(log_reference, log_tilt, temperature, whitening: Whitening):
    """Build u -> (particles with both parts, gradient of log r + beta l in whitened coordinates)."""

    def total(position):
        reference, tilt = log_reference(position), log_tilt(position)
        return reference + temperature * tilt, (reference, tilt)

    def value_and_gradient(positions):
        (_, parts), gradients = jax.vmap(jax.value_and_grad(total, has_aux=True))(positions)
        return _guarded(positions, *parts), gradients @ whitening.factor

    return value_and_gradient


def walk_once(
    randomness: tuple[Float[Array, "particle dim"], Float[Array, "6 particle"]],
    particles: TemperedParticles,
    log_reference: LogDensity,
    log_tilt: LogDensity,
    temperature: Float[Array, ""],
    whitening: Whitening,
    archive: Float[Array, "archive dim"],
) -> tuple[TemperedParticles, Float[Array, ""]]:
    """Propose u + random scale x (difference of two particles, or Gaussian noise): a symmetric step.

    Differences are taken between points of the archive; with an archive and a whitening that stay as they are, any
    number of walks together is reversible.
    """
    noise, (kind, part, exponent, first, second, uniform) = randomness
    n, dim = archive.shape
    low, high = WALK_DECADES
    scale = 2.38 * 10 ** (low + (high - low) * exponent)
    is_gaussian = kind < GAUSSIAN_SHARE
    is_jump = kind < GAUSSIAN_SHARE + JUMP_SHARE  # unless Gaussian

    first, second = (jnp.minimum((n * choice).astype(int), n - 1) for choice in (first, second))
    chosen = noise > PARTIAL_NORMAL  # the noise serves twice: a step uses it one way or the other
    is_partial = (part < PARTIAL_SHARE) & jnp.any(chosen, axis=1)
    chosen = chosen | ~is_partial[:, None]
    # A difference of two independent particles has twice their covariance; hence the 2.
    length = jnp.where(is_jump, 1.0, scale / jnp.sqrt(2 * jnp.sum(chosen, axis=1)))
    differences = length[:, None] * chosen * (archive[first] - archive[second])
    noise = (scale / jnp.sqrt(dim))[:, None] * (noise @ whitening.factor.T)

    steps = jnp.where(is_gaussian[:, None], noise, differences)
    is_new = is_unevaluated(particles)
    proposed = evaluate(particles.positions + jnp.where(is_new[:, None], 0.0, steps), log_reference, log_tilt)
    log_ratio = jnp.where(is_new, 0.0, _log_ratio(proposed, particles, temperature))  # new ones stay and are accepted
    particles, acceptance, _ = _accept(uniform, particles, proposed, log_ratio)
    return particles, jnp.mean(acceptance)


def langevin_steps(noise: Array, gradients: Array, epsilon: Array) -> Array:
    """Return epsilon g + sqrt(2 epsilon) xi, for the gradients g and normal noise xi."""
    return epsilon * gradients + jnp.sqrt(2 * epsilon) * noise


def langevin_log_ratio(noise: Array, gradients: Array, new_gradients: Array, epsilon: Array) -> Float[Array, " chain"]:
    """Return the log-ratio of proposal densities, reverse over forward.

    The reverse step needs the noise -(xi + sqrt(epsilon / 2) (g + g')): no nearly equal positions are subtracted.
    """
    reverse = noise + jnp.sqrt(0.5 * epsilon) * (gradients + new_gradients)
    return 0.5 * jnp.sum(noise**2 - reverse**2, axis=1)


def _langevin(randomness, particles, gradients, value_and_gradient, temperature, whitening, epsilon):
    """Propose a Langevin step in whitened coordinates; accept or reject."""
    noise, uniform = randomness
    steps = langevin_steps(noise, gradients, epsilon)
    proposed, new_gradients = value_and_gradient(particles.positions + steps @ whitening.factor.T)
    log_ratio = _log_ratio(proposed, particles, temperature)
    log_ratio = log_ratio + langevin_log_ratio(noise, gradients, new_gradients, epsilon)
    particles, acceptance, accepted = _accept(uniform, particles, proposed, log_ratio)
    return particles, jnp.where(accepted[:, None], new_gradients, gradients), acceptance


def _log_ratio(proposed: TemperedParticles, particles: TemperedParticles, temperature) -> Float[Array, " particle"]:
    """Return the log-ratio of the densities; at temperature 0 particles are evaluated and do not move."""
    return jnp.where(temperature > 0.0, proposed.at(temperature) - particles.at(temperature), -jnp.inf)


def _accept(uniform, particles, proposed, log_ratio):
    """Metropolis-Hastings; NaN is a rejection (both ends outside the support, or no usable gradient)."""
    probability = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0))
    accepted = uniform < probability
    return choose_rows(accepted, proposed, particles), probability, accepted
