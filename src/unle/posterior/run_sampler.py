"""The compiled program behind `Posterior.sample`: which sampler, from where, and one run per observation."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from unle.compiling import large_program, meanwhile
from unle.errors import InputError
from unle.models import AbstractLikelihood, DoublyIntractableLikelihood, Normalised, TractableLikelihood
from unle.posterior.doubly_intractable import AbstractDoublyIntractableSampler, Exchange
from unle.posterior.posterior_samplers import AbstractPosteriorSampler, Sampled, TemperedSmc
from unle.samplers import ExchangeTarget, Family
from unle.space import ConditionalPrior, Prior, reference_draws, unconstrained_draws
from unle.space.host_device import keys, on_device, split

DRAWS = 10_000  # by default
SIDE_BY_SIDE = 32  # observations sampled at once on an accelerator

Sampler = AbstractPosteriorSampler | AbstractDoublyIntractableSampler


def default_sampler(likelihood: AbstractLikelihood) -> Sampler:
    """Return the sampler of a likelihood of this kind."""
    return Exchange() if isinstance(likelihood, DoublyIntractableLikelihood) else TemperedSmc()


def check_kinds(likelihood: AbstractLikelihood, sampler: Sampler) -> None:
    """Refuse a sampler that would ignore Z(theta), and one that needs the parts of a Z(theta) that is not there."""
    name = type(likelihood).__name__
    if isinstance(sampler, AbstractPosteriorSampler) and not isinstance(likelihood, TractableLikelihood):
        raise InputError(
            f"expected a sampler for doubly intractable likelihoods such as {name}; got {type(sampler).__name__}, "
            "which would ignore Z(theta); try Exchange(), or Normalised(likelihood, log_normaliser) with a fitted one."
        )
    takes = isinstance(likelihood, DoublyIntractableLikelihood | Normalised)
    if isinstance(sampler, AbstractDoublyIntractableSampler) and not takes:
        raise InputError(
            f"expected a doubly intractable likelihood for {type(sampler).__name__}; got {name}, which needs no "
            "auxiliary data; try TemperedSmc()."
        )


def starting_points(
    prior: Prior | ConditionalPrior, sampler: Sampler, key: PRNGKeyArray, observations: int, n: int
) -> tuple[Float[Array, "observation start dim"], Key[Array, " observation"]]:
    """Return where the sampler begins for each observation, in unconstrained coordinates, and a key for each."""
    given = sampler.starts if isinstance(sampler, AbstractDoublyIntractableSampler) else None
    needed = sampler.prior_draws_needed(n) if given is None else 1
    key_starts, key_samplers = split(key, 2)
    if isinstance(prior, ConditionalPrior):
        if getattr(sampler, "starts", None) is not None:
            raise InputError("expected a sampler without `starts` next to `condition`; try sampler=TemperedSmc().")
        return reference_draws(prior, keys(key_starts, observations), needed), keys(key_samplers, observations)
    starts = unconstrained_draws(prior, keys(key_starts, observations), needed)
    if given is not None:
        starts = jnp.repeat(unconstrained(prior, given)[None], observations, axis=0)
    return starts, keys(key_samplers, observations)


@large_program
def run_sampler(
    prior: Prior | ConditionalPrior,
    likelihood: AbstractLikelihood,
    sampler: Sampler,
    keys: Key[Array, " observation"],
    starts: Float[Array, "observation start dim"],
    rows: Float[Array, "observation rows dim_x"],
    n: int,
) -> Sampled:
    """Sample the posterior of every observation; draws come back as theta."""

    def one(key, starts, rows):
        prepared = jax.vmap(likelihood.prepare)(rows)
        if isinstance(sampler, AbstractDoublyIntractableSampler):
            sampled = sampler(key, starts, _target(prior, likelihood, prepared), n)
        else:
            tractable = likelihood
            assert isinstance(tractable, TractableLikelihood)  # by `check_kinds`
            sampled = sampler(
                key,
                starts,
                prior.log_density_unconstrained,
                lambda u: log_likelihood(tractable, prior.constrain(u), prepared) + _log_correction(prior, u),
                n,
            )
        return sampled._replace(draws=jax.vmap(jax.vmap(prior.constrain))(sampled.draws))

    each = keys, starts, rows
    if rows.shape[0] == 1:  # quicker to compile without a loop
        return jax.tree.map(lambda leaf: leaf[None], one(*(leaf[0] for leaf in each)))
    # A CPU gains nothing from running observations side by side, and would wait for the slowest.
    side_by_side = 1 if jax.default_backend() == "cpu" else SIDE_BY_SIDE
    return jax.lax.map(lambda leaves: one(*leaves), each, batch_size=min(side_by_side, rows.shape[0]))


def precompile_sampler(
    prior: Prior, likelihood: Callable[[], AbstractLikelihood], sampler: AbstractPosteriorSampler
) -> AbstractContextManager[None]:
    """Compile `Posterior.sample`, for one observation and the default number of draws, while the block runs.

    Args:
        prior: of the posterior.
        likelihood: makes one with the structure and the shapes of the posterior's; called in the other thread too.
        sampler: of the posterior.
    """

    def compile_program():
        fitted = likelihood()
        x_space = fitted.space_of_x()
        if x_space is None:
            return
        starts, each = starting_points(prior, sampler, jr.key(0), 1, DRAWS)
        rows = on_device(np.zeros((1, 1, x_space.dim_x)))
        run_sampler.lower(prior, fitted, sampler, each, starts, rows, DRAWS).compile()

    return meanwhile(compile_program)


@eqx.filter_jit
def unconstrained(prior: Prior, thetas: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    """Return u of many theta."""
    return jax.vmap(prior.unconstrain)(thetas)


def log_likelihood(likelihood: TractableLikelihood, theta, prepared) -> Float[Array, ""]:
    """Return the log-likelihood of all rows, prepared by the likelihood."""
    return jnp.sum(jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared))


def _log_correction(prior: Prior | ConditionalPrior, u) -> Float[Array, ""]:
    """Return what the density that a sampler starts from lacks: nothing, unless parameters are fixed."""
    return prior.log_correction(u) if isinstance(prior, ConditionalPrior) else jnp.zeros(())


def _target(prior: Prior | ConditionalPrior, likelihood: AbstractLikelihood, prepared) -> ExchangeTarget:
    """Return what the exchange algorithm needs; a learned log Z becomes the surrogate's."""
    log_z = None
    if isinstance(likelihood, Normalised):
        normalised, likelihood = likelihood, likelihood.likelihood
        log_z = lambda u: normalised.log_z(prior.constrain(u))  # noqa: E731
    assert isinstance(likelihood, DoublyIntractableLikelihood)  # by `check_kinds`
    unnormalised = likelihood.log_unnormalised
    return ExchangeTarget(
        prior.log_density_unconstrained,
        lambda u: (
            jnp.sum(jax.vmap(lambda w: unnormalised(prior.constrain(u), w))(prepared)) + _log_correction(prior, u)
        ),
        Family(likelihood.log_tilt, likelihood.log_reference, likelihood.draws),
        lambda u: likelihood.standardise(prior.constrain(u)),
        prepared.shape[0],
        log_z,
    )
