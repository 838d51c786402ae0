r"""Bases for data that may be repeated measurements: one for all of them, if that is true.

Blocks of x that look alike (`unle.space.repetition`) need not be so in every respect, nor independent given theta:
those of a time series are not, nor are measurements that share noise, and their product would be too sure of theta.
What is asked of the residuals v_b of a base that was fitted to single measurements is in `unle.train.residuals`; and
simulations that were held out have to be more likely under the product than under a base of the whole, fitted too.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.models import AbstractBase, Repeated
from unle.space.host_device import on_device
from unle.space.repetition import Blocks
from unle.train.residuals import look_repeated
from unle.train.splits import Splits
from unle.train.validation import base_scores

MOST_ROWS = 50_000  # of single measurements, unless there are more simulations
LOOKED_AT = 5000  # simulations whose residuals are looked at

Fit = Callable[[PRNGKeyArray, Float[Array, "n dim"], Float[Array, "n data"], Splits], AbstractBase]


def fit_tied_or_whole(
    key: PRNGKeyArray,
    fit: Fit,
    t: Float[Array, "n dim"],
    w: Float[Array, "n data"],
    splits: Splits,
    *,
    cuts: Sequence[Blocks],
) -> AbstractBase:
    """Fit bases of single measurements and of whole w, and return the better ones, stacked over members.

    Args:
        key: randomness of the fits.
        fit: returns the members' bases of given rows; the width of w is that of what it is given.
        t: standardised parameters.
        w: standardised data, alike blocks standardised alike.
        splits: training and held-out rows of every member.
        cuts: ways to cut w into measurements; the first whose residuals look like those of repeated measurements
            is compared with the whole.
    """
    key_whole, key_tied = jr.split(key)
    for number, blocks in enumerate(cuts):
        key_cut = jr.fold_in(key_tied, number)
        tied = Repeated(fit(key_cut, *single_measurements(t, w, splits, blocks)), blocks)
        if _is_repeated(tied, t, w, splits):
            whole = fit(key_whole, t, w, splits)
            gain = np.ravel(np.asarray(base_scores(tied, t, w, splits) - base_scores(whole, t, w, splits), float))
            return tied if gain.mean() > gain.std() / np.sqrt(gain.size) else whole  # whole for NaN
    return fit(key_whole, t, w, splits)


def single_measurements(
    t: Float[Array, "n dim"], w: Float[Array, "n data"], splits: Splits, blocks: Blocks
) -> tuple[Float[Array, "m dim"], Float[Array, "m part"], Splits]:
    """Return measurements as rows of their own; those of one simulation stay on the same side of a split.

    All of them, unless there are more than memory and time are meant for: then some of every simulation, at least one.
    """
    n, k = len(w), len(blocks)
    each = min(k, max(1, MOST_ROWS // n))
    chosen = np.sort(np.argsort(np.random.default_rng(n).random((n, k)), axis=1)[:, :each], axis=1)
    parts = np.asarray(w)[np.arange(n)[:, None, None], np.array(blocks)[chosen]]

    def rows(simulations):
        theirs = np.asarray(simulations)[..., None] * each + np.arange(each)
        return on_device(theirs.reshape(len(simulations), -1), np.int32)

    repeated = np.repeat(np.asarray(t), each, axis=0)
    return on_device(repeated, t.dtype), on_device(parts.reshape(n * each, -1), w.dtype), Splits(*map(rows, splits))


def _is_repeated(tied: Repeated, t, w, splits: Splits) -> bool:
    """Look at residuals of rows that the first member was trained on, and of rows held out from the members.

    Members share most of the rows that they are trained on, so one of them says what there is to say.
    """
    train = np.asarray(splits.train)[:1, :LOOKED_AT]
    held_out = np.asarray(splits.held_out)[:, :LOOKED_AT]
    first = jax.tree.map(lambda leaf: leaf[:1] if eqx.is_array(leaf) else leaf, tied)
    table = np.array(tied.blocks)

    def residuals(bases, rows):
        v = np.asarray(_whitened(bases, t, w, jnp.asarray(rows)), float)[..., table]
        return v.reshape(-1, *table.shape), np.asarray(t, float)[rows.ravel()]

    return look_repeated(*residuals(first, train), trained=True) and look_repeated(*residuals(tied, held_out))


@eqx.filter_jit
def _whitened(bases: AbstractBase, t, w, rows) -> Float[Array, "member row data"]:
    def of_member(base, rows):
        return jax.lax.map(lambda row: base.whiten(t[row], w[row]), rows, batch_size=500)

    return eqx.filter_vmap(of_member)(bases, rows)
