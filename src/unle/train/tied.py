r"""Bases for data that may be repeated measurements: one for all of them, if that is true.

Blocks of x that are alike (`unle.space.repetition`) need not be independent given theta: those of a time series are
not, nor are measurements that share noise, and their product would be too sure of theta.  Two things are asked of it:

* the residuals v_b of different measurements are uncorrelated.  With c the mean of v_b v_c over pairs and coordinates,
  the variance of a sum of k of them is 1 + (k - 1) c times what the product takes it for;
* simulations that were held out are more likely than under a density of the whole, which is fitted too.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase, Repeated
from unle.space.repetition import Blocks
from unle.space.transfer import on_device
from unle.train.splits import Splits

MOST_ROWS = 200_000  # of single measurements
INFLATION = 0.05  # of the variance of a sum that is put up with,
DOUBT = 3.0  # or standard errors of the correlation: less cannot be told from nothing

Fit = Callable[[PRNGKeyArray, Float[Array, "n dim"], Float[Array, "n data"], Splits], AbstractBase]


def fit_tied_or_whole(
    key: PRNGKeyArray,
    fit: Fit,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    *,
    blocks: Blocks,
) -> AbstractBase:
    """Fit bases of single measurements and of whole w, and return the better ones, stacked over members.

    Args:
        key: randomness of both fits.
        fit: returns the members' bases of given rows.
        t: standardised parameters.
        w: standardised data, alike blocks standardised alike.
        splits: training and held-out rows of every member.
        blocks: coordinates of every measurement.
    """
    key_tied, key_whole = jr.split(key)
    tied = Repeated(fit(key_tied, *single_measurements(t, w, splits, blocks)), blocks)
    whole = fit(key_whole, t, w, splits)
    gain, error = _mean_and_error(_scores(tied, t, w, splits) - _scores(whole, t, w, splits))
    return tied if gain > error and _uncorrelated(tied, t, w, splits) else whole  # False for NaN


def _uncorrelated(tied: Repeated, t, w, splits: Splits) -> bool:
    """Return whether residuals of different measurements have nothing in common, as far as can be seen.

    Of rows that were trained on, a network that fits noise makes the correlation negative, never positive.
    """
    trained, error = _mean_and_error(_correlations(tied, t, w, splits.train))
    held_out, error_held_out = _mean_and_error(_correlations(tied, t, w, splits.held_out))
    most = INFLATION / (tied.repeats - 1)
    return bool(trained < max(most, DOUBT * error) and abs(held_out) < max(most, DOUBT * error_held_out))


def single_measurements(
    t: Float[Array, "n dim"], w: Float[Array, "n data"], splits: Splits, blocks: Blocks
) -> tuple[Float[Array, "m dim"], Float[Array, "m part"], Splits]:
    """Return measurements as rows of their own; those of one simulation stay on the same side of a split.

    All of them, unless there are more than memory is meant for: then some of every simulation, at least one.
    """
    n, k = len(w), len(blocks)
    each = min(k, max(1, MOST_ROWS // n))
    chosen = np.argsort(np.random.default_rng(n).random((n, k)), axis=1)[:, :each]
    chosen = np.sort(chosen, axis=1)
    parts = np.asarray(w)[np.arange(n)[:, None, None], np.array(blocks)[chosen]]

    def rows(simulations):
        theirs = np.asarray(simulations)[..., None] * each + np.arange(each)
        return on_device(theirs.reshape(len(simulations), -1), np.int32)

    repeated = np.repeat(np.asarray(t), each, axis=0)
    return on_device(repeated, t.dtype), on_device(parts.reshape(n * each, -1), w.dtype), Splits(*map(rows, splits))


def _mean_and_error(values) -> tuple[float, float]:
    values = np.ravel(np.asarray(values, float))
    return float(np.mean(values)), float(np.std(values) / np.sqrt(len(values)))


@eqx.filter_jit
def _correlations(tied: Repeated, t, w, rows) -> Float[Array, "member row"]:
    """Return, for every row, the mean of v_b v_c over pairs of measurements b != c and over their coordinates."""
    k = tied.repeats

    def of_row(base, row):
        v = base.whiten(t[row], w[row])[np.array(tied.blocks)]
        return jnp.mean(jnp.square(jnp.sum(v, axis=0)) - jnp.sum(jnp.square(v), axis=0)) / (k * (k - 1))

    def of_member(base, rows):
        return jax.vmap(lambda row: of_row(base, row))(rows)

    return eqx.filter_vmap(of_member)(tied, jnp.asarray(rows))


@eqx.filter_jit
def _scores(bases: AbstractBase, t, w, splits: Splits) -> Float[Array, "member held_out"]:
    def of_member(base, held_out):
        return jax.vmap(base.log_density)(t[held_out], w[held_out])

    return eqx.filter_vmap(of_member)(bases, jnp.asarray(splits.held_out))
