r"""The posterior: prior times likelihood, for any observation.

    log p(theta | x_o) = log p(theta) + sum_rows log q(x_row | theta) + const

The likelihood is fitted once; a new observation only changes an argument of compiled functions.  Its kind decides how
draws are made: plain samplers for a tractable likelihood, the exchange algorithm for a doubly intractable one.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unle.arrays import as_array, as_count, as_seed, brief, in_order
from unle.compiling import key_of
from unle.errors import InputError, no_attribute, other_names, warn_user
from unle.models import AbstractLikelihood, AbstractSummary, TractableLikelihood, with_missing_data
from unle.posterior.draws import Draws
from unle.posterior.posterior_samplers import Sampled
from unle.posterior.run_sampler import (
    DRAWS,
    Sampler,
    check_kinds,
    default_sampler,
    log_likelihood,
    sample_each,
    unconstrained,
)
from unle.progress import progress
from unle.space import ConditionalPrior, Prior, condition_prior
from unle.store.model_files import load_module, save_module

MAP_DRAWS = 1000  # among which the search for the mode looks for places to begin
MAP_STARTS = 8  # of them

# What other libraries call it.
ELSEWHERE = {
    "set_default_x": "posterior.sample(x_o, 10_000): every call takes its observation",
    "sample_batched": "posterior.sample_many(observations, 10_000)",
    "potential": "posterior.log_prob(theta, x_o)",
    "potential_fn": "posterior.log_prob(theta, x_o)",
    "leakage_correction": "posterior.sample(x_o, 10_000): no draw lies outside of the prior",
}


class Posterior(eqx.Module):
    """A fitted posterior, amortised over observations.

    Args:
        prior: the prior of theta.
        likelihood: of either kind: `TractableLikelihood` or `DoublyIntractableLikelihood`.
        sampler: how to draw; by default `TemperedSmc()` for the first kind and `Exchange()` for the second.
        summary: of x, that the likelihood is of; None if it is of x itself.
        x_names: of the entries of x, if the simulations had names: those of an observation are put in this order.

    Example:
        >>> import unle
        >>> posterior = unle.AUNLE(prior).fit(simulations)  # doctest: +SKIP
        >>> draws = posterior.sample(x_o, 10_000, seed=0)  # doctest: +SKIP
        >>> log_density = posterior.log_prob(theta, x_o)  # doctest: +SKIP
    """

    prior: Prior
    likelihood: AbstractLikelihood
    sampler: Sampler | None = None
    summary: AbstractSummary | None = None
    x_names: tuple[str, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        if self.sampler is not None:
            check_kinds(self.likelihood, self.sampler)

    def __getattr__(self, name: str) -> Any:
        """Say where to find what posteriors of other libraries have."""
        raise no_attribute(self, name, ELSEWHERE)

    def __repr__(self) -> str:
        """Say what of, from which data, and how it is sampled, in a few lines."""
        x_space = self.likelihood.space_of_x()
        lines = [f"Posterior of {self.prior.dim} parameters", f"  prior: {self.prior!r}"]
        lines += [f"  likelihood: {_described(self.likelihood)}"]
        if self.summary is not None:
            lines += [f"  summary: {type(self.summary).__name__} of {self.summary.length} numbers"]
        if x_space is not None:
            left_out = x_space.dim_x - x_space.dim
            lines += [
                f"  {'x' if self.summary is None else 's(x)'}: {x_space.dim_x} numbers"
                + f", of which {left_out} follow from the others" * (left_out > 0)
            ]
        sampler = default_sampler(self.likelihood) if self.sampler is None else self.sampler
        return "\n".join([*lines, f"  sampler: {brief(sampler)}"])

    @other_names(
        "posterior.sample(x_o, 10_000)",
        x="x_o",
        num_samples="n",
        draws="n",
        size="n",
        sample_shape="n",
        random_seed="seed",
    )
    def sample(
        self,
        x_o: Any,
        n: int | float = DRAWS,
        *,
        seed: int = 0,
        sampler: Sampler | None = None,
        condition: Mapping[str, Any] | None = None,
    ) -> Draws:
        """Draw from the posterior given one observation.

        Args:
            x_o: the observation: one data vector, or several i.i.d. rows of them, which multiply the likelihood.
                Missing entries may be NaN, if the fitted model is Gaussian given theta.
            n: number of draws.
            seed: fixes the draws.
            sampler: another way to draw than the posterior's own, such as `Chains(Nuts())`.
            condition: values of some parameters by name, such as {"beta": 0.4}. The others are drawn from their
                posterior given these values.

        Returns:
            `Draws`, n of them (rounded up to whole chains), of the parameters that are not fixed.
        """
        return self.sample_many([x_o], n, seed=seed, sampler=sampler, condition=condition)[0]

    def sample_many(
        self,
        observations: Sequence[Any],
        n: int | float = DRAWS,
        *,
        seed: int = 0,
        sampler: Sampler | None = None,
        condition: Mapping[str, Any] | None = None,
    ) -> list[Draws]:
        """Draw from the posteriors of many observations with one compiled program.

        Args:
            observations: each as in `sample`, all with the same number of rows.
            n: number of draws for each.
            seed: fixes the draws.
            sampler: as in `sample`.
            condition: as in `sample`.
        """
        if np.ndim(n):
            raise InputError(
                "expected x_o, then the number of draws; got an array in its place; try posterior.sample(x_o, 10_000)."
            )
        n, seed = as_count(n), as_seed(seed)
        sampler = next(one for one in (sampler, self.sampler, default_sampler(self.likelihood)) if one is not None)
        check_kinds(self.likelihood, sampler)
        rows = [self._checked(x_o) for x_o in observations]
        if len({len(row) for row in rows}) > 1:
            raise InputError("expected observations with the same number of rows; try one call of `sample` for each.")
        prior = condition_prior(self.prior, condition) if condition else self.prior
        with progress(f"Sampling {n:,} draws") as bar:
            seen = [self.summarise(row) for row in rows]
            likelihood = self._likelihood_of(np.concatenate(seen))

            def show(share: float) -> None:
                bar.advance(0, note=f"{100 * share:.0f} % sampled")

            sampled = sample_each(prior, likelihood, sampler, key_of(seed), seen, n, show)
        draws = [self._as_draws(row, seed, part) for row, part in zip(rows, sampled, strict=True)]
        if not all(_is_sampled(one) for one in draws):
            raise InputError(
                "the posterior could not be sampled: the likelihood of x_o is not finite anywhere in the prior; "
                "check that x_o has the units of the simulations"
                + (" and that the prior allows `condition`." if condition else ".")
            )
        return draws if isinstance(prior, Prior) else [_of_free(one, prior, condition or {}) for one in draws]

    @other_names("posterior.log_prob(theta, x_o)", x="x_o")
    def log_prob(self, theta: Any, x_o: Any) -> Float[Array, "*n"]:
        """Return the unnormalised log posterior at theta, shape (d,) or (n, d); -inf outside the prior's support."""
        if self.prior.dim != self.dim_x and as_array(theta, "theta").shape[-1:] == (self.dim_x,):
            raise InputError("expected theta before x_o; got them the other way round; try log_prob(theta, x_o).")
        rows = self.summarise(self._checked(x_o))
        likelihood = self._tractable("log_prob", rows)
        theta = jnp.asarray(self.prior.as_theta(theta), jnp.float32)
        values = _log_prob(self.prior, likelihood, jnp.atleast_2d(theta), jnp.asarray(rows, jnp.float32))
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
        from scipy.optimize import minimize

        observed = self.summarise(self._checked(x_o, warn=False))
        likelihood, rows = self._tractable("map", observed), jnp.asarray(observed, jnp.float32)
        values = np.asarray(self.sample(x_o, MAP_DRAWS, seed=seed) if draws is None else draws, np.float32)
        some = values[np.linspace(0, len(values) - 1, MAP_DRAWS).astype(int)]  # always as many: compiled once
        heights = np.asarray(self.log_prob(some, x_o), float)
        best = np.argsort(-heights)[:MAP_STARTS]
        found: list[tuple[float, np.ndarray]] = [(float(heights[best[0]]), some[best[0]])]
        for u in np.asarray(unconstrained(self.prior, jnp.asarray(some[best])), float):
            end = minimize(lambda u: _depth(self.prior, likelihood, u, rows)[:2], u, jac=True, method="L-BFGS-B")
            found.append((-float(end.fun), _depth(self.prior, likelihood, end.x, rows)[2]))
        _, theta = max((pair for pair in found if np.isfinite(pair[0])), key=operator.itemgetter(0))
        return np.asarray(theta, np.float32)

    def _as_draws(self, rows: np.ndarray, seed: int, sampled: Sampled) -> Draws:
        info: dict[str, Any] = {"acceptance": float(sampled.acceptance)}
        evidence = float("nan")
        if sampled.path is not None:
            path = sampled.path
            used = np.isfinite(np.asarray(path.temperature))
            info["temperatures"] = [np.asarray(t)[u].tolist() for t, u in zip(path.temperature, used, strict=True)]
            info["ess"] = [np.asarray(e)[u].tolist() for e, u in zip(path.ess, used, strict=True)]
            values = np.asarray(sampled.log_evidence, float)
            info["log_evidence_by_chain"] = values.tolist()
            evidence = float(np.logaddexp.reduce(values) - np.log(len(values)))
        if sampled.inner is not None:
            info |= {f"inner_{name}": float(value) for name, value in sampled.inner._asdict().items()}
        return Draws(np.asarray(sampled.draws), self.prior.names, rows, seed, evidence, info, self.x_names)

    def summarise(self, x: Float[np.ndarray, "n dim_x"]) -> Float[np.ndarray, "n seen"]:
        """Return what the likelihood sees of rows of x: their summaries, or x itself if it has none."""
        return x if self.summary is None else self.summary(x)

    def without_summary(self) -> "Posterior":
        """Return the posterior given summaries in place of x."""
        return replace(self, summary=None)

    def save(self, path: str | Path, *, note: dict | None = None) -> None:
        """Write prior and likelihood to `path`.json and `path`.npz; nothing is pickled."""
        save_module(Path(path), self, note=note)

    @classmethod
    def load(cls, path: str | Path) -> "Posterior":
        """Read what `save` wrote, or the latest fit in the directory of a run."""
        fits = sorted(Path(path).glob("rounds/[0-9]*/likelihood.json"))
        path = fits[-1].with_suffix("") if fits else path
        loaded = load_module(Path(path))
        if not isinstance(loaded, cls):
            raise InputError(f"expected a saved posterior at {path}; got a {type(loaded).__name__}.")
        return loaded

    def _likelihood_of(self, rows: Float[np.ndarray, "rows dim_x"]) -> AbstractLikelihood:
        """Return the likelihood, made fit for rows with missing entries if there are any."""
        missing = np.isnan(rows)
        return with_missing_data(self.likelihood, missing) if missing.any() else self.likelihood

    def _tractable(self, asked: str, rows: Float[np.ndarray, "rows dim_x"]) -> TractableLikelihood:
        if not isinstance(self.likelihood, TractableLikelihood):
            raise InputError(
                f"expected a likelihood with a known normaliser for `{asked}`; got a doubly intractable "
                f"{type(self.likelihood).__name__}; try Normalised(likelihood, log_normaliser) with a fitted one."
            )
        likelihood = self._likelihood_of(rows)
        assert isinstance(likelihood, TractableLikelihood)
        return likelihood

    def _checked(self, x_o: Any, *, warn: bool = True) -> Float[np.ndarray, "rows dim_x"]:
        """Return x_o as rows, with a clear error or warning where it cannot be or may not be meant."""
        x_space = self.likelihood.space_of_x()
        rows = in_order(x_o, self.x_names)
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[0] < 1:
            raise InputError(f"expected x_o as one data vector or rows of them; got shape {rows.shape}.")
        length = self.dim_x
        if length is not None and rows.shape[1] != length:
            is_table = rows.size == length
            got, hint = (
                (rows.shape, "x_o.ravel()") if is_table else (rows.shape[1], "the same numbers in the same order")
            )
            if rows.size % length == 0 and rows.shape[0] == 1 and not is_table:
                many = rows.size // length
                hint = f"x_o.reshape({many}, {length}) if these are {many} independent measurements"
            raise InputError(f"expected x_o of length {length}, as the simulations; got {got}; try {hint}.")
        if np.isinf(rows).any() or np.isnan(rows).all(axis=1).any():
            bad = np.flatnonzero(~np.isfinite(rows).all(axis=0)).tolist()
            raise InputError(
                f"expected a finite x_o; got NaN or inf in coordinates {bad}; missing entries may be NaN, but not all."
            )
        if self.summary is not None:
            return self._checked_summary(rows, warn=warn)
        if warn and x_space is not None and (message := x_space.observation_warning(rows, self.x_names)):
            warn_user(message)
        return rows

    def _checked_summary(self, rows: Float[np.ndarray, "rows dim_x"], *, warn: bool) -> Float[np.ndarray, "rows dim_x"]:
        """Return rows of x_o whose summaries can be used."""
        if np.isnan(rows).any():
            bad = np.flatnonzero(np.isnan(rows).any(axis=0)).tolist()[:10]
            raise InputError(f"expected a complete x_o, of which a summary is made; got NaN in coordinates {bad}.")
        seen, x_space = self.summarise(rows), self.likelihood.space_of_x()
        if not np.isfinite(seen).all():
            raise InputError(f"expected a finite summary of x_o; got {seen[~np.isfinite(seen).all(axis=1)][0]}.")
        if warn and x_space is not None and (message := x_space.observation_warning(seen)):
            warn_user(f"in the summary of x_o, here called x, {message}")
        return rows

    @property
    def dim_x(self) -> int | None:
        """How many numbers x_o has; None if that is not known."""
        x_space = self.likelihood.space_of_x()
        if self.summary is not None:
            return self.summary.length
        return None if x_space is None else x_space.dim_x


def _described(likelihood: Any) -> str:
    """Name a likelihood, what it is made of, and which base and energy were kept."""
    name, inside = type(likelihood).__name__, getattr(likelihood, "likelihood", None)
    if inside is not None:
        return f"{name} of {_described(inside)}"
    model = getattr(likelihood, "models", getattr(likelihood, "model", None))
    parts = [_type_names(getattr(model, part)) for part in ("base", "energy") if hasattr(model, part)]
    members = np.shape(getattr(likelihood, "log_z", 0.0))
    parts = [f"{members[0]} member" + "s" * (members[0] != 1), *parts] if members else parts
    return f"{name} ({', '.join(parts)})" if parts else name


def _type_names(part: Any) -> str:
    """Name a part of a model, and what it is put around: `OneView of Autoregressive`."""
    inside = getattr(part, "base", None)
    return type(part).__name__ + (f" of {_type_names(inside)}" if inside is not None else "")


@eqx.filter_jit
def _log_prob(prior: Prior, likelihood: TractableLikelihood, thetas, rows) -> Float[Array, " n"]:
    prepared = jax.vmap(likelihood.prepare)(rows)

    def one(theta):
        inside = prior.log_density(theta)
        return jnp.where(jnp.isfinite(inside), inside + log_likelihood(likelihood, theta, prepared), -jnp.inf)

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
        return -prior.log_density(theta) - log_likelihood(likelihood, theta, prepared), theta

    (value, theta), slope = jax.value_and_grad(depth, has_aux=True)(u)
    return value, slope, theta


def _of_free(draws: Draws, prior: ConditionalPrior, condition: Mapping[str, Any]) -> Draws:
    """Return the draws of the parameters that are not fixed; the evidence lacks the density of the fixed ones."""
    info = {name: value for name, value in draws.info.items() if name != "log_evidence_by_chain"}
    return replace(
        draws,
        values=draws.values[..., list(prior.free)],
        names=tuple(draws.names[i] for i in prior.free),
        log_evidence=float("nan"),
        info=info | {"condition": {name: float(value) for name, value in condition.items()}},
    )


def _is_sampled(draws: Draws) -> bool:
    """Return False where no likelihood was ever finite: particles have no evidence then, and no chain moves."""
    return bool(np.isfinite(draws.values).all() and draws.log_evidence != -np.inf and draws.info["acceptance"] > 0)
