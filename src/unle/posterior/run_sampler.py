"""The compiled program behind `Posterior.sample`: which sampler, from where, and one run per observation."""

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from unle.compiling import RUNNER, cores, large_program, meanwhile, on_device, split
from unle.errors import InputError
from unle.models import (
    AbstractLikelihood,
    DoublyIntractableLikelihood,
    MarginalGaussian,
    Normalised,
    TractableLikelihood,
    in_the_middle,
)
from unle.posterior.doubly_intractable import AbstractDoublyIntractableSampler, Exchange
from unle.posterior.posterior_samplers import DRAWS, AbstractPosteriorSampler, Sampled, TemperedSmc, doubled
from unle.samplers import ExchangeTarget, Family
from unle.space import ConditionalPrior, Prior

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
    prior: Prior | ConditionalPrior, sampler: Sampler, key: PRNGKeyArray, n: int
) -> Float[Array, "start dim"]:
    """Return where the sampler begins, in unconstrained coordinates."""
    if isinstance(prior, ConditionalPrior):
        if getattr(sampler, "starts", None) is not None:
            raise InputError("expected a sampler without `starts` next to `condition`; try sampler=TemperedSmc().")
        return prior.draws(key, sampler.prior_draws_needed(n))
    if isinstance(sampler, AbstractDoublyIntractableSampler) and sampler.starts is not None:
        return jax.vmap(prior.unconstrain)(sampler.starts)
    return jax.vmap(prior.unconstrain)(prior.draws(key, sampler.prior_draws_needed(n)))


def sample_each(
    prior: Prior | ConditionalPrior,  # of theta
    likelihood: AbstractLikelihood,  # of either kind
    sampler: Sampler,  # of the kind that suits it
    key: PRNGKeyArray,  # randomness of all of them
    observations: list[np.ndarray],  # rows of x, the same number each
    n: int,  # number of draws
    share: Callable[[float], None] = lambda share: None,  # is told how much is done, whenever a program has ended
) -> list[Sampled]:
    """Return n draws, rounded up to whole chains, of the posterior of every observation.

    Programs are compiled for a few sizes: more draws than are wanted, and more rows than an observation has, are left
    out of what they do.  So another number of draws, rows or observations seldom compiles anew.
    """
    room, wanted = sampler.room(n), on_device(n, np.int32)
    key_starts, key_samplers = split(key, 2)
    filled = [_filled(rows, likelihood) for rows in observations]
    keys = [split(key, len(observations)) for key in (key_starts, key_samplers)]
    each = [(*both, *rows) for *both, rows in zip(*keys, filled, strict=True)]
    if jax.default_backend() == "cpu":
        sampled = _in_threads(prior, likelihood, sampler, each, room, wanted, share)
    elif len(each) == 1:
        sampled = [run_sampler(prior, likelihood, sampler, *each[0], room, wanted)]
    else:
        sampled = _side_by_side(prior, likelihood, sampler, each, room, wanted, share)
    host = [jax.tree.map(np.asarray, one) for one in sampled]
    return [one._replace(draws=one.draws[:, : -(-n // one.draws.shape[0])]) for one in host]


def _filled(rows: np.ndarray, likelihood: AbstractLikelihood) -> tuple[Array, Array]:
    """Return the rows of an observation, filled up to a power of two, and which of them count."""
    fill = doubled(1, len(rows)) - len(rows) if isinstance(likelihood, TractableLikelihood) else 0
    is_row = np.arange(len(rows) + fill) < len(rows)
    return on_device(np.concatenate([rows, np.repeat(rows[:1], fill, axis=0)])), on_device(is_row, bool)


def _in_threads(prior, likelihood, sampler, each, room, wanted, share) -> list[Sampled]:
    """Sample on a CPU: the parts of every observation's run are divided among the processors.

    One program for all of them would do most of its work on one processor, and wait for the slowest.  Parts of a
    likelihood with gaps take turns: they factorise matrices, for which JAX keeps a thread waiting for others of the
    same pool.  Side by side they would occupy all threads, and wait for ever.
    """
    numbers = _part_numbers(sampler)
    jobs = [(*one, room, wanted, number) for one in each for number in numbers]
    if len(jobs) == 1 or RUNNER.get() is not None:
        ends = [run_sampler(prior, likelihood, sampler, *job) for job in jobs]
    else:
        program = run_sampler.lower(prior, likelihood, sampler, *jobs[0]).compile()
        pool = ThreadPoolExecutor(1 if _has_gaps(likelihood) else min(cores(), len(jobs)))
        try:
            ends = []
            for end in pool.map(lambda job: jax.device_get(program(prior, likelihood, sampler, *job)), jobs):
                ends.append(end)
                share(len(ends) / len(jobs))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return [_joined(ends[first : first + len(numbers)]) for first in range(0, len(ends), len(numbers))]


def _has_gaps(likelihood: AbstractLikelihood) -> bool:
    nodes = jax.tree.leaves(likelihood, is_leaf=lambda node: isinstance(node, MarginalGaussian))
    return any(isinstance(node, MarginalGaussian) for node in nodes)


def _part_numbers(sampler: Sampler) -> list[Int[Array, ""] | None]:
    """Return the numbers of a sampler's parts, if each is a run of its own here."""
    parts = sampler.parts if isinstance(sampler, AbstractPosteriorSampler) else 1
    is_whole = parts == 1 or jax.default_backend() != "cpu" or jax.local_device_count() > 1 or RUNNER.get() is not None
    return [None] if is_whole else [on_device(i, np.int32) for i in range(parts)]


def _joined(parts: list[Sampled]) -> Sampled:
    """Return the chains of all parts of a run."""
    if len(parts) == 1:
        return parts[0]
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(one._replace(acceptance=None) for one in parts))
    return joined._replace(acceptance=np.mean([one.acceptance for one in parts]))


def _side_by_side(prior, likelihood, sampler, each, room, wanted, share) -> list[Sampled]:
    """Sample many observations at once on an accelerator, in blocks of one size."""
    sampled = []
    for first in range(0, len(each), SIDE_BY_SIDE):
        block = each[first : first + SIDE_BY_SIDE]
        full = [block[i % len(block)] for i in range(SIDE_BY_SIDE)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *full)
        many = jax.device_get(run_samplers(prior, likelihood, sampler, *stacked, room, wanted))
        sampled += [jax.tree.map(operator.itemgetter(i), many) for i in range(len(block))]
        share(len(sampled) / len(each))
    return sampled


@large_program
def run_sampler(
    prior: Prior | ConditionalPrior,
    likelihood: AbstractLikelihood,
    sampler: Sampler,
    key_start: PRNGKeyArray,
    key: PRNGKeyArray,
    rows: Float[Array, "rows dim_x"],
    is_row: Bool[Array, " rows"],
    n: int,
    wanted: Int[Array, ""],
    part: Int[Array, ""] | None = None,
) -> Sampled:
    """Sample the posterior of one observation, or make one part of its draws; they come back as theta."""
    return _sampled(prior, likelihood, sampler, key_start, key, rows, is_row, n, wanted, part)


@large_program
def run_samplers(prior, likelihood, sampler, start_keys, keys, rows, is_row, n, wanted) -> Sampled:
    """Sample the posteriors of many observations side by side; arguments as in `run_sampler`, with one more axis."""

    def one(key_start, key, rows, is_row):
        return _sampled(prior, likelihood, sampler, key_start, key, rows, is_row, n, wanted)

    return jax.vmap(one)(start_keys, keys, rows, is_row)


def _sampled(prior, likelihood, sampler, key_start, key, rows, is_row, n, wanted, part=None) -> Sampled:
    starts = starting_points(prior, sampler, key_start, n)
    prepared = jax.vmap(likelihood.prepare)(rows)

    def log_density_of(likelihood, prepared):
        return lambda u: log_likelihood(likelihood, prior.constrain(u), prepared, is_row) + _log_correction(prior, u)

    if isinstance(sampler, AbstractDoublyIntractableSampler):
        sampled = sampler(key, starts, _target(prior, likelihood, prepared), n, wanted)
    else:
        assert isinstance(likelihood, TractableLikelihood)  # by `check_kinds`
        options = {} if part is None else {"part": part}
        cheap = in_the_middle(likelihood) if isinstance(sampler, TemperedSmc) else None
        if cheap is not None:
            options["log_cheap"] = log_density_of(cheap, jax.vmap(cheap.prepare)(rows))
        log_target = log_density_of(likelihood, prepared)
        sampled = sampler(key, starts, prior.log_density_unconstrained, log_target, n, wanted, **options)
    return sampled._replace(draws=jax.vmap(jax.vmap(prior.constrain))(sampled.draws))


def precompile_sampler(
    prior: Prior, likelihood: Callable[[], AbstractLikelihood], sampler: AbstractPosteriorSampler
) -> AbstractContextManager[None]:
    """Compile `Posterior.sample`, for one observation and up to the default number of draws, while the block runs.

    `likelihood` makes one with the structure and the shapes of the posterior's; it is called in the other thread too.
    """

    def compile_program():
        fitted = likelihood()
        x_space = fitted.space_of_x()
        if x_space is None:
            return
        key, wanted = jr.key(0), on_device(DRAWS, np.int32)
        rows, is_row = _filled(np.zeros((1, x_space.dim_x)), fitted)
        room, part = sampler.room(DRAWS), _part_numbers(sampler)[0]
        run_sampler.lower(prior, fitted, sampler, key, key, rows, is_row, room, wanted, part).compile()

    return meanwhile(compile_program)


@eqx.filter_jit
def unconstrained(prior: Prior, thetas: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    """Return u of many theta."""
    return jax.vmap(prior.unconstrain)(thetas)


def log_likelihood(
    likelihood: TractableLikelihood, theta, prepared, is_row: Bool[Array, " rows"] | None = None
) -> Float[Array, ""]:
    """Return the log-likelihood of all rows that count, prepared by the likelihood."""
    values = jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared)
    return jnp.sum(values if is_row is None else jnp.where(is_row, values, 0.0))


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
