r"""Learned summaries: a posterior with a bottleneck.

    max_{s, q}  E log q(theta | s(x)),      q a mixture of normals whose parameters are a network's outputs.

Its maximum over all q is the information between theta and s, less a constant: so s keeps all that it can of x, not
the posterior's mean alone, which says nothing of a parameter whose sign the data do not tell.  (A likelihood must not
train its own summary: E log q(s(x) | theta) is highest where s is constant.)

1. Coordinates that say nothing, neither about theta nor about those that do, are left aside.  If few remain, they are
   the summary.
2. Otherwise networks are trained, of the kinds that fit the data, and the best by held-out rows is kept.
3. One with a bottleneck of twice the length is trained as well, to estimate what is lost.

A network that has over-fitted gives the rows that it was trained on better summaries than new ones.  Then half of the
rows train the summary, and the likelihood is fitted to the others.

References: Hoffmann and Onnela, "Minimizing the expected posterior entropy yields optimal summary statistics", 2022;
Chen et al., "Neural approximate sufficient statistics for implicit models", 2021.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.compiling import TRAINING_OPTIONS, large_program, on_device, split
from unle.errors import InputError
from unle.models import AbstractSummary, Coordinates, Features, Mlp, NetworkSummary, SummaryBody
from unle.models.summaries import KINDS
from unle.space import Prior, ThetaSpace, fit_theta_space, informative_coordinates, repeated_blocks
from unle.train.loop import Best, Fit, Look, Patience, adamw, begin, run, take_chunk
from unle.train.rows import batch_size
from unle.train.validation import is_better, simplest_as_good, standard_error

FEWEST_SERIES = 16  # numbers of a series
FEW_COORDINATES = 16  # that need no network, or four times the number of parameters
LONGEST = 32  # summary
HELD_OUT = 0.2  # share of the rows
MOST_HELD_OUT = 2000
OVERFITTED = 0.1  # nats per parameter between training and held-out rows, from which on the likelihood needs others
SMALLEST_SCALE = -6.0  # logarithm of a standard deviation of the mixture, in standardised theta


class LearnedSummary(eqx.Module):
    """How a summary of long data is learned, to be used as `AUNLE(prior, summary=LearnedSummary())`.

    Args:
        size: numbers of the summary; twice as many as the parameters by default.
        network: "vector", "series" (windows in time) or "set" (rows in any order); the best of those that fit
            the data by default.
        row: numbers of one point in time, or of one element of a set; x has them next to each other.
        components: of the mixture of normals that stands for the posterior.
        width: units in the hidden layers.
        iterations: most training steps of one network.
        batch: rows per step, at least.
        learning_rate: the highest.
        weight_decay: of all weights.
        noise: standard deviation of what is added to standardised features in training, against over-fitting.
        patience: chunks of a hundred steps without improvement after which training ends.

    Example:
        >>> import unle
        >>> prior = unle.Prior.uniform(low=[-1.0], high=[1.0])
        >>> unle.AUNLE(prior, summary=unle.train.LearnedSummary(network="series")).summary.network
        'series'
    """

    size: int | None = eqx.field(static=True, default=None)
    network: str | None = eqx.field(static=True, default=None)
    row: int | None = eqx.field(static=True, default=None)
    components: int = eqx.field(static=True, default=8)
    width: int = eqx.field(static=True, default=128)
    iterations: int = eqx.field(static=True, default=3000)
    batch: int = eqx.field(static=True, default=128)
    learning_rate: float = eqx.field(static=True, default=1e-3)
    weight_decay: float = eqx.field(static=True, default=0.5)
    noise: float = eqx.field(static=True, default=0.02)
    patience: int = eqx.field(static=True, default=6)

    def __check_init__(self):
        if self.network not in (None, *KINDS):
            raise InputError(f"expected network to be one of {', '.join(KINDS)}; got {self.network!r}.")
        if self.size is not None and self.size < 1:
            raise InputError(f"expected a summary of at least one number; got size={self.size}.")
        if self.row is not None and self.row < 1:
            raise InputError(f"expected at least one number per row; got row={self.row}.")


class SummaryFit(NamedTuple):
    """A fitted summary, and what is known about it."""

    summary: AbstractSummary
    unseen: np.ndarray  # which rows the likelihood may be fitted to
    kind: str  # of the network; "coordinates" for none
    dim_x: int
    size: int
    information: float  # a lower bound of that between theta and s, in nats
    lost: float  # nats that a longer summary, or one of all coordinates, holds more, by held-out rows
    lost_error: float
    overfit: float  # nats per row between training and held-out rows; 0 without a network

    @property
    def sentence(self) -> str:
        """One line for the user."""
        what = "of its coordinates" if self.kind == "coordinates" else f"by a {self.kind} network"
        rows = "" if self.unseen.all() else f"; the likelihood has the {int(self.unseen.sum())} rows it has not seen"
        return (
            f"Summary: {self.size} numbers {what} for the {self.dim_x} of x, with {self.information:.2f} nats about "
            f"theta; a longer one has {self.lost:+.2f} +- {self.lost_error:.2f}{rows}."
        )


class _Trained(NamedTuple):
    summary: NetworkSummary
    scores: Float[np.ndarray, " held_out"]  # log q(t | s) of held-out rows
    overfit: float


class _Rows(NamedTuple):
    """Standardised parameters and data, and which rows train."""

    t: Float[np.ndarray, "n dim"]
    x: Float[np.ndarray, "n dim_x"]
    train: np.ndarray
    held_out: np.ndarray


def fit_summary(
    key: PRNGKeyArray,
    prior: Prior,
    theta: Float[np.ndarray, "n dim"],
    x: Float[np.ndarray, "n dim_x"],
    settings: LearnedSummary,
) -> SummaryFit:
    """Learn a summary of data, all rows valid and in an order that says nothing."""
    n, dim_x = x.shape
    if settings.row is not None and dim_x % settings.row:
        raise InputError(f"expected x of whole rows of {settings.row} numbers; got {dim_x} numbers.")
    space = fit_theta_space(theta)
    t = np.asarray(space.forward_table(np.asarray(theta, float)), float)
    known = np.asarray(prior.log_prob(theta), float) - np.asarray(_log_dets(space, on_device(theta)), float)  # of t
    rows = _dealt(t, x, HELD_OUT)
    kept = informative_coordinates(theta, x) if settings.network in (None, "vector") else tuple(range(dim_x))
    everything = tuple(range(dim_x))
    if settings.network is None and settings.size is None and len(kept) <= max(FEW_COORDINATES, 4 * t.shape[1]):
        found = _coordinates(key, rows, kept, settings, known)
        if found is not None:
            return found
    kinds = [(kind, row, everything) for kind, row in _kinds(theta, x, settings)]
    if len(kept) < dim_x and kinds[0][0] == "vector":
        kinds.insert(0, ("vector", 1, kept))
    size, longer = _sizes(t.shape[1], settings)
    *keys, key_longer, key_half = split(key, len(kinds) + 2)
    tried = [_train(k, rows, kind, size, settings) for k, kind in zip(keys, kinds, strict=True)]
    best = simplest_as_good([one.scores for one in tried])
    trained, kind, unseen, scored = tried[best], kinds[best], np.ones(n, bool), rows.held_out
    more = _train(key_longer, rows, kind, longer, settings).scores - trained.scores
    if trained.overfit > OVERFITTED * t.shape[1]:
        halves = _dealt(t, x, 0.5)
        trained = _train(key_half, halves, kind, size, settings)
        unseen[halves.train], scored = False, halves.held_out
    return SummaryFit(
        trained.summary,
        unseen,
        kind[0],
        dim_x,
        size,
        float(np.mean(trained.scores - known[scored])),
        float(more.mean()),
        standard_error(more),
        trained.overfit,
    )


def _coordinates(
    key: PRNGKeyArray, rows: _Rows, kept: tuple[int, ...], settings: LearnedSummary, known: Float[np.ndarray, " n"]
) -> SummaryFit | None:
    """Return the informative coordinates as the summary, unless a network of all knows clearly more about theta."""
    if not kept or len(kept) == rows.x.shape[1]:
        return None
    size, (one, other) = _sizes(rows.t.shape[1], settings)[-1], split(key, 2)
    own = _train(one, rows, ("vector", 1, kept), size, settings)
    whole = _train(other, rows, ("vector", 1, tuple(range(rows.x.shape[1]))), size, settings)
    difference = whole.scores - own.scores
    if is_better(whole.scores, own.scores, errors=2.0):
        return None
    return SummaryFit(
        Coordinates(kept, rows.x.shape[1]),
        np.ones(len(rows.x), bool),
        "coordinates",
        rows.x.shape[1],
        len(kept),
        float(np.mean(own.scores - known[rows.held_out])),
        float(difference.mean()),
        standard_error(difference),
        0.0,
    )


def _sizes(dim: int, settings: LearnedSummary) -> tuple[int, int]:
    """Return the length of the summary, and that of a longer one, which shows what is lost."""
    size = min(2 * dim, LONGEST) if settings.size is None else settings.size
    return size, 2 * size + 2


def _kinds(theta: np.ndarray, x: np.ndarray, settings: LearnedSummary) -> list[tuple[str, int]]:
    """Return kinds of networks that fit the data, with the numbers in a row of each."""
    if settings.network is not None:
        return [(settings.network, settings.row or 1)]
    row, length = settings.row or 1, x.shape[1] // (settings.row or 1)
    kinds = [("vector", 1)] + [("series", row)] * (length >= FEWEST_SERIES)
    together = [cut for cut in repeated_blocks(theta, x) if cut[0] == tuple(range(len(cut[0])))]
    sets = [row] if settings.row is not None else [len(cut[0]) for cut in together[:1]]
    return kinds + [("set", size) for size in sets if x.shape[1] // size >= FEWEST_SERIES]


def _dealt(t: np.ndarray, x: np.ndarray, share: float) -> _Rows:
    held_out = max(1, round(share * len(t)))
    held_out = held_out if share == 0.5 else min(held_out, MOST_HELD_OUT)
    order = np.random.default_rng(0).permutation(len(t))
    return _Rows(t, x, order[held_out:], order[:held_out])


@eqx.filter_jit
def _log_dets(space: ThetaSpace, theta: Float[Array, "n dim"]) -> Float[Array, " n"]:
    return jax.vmap(space.standardiser.log_det)(theta)


class _Posterior(eqx.Module):
    """A mixture of normals given a summary."""

    body: SummaryBody
    head: Mlp
    components: int = eqx.field(static=True)

    def log_density(self, t: Float[Array, " dim"], fixed: Array, windows: Array) -> Float[Array, ""]:
        """Return log q(t | s)."""
        dim, k = t.shape[0], self.components
        outputs = self.head(self.body(fixed, windows)).reshape(k, -1)
        logits, means = outputs[:, 0], outputs[:, 1 : 1 + dim]
        log_scales = jnp.maximum(outputs[:, 1 + dim : 1 + 2 * dim], SMALLEST_SCALE)
        lower = jnp.zeros((k, dim, dim)).at[:, *np.tril_indices(dim, -1)].set(outputs[:, 1 + 2 * dim :])
        residual = (t - means) * jnp.exp(-log_scales)
        z = residual + jnp.einsum("kij,kj->ki", lower, residual)  # precision's factor: unit triangle times scales
        logs = -0.5 * jnp.sum(z**2, axis=1) - jnp.sum(log_scales, axis=1) - 0.5 * dim * jnp.log(2 * jnp.pi)
        return jax.nn.logsumexp(jax.nn.log_softmax(logits) + logs)


def _train(
    key: PRNGKeyArray, rows: _Rows, kind: tuple[str, int, tuple[int, ...]], size: int, settings: LearnedSummary
) -> _Trained:
    """Train one network, and return it as it was when it scored best on held-out rows."""
    key_body, key_head, key_steps = split(key, 3)
    name, row, kept = kind
    dim, k = rows.t.shape[1], settings.components
    features = Features.of(name, rows.x[rows.train], row=row, kept=kept)
    fixed = features.fixed(rows.x[rows.train])
    window = features.windows(rows.x[:1]).shape[2]
    body = SummaryBody(key_body, window=window, features=fixed.shape[1], size=size, width=settings.width)
    head = Mlp(
        key_head, size, k * (1 + 2 * dim + dim * (dim - 1) // 2), width=settings.width, depth=1, output_scale=0.1
    )
    spread = jax.random.normal(key_head, (k, 1 + dim)).at[:, 0].set(0.0) * 0.7  # components start apart
    head = eqx.tree_at(
        lambda h: h.biases[-1], head, head.biases[-1].reshape(k, -1).at[:, : 1 + dim].set(spread).ravel()
    )
    summary = NetworkSummary(features, fixed.mean(axis=0), fixed.std(axis=0) + 1e-6, body, rows.x.shape[1])
    data = on_device(rows.t), *summary.seen(rows.x)
    posterior, indices = (
        _Posterior(body, head, k),
        (on_device(rows.train, np.int32), on_device(rows.held_out, np.int32)),
    )
    lowest = on_device(np.full(len(rows.held_out), -np.inf))
    state = Fit(begin(_optimiser(settings), posterior), Best(posterior, lowest[0], lowest))

    def chunk(state: Fit, number: int, _: int) -> tuple[Fit, Look]:
        state = _chunk(state, data, indices, jr.fold_in(key_steps, number), settings)
        return state, Look(score := float(state.best.score), f"held-out {score:.3f}")

    steps = 100
    title = f"Learning a summary: {name}, {size} numbers"
    ended = run(
        chunk,
        state,
        range(-(-settings.iterations // steps)),
        steps=steps,
        patience=Patience(settings.patience),
        title=title,
    )
    best: Best = ended.state.best
    some = indices[0][: len(rows.held_out)]
    seen = _scores(best.trained, *(part[some] for part in data))
    scores = np.asarray(best.rows, float)
    overfit = float(np.mean(np.asarray(seen, float)) - scores.mean())
    return _Trained(eqx.tree_at(lambda s: s.body, summary, best.trained.body), scores, overfit)


def _optimiser(settings: LearnedSummary):
    return adamw(
        settings.learning_rate,
        settings.iterations,
        weight_decay=settings.weight_decay,
        warm_up=min(100, settings.iterations // 4),
    )


@eqx.filter_jit
def _scores(posterior: _Posterior, t, fixed, windows) -> Float[Array, " n"]:
    return jax.vmap(posterior.log_density)(t, fixed, windows)


@partial(large_program, options=TRAINING_OPTIONS)
def _chunk(state: Fit, data, indices, key, settings: LearnedSummary) -> Fit:
    train, held_out = indices
    batch = batch_size(settings.batch, train.shape[0])

    def part(rows):
        return tuple(one[rows] for one in data)

    def loss(posterior, key):
        key_rows, key_noise = jr.split(key)
        t, fixed, windows = part(train[jr.randint(key_rows, (batch,), 0, train.shape[0])])
        return -jnp.mean(_scores(posterior, t, fixed + settings.noise * jr.normal(key_noise, fixed.shape), windows))

    def score(posterior):
        return _scores(posterior, *part(held_out))

    return take_chunk(_optimiser(settings), state, loss, jr.split(key, 100), score, average=0.98)[0]
