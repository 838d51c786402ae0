"""Simulations in terms of a summary: what a likelihood is fitted to where data are long."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np

from unle.errors import InputError
from unle.methods.training_pairs import as_simulations, order_of_rows, valid_pairs
from unle.models import AbstractSummary, GivenSummary
from unle.progress import tell
from unle.simulators import Simulations
from unle.space import Prior
from unle.store import SimulationStore
from unle.train import LearnedSummary, fit_summary

SUMMARY_KEY = 50_000  # folded into the seed

Summary = Any  # None, a function, an `AbstractSummary` or a `LearnedSummary`: see `check_summary`


class Summarised(NamedTuple):
    """A summary, simulations in terms of it, and what there is to write down about it: None unless it was learned."""

    summary: AbstractSummary
    simulations: Simulations
    record: dict[str, Any] | None = None


def check_summary(summary: Any) -> None:
    """Refuse what is no summary."""
    if not (summary is None or callable(summary) or isinstance(summary, LearnedSummary)):
        raise InputError(
            f"expected a function or unle.train.LearnedSummary() as `summary`; got {summary!r}; try LearnedSummary()."
        )


def with_summary(
    summary: Any,  # a function from one data vector to another, a summary that was fitted before, or how to learn one
    simulations: Any,  # as for `fit`; those of a store are read into memory
    prior: Prior,  # that theta was drawn from
    *,
    seed: int,  # of a summary that is learned
) -> Summarised:
    """Return the summary, fitted if it is to be learned, and the simulations in terms of it."""
    if isinstance(simulations, SimulationStore):
        simulations = Simulations.from_store(simulations)
    simulations = as_simulations(simulations, prior)
    valid_pairs(simulations, prior)  # errors name rows as the user ordered them
    if not isinstance(summary, LearnedSummary):
        fitted = summary if isinstance(summary, AbstractSummary) else GivenSummary(summary, simulations.x.shape[1])
        return Summarised(fitted, summarise_simulations(fitted, simulations))
    order = order_of_rows(simulations.theta, simulations.x)
    order = order[simulations.valid[order]]
    key, theta = jr.fold_in(jr.key(seed), SUMMARY_KEY), simulations.theta[order]
    fit = fit_summary(key, prior, theta, simulations.x[order], summary)
    tell(fit.sentence)
    record: dict[str, Any] = {name: part for name, part in fit._asdict().items() if name not in ("summary", "unseen")}
    record |= {"stage": "summary", "rows": int(fit.unseen.sum()), "sentence": fit.sentence}
    kept = np.ones(len(simulations), bool)
    kept[order[~fit.unseen]] = False
    if not fit.unseen.all():  # as many failures are left out as successes: they teach P(valid | theta)
        failed = np.flatnonzero(~simulations.valid)
        kept[failed[np.random.default_rng(seed).random(len(failed)) > fit.unseen.mean()]] = False
    return Summarised(fit.summary, summarise_simulations(fit.summary, _rows(simulations, kept)), record)


def _rows(simulations: Simulations, kept: np.ndarray) -> Simulations:
    reasons = tuple(reason for reason, keep in zip(simulations.reasons, kept, strict=True) if keep)
    theta, x, valid, seconds = simulations.theta, simulations.x, simulations.valid, simulations.seconds
    return replace(simulations, theta=theta[kept], x=x[kept], valid=valid[kept], seconds=seconds[kept], reasons=reasons)


def summarise_simulations(summary: AbstractSummary | None, simulations: Simulations) -> Simulations:
    """Return the simulations with summaries for data; one that is not finite makes its row invalid."""
    if summary is None or not simulations.valid.any():
        return simulations
    some = summary(simulations.valid_x)
    s = np.full((len(simulations), some.shape[1]), np.nan)
    s[simulations.valid] = some
    made = Simulations.from_arrays(simulations.theta, s)
    reasons = tuple(old or new for old, new in zip(simulations.reasons, made.reasons, strict=True))
    return replace(made, reasons=reasons, seconds=simulations.seconds, first_traceback=simulations.first_traceback)
