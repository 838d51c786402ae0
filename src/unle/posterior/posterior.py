r"""The posterior: prior times likelihood, for any observation.

    log p(theta | x_o) = log p(theta) + sum_rows log q(x_row | theta) + const

The likelihood is fitted once; a new observation only changes an argument of compiled functions.  Its kind decides how
draws are made: plain samplers for a tractable likelihood, the exchange algorithm for a doubly intractable one.
"""

import operator
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray
from scipy.optimize import minimize

from unle.compiling import large_program
from unle.errors import InputError, UnleWarning
from unle.models import AbstractLikelihood, DoublyIntractableLikelihood, Normalised, TractableLikelihood
from unle.posterior.doubly_intractable import AbstractDoublyIntractableSampler, DoublyIntractableTarget, Exchange
from unle.posterior.draws import Draws
from unle.posterior.posterior_samplers import AbstractPosteriorSampler, Sampled, TemperedSmc
from unle.samplers import Family
from unle.space import Prior, unconstrained_draws
from unle.space.host_device import keys, on_device, split
from unle.store.modules import load_module, save_module

DRAWS = 10_000  # if nobody says how many
SIDE_BY_SIDE = 32  # observations sampled at once on an accelerator
MAP_DRAWS = 1000  # among which the search for the mode looks for places to begin
MAP_STARTS = 8  # of them

Sampler = AbstractPosteriorSampler | AbstractDoublyIntractableSampler


class Posterior(eqx.Module):
    """A fitted posterior, amortised over observations.

    Args:
        prior: the prior of theta.
        likelihood: of either kind: `TractableLikelihood` or `DoublyIntractableLikelihood`.
        sampler: how to draw; by default `TemperedSmc()` for the first kind and `Exchange()` for the second.
    """

    prior: Prior
    likelihood: AbstractLikelihood
    sampler: Sampler | None = None

    def __check_init__(self):
        if self.sampler is not None:
            _check_kinds(self.likelihood, self.sampler)

    def sample(self, x_o: Any, n: int = DRAWS, *, seed: int = 0, sampler: Sampler | None = None) -> Draws:
        """Draw from the posterior given one observation.

        Args:
            x_o: the observation: one data vector, or several i.i.d. rows of them, which multiply the likelihood.
            n: number of draws.
            seed: fixes the draws.
            sampler: another way to draw than the posterior's own, such as `Chains(Nuts())`.

        Returns:
            `Draws`, n of them (rounded up to whole chains).
        """
        return self.sample_many([x_o], n, seed=seed, sampler=sampler)[0]

    def sample_many(
        self,
        observations: Sequence[Any],
        n: int = DRAWS,
        *,
        seed: int = 0,
        sampler: Sampler | None = None,
    ) -> list[Draws]:
        """Draw from the posteriors of many observations in one compiled call.

        Args:
            observations: each as in `sample`, all with the same number of rows.
            n: number of draws for each.
            seed: fixes the draws.
            sampler: as in `sample`.
        """
        if n < 1:
            raise InputError(f"expected a positive number of draws; got {n}; try n=10_000.")
        sampler = next(one for one in (sampler, self.sampler, _default_sampler(self.likelihood)) if one is not None)
        _check_kinds(self.likelihood, sampler)
        rows = [self._checked(x_o) for x_o in observations]
        if len({len(row) for row in rows}) > 1:
            raise InputError("expected observations with the same number of rows; try one call of `sample` for each.")
        starts, each = _starts(self.prior, sampler, jr.key(seed), len(rows), n)
        result = _sample(self.prior, self.likelihood, sampler, each, starts, on_device(np.stack(rows)), n)
        draws = [_as_draws(self.prior.names, row, seed, part) for row, part in zip(rows, _unstack(result), strict=True)]
        if not all(_is_sampled(one) for one in draws):
            raise InputError(
                "the posterior could not be sampled: the likelihood of x_o is not finite anywhere in the prior; "
                "check that x_o has the units of the simulations."
            )
        return draws

    def log_prob(self, theta: Any, x_o: Any) -> Float[Array, "*n"]:
        """Return the unnormalised log posterior at theta, shape (d,) or (n, d); -inf outside the prior's support."""
        likelihood = self._tractable("log_prob")
        theta = jnp.asarray(theta, jnp.float32)
        if theta.ndim not in (1, 2) or theta.shape[-1] != self.prior.dim:
            raise InputError(
                f"expected theta of shape ({self.prior.dim},) or (n, {self.prior.dim}); got {theta.shape}."
            )
        rows = jnp.asarray(self._checked(x_o), jnp.float32)
        values = _log_prob(self.prior, likelihood, jnp.atleast_2d(theta), rows)
        return values.reshape(theta.shape[:-1])

    def map(self, x_o: Any, *, draws: Any = None, seed: int = 0) -> Float[np.ndarray, " dim"]:
        """Return the theta of highest posterior density in the prior's own coordinates.

        The search starts at the best of some posterior draws and climbs by L-BFGS.

        Args:
            x_o: the observation.
            draws: of this posterior at x_o, as `Draws` or as an array (n, d), to begin with; a thousand are made
                if there are none.
            seed: of the draws that are made.
        """
        likelihood = self._tractable("map")
        rows = jnp.asarray(self._checked(x_o, warn=False), jnp.float32)
        values = np.asarray(self.sample(x_o, MAP_DRAWS, seed=seed) if draws is None else draws, np.float32)
        some = values[np.linspace(0, len(values) - 1, MAP_DRAWS).astype(int)]  # always as many: compiled once
        heights = np.asarray(self.log_prob(some, x_o), float)
        best = np.argsort(-heights)[:MAP_STARTS]
        found: list[tuple[float, np.ndarray]] = [(float(heights[best[0]]), some[best[0]])]
        for u in np.asarray(_unconstrained(self.prior, jnp.asarray(some[best])), float):
            end = minimize(lambda u: _depth(self.prior, likelihood, u, rows)[:2], u, jac=True, method="L-BFGS-B")
            found.append((-float(end.fun), _depth(self.prior, likelihood, end.x, rows)[2]))
        _, theta = max((pair for pair in found if np.isfinite(pair[0])), key=operator.itemgetter(0))
        return np.asarray(theta, np.float32)

    def save(self, path: str | Path, *, note: dict | None = None) -> None:
        """Write prior and likelihood to `path`.json and `path`.npz; nothing is pickled."""
        save_module(Path(path), self, note=note)

    @classmethod
    def load(cls, path: str | Path) -> "Posterior":
        """Read what `save` wrote."""
        loaded = load_module(Path(path))
        if not isinstance(loaded, cls):
            raise InputError(f"expected a saved posterior at {path}; got a {type(loaded).__name__}.")
        return loaded

    def _tractable(self, asked: str) -> TractableLikelihood:
        if not isinstance(self.likelihood, TractableLikelihood):
            raise InputError(
                f"expected a likelihood with a known normaliser for `{asked}`; got a doubly intractable "
                f"{type(self.likelihood).__name__}; try Normalised(likelihood, log_normaliser) with a fitted one."
            )
        return self.likelihood

    def _checked(self, x_o: Any, *, warn: bool = True) -> Float[np.ndarray, "rows dim_x"]:
        """Return x_o as rows, with a clear error or warning where it cannot be or may not be meant."""
        x_space = self.likelihood.space_of_x()
        try:
            rows = np.asarray(x_o, dtype=float)
        except (TypeError, ValueError):
            raise InputError(f"expected x_o as an array of numbers; got {type(x_o).__name__}.") from None
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[0] < 1:
            raise InputError(f"expected x_o as one data vector or rows of them; got shape {np.shape(x_o)}.")
        if x_space is not None and rows.shape[1] != x_space.dim_x:
            raise InputError(
                f"expected x_o of length {x_space.dim_x}, as the simulations; got {rows.shape[1]}; "
                "try the same summary statistics in the same order."
            )
        if not np.isfinite(rows).all():
            bad = np.flatnonzero(~np.isfinite(rows).all(axis=0)).tolist()
            raise InputError(f"expected a finite x_o; got NaN or inf in coordinates {bad}; try leaving them out of x.")
        if warn and x_space is not None:
            for row in rows[:20]:
                for message in x_space.check_observation(row):
                    warnings.warn(message, UnleWarning, stacklevel=4)
        return rows


def _default_sampler(likelihood: AbstractLikelihood) -> Sampler:
    return Exchange() if isinstance(likelihood, DoublyIntractableLikelihood) else TemperedSmc()


def _check_kinds(likelihood: AbstractLikelihood, sampler: Sampler) -> None:
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


def _log_likelihood(likelihood: TractableLikelihood, theta, prepared) -> Float[Array, ""]:
    return jnp.sum(jax.vmap(lambda w: likelihood.log_likelihood(theta, w))(prepared))


def _target(prior: Prior, likelihood: AbstractLikelihood, prepared) -> DoublyIntractableTarget:
    """Return what the exchange algorithm needs; a learned log Z becomes the surrogate's."""
    log_z = None
    if isinstance(likelihood, Normalised):
        normalised, likelihood = likelihood, likelihood.likelihood
        log_z = lambda u: normalised.log_z(prior.constrain(u))  # noqa: E731
    assert isinstance(likelihood, DoublyIntractableLikelihood)  # `_check_kinds` has seen to it
    unnormalised = likelihood.log_unnormalised
    return DoublyIntractableTarget(
        prior.log_density_unconstrained,
        lambda u: jnp.sum(jax.vmap(lambda w: unnormalised(prior.constrain(u), w))(prepared)),
        lambda u: likelihood.standardise(prior.constrain(u)),
        Family(likelihood.log_tilt, likelihood.log_reference, likelihood.draws),
        prepared.shape[0],
        log_z,
    )


def _starts(
    prior: Prior, sampler: Sampler, key: PRNGKeyArray, observations: int, n: int
) -> tuple[Float[Array, "observation start dim"], Key[Array, " observation"]]:
    """Return where the sampler begins for each observation, in unconstrained coordinates, and a key for each."""
    given = sampler.starts if isinstance(sampler, AbstractDoublyIntractableSampler) else None
    needed = sampler.prior_draws_needed(n) if given is None else 1
    key_starts, key_samplers = split(key, 2)
    starts = unconstrained_draws(prior, keys(key_starts, observations), needed)
    if given is not None:
        starts = jnp.repeat(_unconstrained(prior, given)[None], observations, axis=0)
    return starts, keys(key_samplers, observations)


@large_program
def _sample(
    prior: Prior,
    likelihood: AbstractLikelihood,
    sampler: Sampler,
    keys: Key[Array, " observation"],
    starts: Float[Array, "observation start dim"],
    rows: Float[Array, "observation rows dim_x"],
    n: int,
) -> Sampled:
    def one(key, starts, rows):
        prepared = jax.vmap(likelihood.prepare)(rows)
        if isinstance(sampler, AbstractDoublyIntractableSampler):
            sampled = sampler(key, starts, _target(prior, likelihood, prepared), n)
        else:
            tractable = likelihood
            assert isinstance(tractable, TractableLikelihood)  # `_check_kinds` has seen to it
            sampled = sampler(
                key,
                starts,
                prior.log_density_unconstrained,
                lambda u: _log_likelihood(tractable, prior.constrain(u), prepared),
                n,
            )
        return sampled._replace(draws=jax.vmap(jax.vmap(prior.constrain))(sampled.draws))

    each = keys, starts, rows
    if rows.shape[0] == 1:  # quicker to compile without a loop
        return jax.tree.map(lambda leaf: leaf[None], one(*(leaf[0] for leaf in each)))
    # A CPU gains nothing from running observations side by side, and would wait for the slowest.
    side_by_side = 1 if jax.default_backend() == "cpu" else SIDE_BY_SIDE
    return jax.lax.map(lambda leaves: one(*leaves), each, batch_size=min(side_by_side, rows.shape[0]))


def compile_sampler(posterior: Posterior) -> None:
    """Compile what `sample` runs for one observation of one row and the default number of draws."""
    x_space = posterior.likelihood.space_of_x()
    prior, sampler = posterior.prior, posterior.sampler
    if x_space is None or sampler is None:
        return
    starts, each = _starts(prior, sampler, jr.key(0), 1, DRAWS)
    rows = on_device(np.zeros((1, 1, x_space.dim_x)))
    _sample.lower(prior, posterior.likelihood, sampler, each, starts, rows, DRAWS).compile()


@eqx.filter_jit
def _log_prob(prior: Prior, likelihood: TractableLikelihood, thetas, rows) -> Float[Array, " n"]:
    prepared = jax.vmap(likelihood.prepare)(rows)

    def one(theta):
        inside = prior.log_density(theta)
        return jnp.where(jnp.isfinite(inside), inside + _log_likelihood(likelihood, theta, prepared), -jnp.inf)

    return jax.vmap(one)(thetas)


def _depth(
    prior: Prior, likelihood: TractableLikelihood, u: np.ndarray, rows: Array
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return minus the log posterior, its gradient, and theta, for an optimiser on the host: quick to compile."""
    value, slope, theta = (np.asarray(a, float) for a in _slope(prior, likelihood, jnp.asarray(u, jnp.float32), rows))
    return (float(value), np.nan_to_num(slope), theta) if np.isfinite(value) else (1e30, np.zeros(len(u)), theta)


@eqx.filter_jit
def _slope(prior: Prior, likelihood: TractableLikelihood, u, rows):
    prepared = jax.vmap(likelihood.prepare)(rows)

    def depth(u):
        theta = prior.constrain(u)
        return -prior.log_density(theta) - _log_likelihood(likelihood, theta, prepared), theta

    (value, theta), slope = jax.value_and_grad(depth, has_aux=True)(u)
    return value, slope, theta


@eqx.filter_jit
def _unconstrained(prior: Prior, thetas: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    return jax.vmap(prior.unconstrain)(thetas)


def _unstack(result: Sampled) -> list[Sampled]:
    host = jax.tree.map(np.asarray, result)
    return [jax.tree.map(operator.itemgetter(i), host) for i in range(host.draws.shape[0])]


def _is_sampled(draws: Draws) -> bool:
    """Return False where no likelihood was ever finite: particles have no evidence then, and no chain moves."""
    return bool(np.isfinite(draws.values).all() and draws.log_evidence != -np.inf and draws.info["acceptance"] > 0)


def _as_draws(names: tuple[str, ...], rows: np.ndarray, seed: int, sampled: Sampled) -> Draws:
    info: dict[str, Any] = {"acceptance": float(sampled.acceptance)}
    evidence = float("nan")
    if sampled.path is not None:
        used = np.isfinite(np.asarray(sampled.path.temperature))
        info["temperatures"] = [np.asarray(t)[u].tolist() for t, u in zip(sampled.path.temperature, used, strict=True)]
        info["ess"] = [np.asarray(e)[u].tolist() for e, u in zip(sampled.path.ess, used, strict=True)]
        values = np.asarray(sampled.log_evidence, float)
        info["log_evidence_by_chain"] = values.tolist()
        evidence = float(np.logaddexp.reduce(values) - np.log(len(values)))
    if sampled.inner is not None:
        info |= {f"inner_{name}": float(value) for name, value in sampled.inner._asdict().items()}
    return Draws(np.asarray(sampled.draws), names, rows, seed, evidence, info)
