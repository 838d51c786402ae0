"""Posterior draws, with the axes and the numbers that say how far to trust them."""

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Draws:
    """Draws of theta given one observation.

    `np.asarray(draws)` is the plain (n, d) array.

    Attributes:
        values: draws with axes (chain, draw, parameter).
        names: parameter names.
        x_o: the observation, (rows, dim_x).
        seed: the seed they were made with.
        log_evidence: log of the integral of prior times likelihood, up to the model's constant; NaN if unknown.
        info: further numbers of the sampler (acceptance, temperatures, effective sample sizes).

    Example:
        >>> import numpy as np, unle
        >>> draws = unle.Draws(np.zeros((4, 100, 2)), ("a", "b"), np.zeros((1, 3)), seed=0)
        >>> np.asarray(draws).shape
        (400, 2)
    """

    values: Float[np.ndarray, "chain draw dim"]
    names: tuple[str, ...]
    x_o: Float[np.ndarray, "rows dim_x"]
    seed: int
    log_evidence: float = float("nan")
    info: dict[str, Any] = field(default_factory=dict)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Return all draws as one (n, d) array, chains one after another."""
        flat = self.values.reshape(-1, self.values.shape[-1])
        return np.array(flat, dtype=dtype, copy=True) if copy else np.asarray(flat, dtype=dtype)

    def __len__(self) -> int:
        """Return the number of draws."""
        return self.values.shape[0] * self.values.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, d) of the draws as one array."""
        return len(self), self.values.shape[-1]

    def to_arviz(self):
        """Return an ArviZ DataTree with groups `posterior`, `observed_data` and `sample_stats` where known.

        A "/" in a parameter's name is written "|" there: in a tree, and in its files, "/" leads from group to group.
        """
        import arviz_base

        groups: dict[str, Any] = {
            "posterior": {_variable(name): self.values[..., i] for i, name in enumerate(self.names)},
            "observed_data": {"x": self.x_o},
        }
        with warnings.catch_warnings():
            # Exchange has many short chains: ArviZ takes that for axes in the wrong order.
            warnings.filterwarnings("ignore", message="Found chain dimension to be longer", category=UserWarning)
            tree = arviz_base.from_dict(groups, sample_dims=["chain", "draw"])
        tree.attrs.update(self._attributes())
        return tree

    def summary(self):
        """Return ArviZ's table: mean, sd, interval, effective sample sizes and R-hat per parameter."""
        # From the module itself: without xarray the package hides these names instead of failing.
        from arviz_stats.summary import summary

        # Unrounded: two decimals would turn a rate of 1e-4 into zero.
        table = summary(self.to_arviz(), round_to="none")  # pyright: ignore[reportArgumentType]
        return table.rename(index={_variable(name): name for name in self.names})

    def save(self, path: str | Path) -> Path:
        """Write the draws as NetCDF, group `posterior`, readable by ArviZ and xarray."""
        path = Path(path)
        temporary = path.with_name(path.name + ".part")
        self.to_arviz().to_netcdf(temporary, engine="h5netcdf")
        temporary.replace(path)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Draws":
        """Read draws written by `save`."""
        import xarray

        with xarray.open_datatree(str(path), engine="h5netcdf") as tree:
            names = tuple(json.loads(tree.attrs["unle_names"]))
            posterior = tree["posterior"]
            values = np.stack([np.asarray(posterior[_variable(name)].values) for name in names], axis=-1)
            x_o = np.asarray(tree["observed_data"]["x"].values)
            attributes = dict(tree.attrs)
        info = json.loads(attributes["unle_info"])
        return cls(values, names, x_o, int(attributes["unle_seed"]), float(attributes["unle_log_evidence"]), info)

    def _attributes(self) -> dict[str, Any]:
        return {
            "unle_names": json.dumps(list(self.names)),
            "unle_seed": self.seed,
            "unle_log_evidence": self.log_evidence,
            "unle_info": json.dumps(self.info),
        }


def _variable(name: str) -> str:
    return name.replace("/", "|")
