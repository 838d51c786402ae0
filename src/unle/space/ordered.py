"""Distributions whose arrays come in the order of their names.

numpyro keeps the names of a distribution's arrays in a set, whose order differs from process to process.  The arguments
of a compiled program would come in another order each time, and a program that was kept on disk would not be found.
"""

from typing import Any

import jax
from numpyro import distributions as dist


@jax.tree_util.register_pytree_node_class
class Ordered:
    """A distribution, as a tree whose leaves are sorted by name."""

    def __init__(self, distribution: dist.Distribution):
        self.distribution = distribution

    def tree_flatten(self) -> tuple[tuple[dict[str, Any]], tuple[Any, ...]]:
        """Return the fields with arrays, a dictionary, and what else the distribution is made of."""
        kind = type(self.distribution)
        values, others = self.distribution.tree_flatten()
        fields = dict(zip(kind.gather_pytree_data_fields(), values, strict=True))
        return (_map_nodes(Ordered, dist.Distribution, fields),), (kind, others)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[dict[str, Any]]) -> "Ordered":
        """Build the distribution again."""
        kind, others = static
        fields = _map_nodes(lambda node: node.distribution, Ordered, children[0])
        values = tuple(fields[name] for name in kind.gather_pytree_data_fields())
        return cls(kind.tree_unflatten(others, values))


def _map_nodes(function: Any, kind: type, tree: Any) -> Any:
    """Apply a function to the nodes of one class, and leave the rest of the tree as it is."""
    is_node = lambda node: isinstance(node, kind)  # noqa: E731
    return jax.tree.map(lambda node: function(node) if is_node(node) else node, tree, is_leaf=is_node)
