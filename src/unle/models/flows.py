r"""Normalising flows q(w | t): the densities of neural likelihood estimation, built from flowjax.

A flow maps data to standard normal coordinates, given t, by a chain of invertible layers,

    v = g(w; t) ~ N(0, I),   log q(w | t) = log N(v; 0, I) + log |det dv/dw|.

In a masked autoregressive flow each layer transforms one coordinate after the other by a simple increasing function
whose parameters come from a network of t and of the coordinates before; between layers the order is reversed.  `Maf`
shifts and scales; `SplineFlow` shifts, scales and bends.  The density costs one pass, a draw one pass per coordinate.

A flow is a base density like any other: `AUNLE(prior, base=FlowTraining())` trains an energy on top of it.

References:
    Papamakarios, Pavlakou and Murray (2017), Masked autoregressive flow for density estimation.
    Durkan, Bekasov, Murray and Papamakarios (2019), Neural spline flows.
"""

import abc
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.errors import InputError
from unle.models.bases import LOG_2PI, AbstractBase
from unle.models.mlp import normals

OUTPUT_SCALE = 0.01  # of the last weights of each network: a new flow is nearly the identity
SMALLEST_SCALE = 1e-3  # factor by which one layer may widen a coordinate, inverted


class AbstractFlow(eqx.Module):
    """The design of a flow: how many layers, how large their networks, and which function they parametrise.

    To make one, define `transformer`; hidden widths below the length of w are too small to tell coordinates apart.
    """

    layers: eqx.AbstractVar[int]
    width: eqx.AbstractVar[int]
    depth: eqx.AbstractVar[int]

    @abc.abstractmethod
    def transformer(self) -> Any:
        """Return the increasing function of one number, a flowjax bijection of shape (), as it is at the start."""

    def initial(self, key: PRNGKeyArray, dim_theta: int, dim_data: int) -> "Flow":
        """Return a new flow that is nearly the identity: q(w | t) = N(w; 0, I)."""
        if self.width < dim_data:
            raise InputError(f"expected networks at least as wide as the data, {dim_data}; got width={self.width}.")
        shapes, _ = _skeleton(self, dim_theta, dim_data)
        sizes = np.array([np.prod(shape, dtype=int) for shape in shapes])
        flat = jnp.split(jr.normal(key, (int(sizes.sum()),)), np.cumsum(sizes)[:-1])
        last = max(i for i, shape in enumerate(shapes) if len(shape) == 3)
        scales = [OUTPUT_SCALE if i == last else 1.0 for i in range(len(shapes))]
        parameters = (_weights(*parts) for parts in zip(flat, shapes, scales, strict=True))
        return Flow(self, tuple(parameters), dim_theta, dim_data)


class Maf(AbstractFlow):
    """A masked autoregressive flow: every layer shifts and scales.

    The defaults are those of the sbibm benchmark's NLE: five layers, two hidden layers of 50 units.

    Args:
        layers: of the flow.
        width: units per hidden layer of each network.
        depth: hidden layers of each network.
    """

    layers: int = eqx.field(static=True, default=5)
    width: int = eqx.field(static=True, default=50)
    depth: int = eqx.field(static=True, default=2)

    def transformer(self):
        return _affine()


class SplineFlow(AbstractFlow):
    """A masked autoregressive flow whose layers shift and scale, then bend by a rational-quadratic spline.

    Bends make sharp edges and several modes possible where shifts and scales only stretch a Gaussian; they are also
    easier to over-fit with few simulations.

    Args:
        layers: of the flow.
        width: units per hidden layer of each network.
        depth: hidden layers of each network.
        knots: of each spline.
        interval: splines bend between plus and minus this, in standard deviations; beyond they are the identity.
    """

    layers: int = eqx.field(static=True, default=3)
    width: int = eqx.field(static=True, default=50)
    depth: int = eqx.field(static=True, default=2)
    knots: int = eqx.field(static=True, default=8)
    interval: float = eqx.field(static=True, default=4.0)

    def transformer(self):
        bijections = _flowjax().bijections
        return bijections.Chain(
            [_affine(), bijections.RationalQuadraticSpline(knots=self.knots, interval=self.interval)]
        )


class Flow(AbstractBase):
    """A flow with its weights.

    flowjax's own objects hold functions that no file can name, so the weights are kept apart from them and the object
    is put together when it is needed: the design says how.
    """

    design: AbstractFlow  # what the flow is made of
    parameters: tuple[Float[Array, "..."], ...]  # weights and biases of its networks, in the order of flowjax
    dim_theta: int = eqx.field(static=True)  # length of t
    dim_data: int = eqx.field(static=True)  # length of w

    def whiten_with_log_det(self, t, w):
        return self._bijection().inverse_and_log_det(w, t)

    def unwhiten(self, t, v):
        return self._bijection().transform(v, t)

    def log_density_whitened(self, v):
        return -0.5 * jnp.sum(jnp.square(v)) - 0.5 * v.shape[0] * LOG_2PI

    def draws_whitened(self, key, n):
        return normals(key, n, self.dim_data)

    def features(self, t, w):
        """Return w: an energy on top of a flow sees the data themselves, and v (`TwoViews`)."""
        return w

    def features_whitened(self, t, v):
        return self.unwhiten(t, v)

    def _bijection(self) -> Any:
        bijections = _flowjax().bijections
        from paramax import unwrap

        _, rest = _skeleton(self.design, self.dim_theta, self.dim_data)
        given = iter(self.parameters)
        layers = jax.tree.map(
            lambda leaf: next(given) if leaf is None else leaf, rest, is_leaf=lambda leaf: leaf is None
        )
        layer = bijections.Chain([layers, bijections.Flip((self.dim_data,))])
        return unwrap(bijections.Invert(bijections.Scan(layer)))


def _weights(flat: Float[Array, " size"], shape: tuple[int, ...], scale: float) -> Float[Array, "..."]:
    """Scale normals to weights, shape (layer, outputs, inputs), or return zeros for biases, shape (layer, outputs)."""
    return scale * flat.reshape(shape) / np.sqrt(shape[-1]) if len(shape) == 3 else jnp.zeros(shape)


def check_flows() -> None:
    """Raise an `InputError` that says what to install, if flows cannot be built here."""
    _flowjax()


def _flowjax() -> Any:
    try:
        import flowjax.bijections
        import flowjax.utils
    except ModuleNotFoundError as error:
        raise InputError(f"flows need flowjax ({error}); try: pip install 'unle[bench]'.") from None
    return flowjax


def _affine() -> Any:
    bijections = _flowjax().bijections  # which brings paramax
    from paramax import Parameterize
    from paramax.utils import inv_softplus

    scale = Parameterize(_positive, inv_softplus(1 - SMALLEST_SCALE))
    return eqx.tree_at(lambda affine: affine.scale, bijections.Affine(), scale)


def _positive(value):
    return jax.nn.softplus(value) + SMALLEST_SCALE


@functools.lru_cache(maxsize=32)
def _skeleton(design: AbstractFlow, dim_theta: int, dim_data: int) -> tuple[tuple[tuple[int, ...], ...], Any]:
    """Return the shapes of the weights, and the stacked layers of the flow with None in their places."""
    # In a thread of its own: what JAX is tracing belongs to a thread, and the first call may come from inside a jit.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_build, design, dim_theta, dim_data).result()


def _build(design: AbstractFlow, dim_theta: int, dim_data: int) -> tuple[tuple[tuple[int, ...], ...], Any]:
    """Build the layers abstractly, and compute only the masks of their networks, which do not depend on weights.

    flowjax draws weights matrix by matrix, which takes ten seconds to compile, and they would be thrown away.
    """
    flowjax = _flowjax()
    transformer = design.transformer()
    sizes = {"dim": dim_data, "cond_dim": dim_theta, "nn_width": design.width, "nn_depth": design.depth}

    def layer(key):
        how = {"transformer": transformer, "nn_activation": jax.nn.swish, **sizes}
        return flowjax.bijections.MaskedAutoregressive(key, **how)

    def layers(key):
        return eqx.filter_vmap(layer)(jr.split(key, design.layers))

    abstract = eqx.filter_eval_shape(layers, jr.key(0))
    masks = jax.jit(lambda: eqx.filter(layers(jr.key(0)), _is_mask))()
    shapes = tuple(leaf.shape for leaf in jax.tree.leaves(abstract) if _is_weight(leaf))
    numbers = iter(np.asarray(mask) for mask in jax.tree.leaves(masks))
    rest = jax.tree.map(lambda leaf: next(numbers) if _is_mask(leaf) else None if _is_weight(leaf) else leaf, abstract)
    # The function from network outputs to a transformer came out abstract too: here is a real one.
    constructor, _ = flowjax.utils.get_ravelled_pytree_constructor(transformer, filter_spec=eqx.is_inexact_array)
    return shapes, eqx.tree_at(lambda layers: layers.transformer_constructor, rest, constructor)


def _is_weight(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _is_mask(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and leaf.dtype == jnp.bool_
