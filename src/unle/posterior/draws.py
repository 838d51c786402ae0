"""Posterior draws, with the axes and the numbers that say how far to trust them."""

import json
import os
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from unle.errors import InputError, StoreError, other_names
from unle.space import checked_names

INTERVAL = 0.95  # probability between the ends of the intervals in `Draws.summary`
DIGITS = 4  # significant ones in `Draws.summary`
SHOWN = 6  # parameters in `repr`
X_AXIS = "x_dim_1"  # ArviZ's name of the axis of the entries of x

ELSEWHERE = {  # what arrays and ArviZ have of draws
    "quantile": "np.quantile(draws, [0.025, 0.975], axis=0)",
    "hdi": "draws.summary(hdi_prob=0.95)",
}
EXACT = 2.0**53  # whole numbers below it are the same as integers


@dataclass(frozen=True, repr=False)
class Draws:
    """Draws of theta given one observation.

    `np.asarray(draws)` is the plain (n, d) array, `draws["beta"]` the draws of one parameter.

    Attributes:
        values: draws with axes (chain, draw, parameter).
        names: parameter names.
        x_o: the observation, (rows, dim_x).
        seed: the seed they were made with.
        log_evidence: log of the integral of prior times likelihood in nats, up to the model's constant; NaN if unknown.
            It is a density of x as the fit sees it, transformed and standardised; `unle.diagnose.bayes_factor` compares
            two fits in the units of the data.
        info: further numbers of the sampler (acceptance, temperatures, effective sample sizes).
        x_names: of the entries of x_o; () if they have none.

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
    x_names: tuple[str, ...] = ()

    def __post_init__(self):
        checked_names(self.names, self.values.shape[-1])

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Return all draws as one (n, d) array, chains one after another."""
        flat = self.values.reshape(-1, self.values.shape[-1])
        return np.array(flat, dtype=dtype, copy=True) if copy else np.asarray(flat, dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        """Say where to find what ArviZ's data have."""
        hint = ""
        if not name.startswith("_"):
            own = f'draws["{name}"]' if name in self.__dict__.get("names", ()) else 'draws["NAME"], np.asarray(draws)'
            hint = f"; try {ELSEWHERE.get(name, f'{own}, draws.to_pandas() or draws.to_arviz()')}"
        raise AttributeError(f"draws have no attribute {name!r}{hint}")

    def __len__(self) -> int:
        """Return the number of draws."""
        return self.values.shape[0] * self.values.shape[1]

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return the draws of a parameter by its name, (n,), of several by their names, (n, k), or rows by number."""
        if isinstance(key, str):
            return np.asarray(self)[:, self._column(key)]
        if isinstance(key, list) and key and all(isinstance(name, str) for name in key):
            return np.asarray(self)[:, [self._column(name) for name in key]]
        return np.asarray(self)[key]

    def _column(self, name: str) -> int:
        if name not in self.names:
            hint = " For ArviZ, hand over draws.to_arviz()." if name == "posterior" else ""
            raise InputError(f"expected one of the parameters {', '.join(self.names)}; got {name!r}.{hint}")
        return self.names.index(name)

    def __repr__(self) -> str:
        """Say how many draws of what these are."""
        chains, rows = self.values.shape[0], self.x_o.shape[0]
        given = f"{self.x_o.shape[1]} numbers" if rows == 1 else f"{rows} rows of {self.x_o.shape[1]} numbers"
        shown = ", ".join(self.names[:SHOWN]) + (f" and {len(self.names) - SHOWN} more" * (len(self.names) > SHOWN))
        return f"Draws({len(self):,} of {shown}; {chains} chains; x_o: {given})"

    def mean(self, *args: Any, **kwargs: Any) -> Any:
        """Return the mean as `np.asarray(draws).mean` does; `axis=0` for that of each parameter."""
        return np.asarray(self).mean(*args, **kwargs)

    def std(self, *args: Any, **kwargs: Any) -> Any:
        """Return the standard deviation as `np.asarray(draws).std` does; `axis=0` for that of each parameter."""
        return np.asarray(self).std(*args, **kwargs)

    def median(self, axis: int | None = None) -> Any:
        """Return the median; `axis=0` for that of each parameter."""
        return np.median(self, axis=axis)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, d) of the draws as one array."""
        return len(self), self.values.shape[-1]

    def to_arviz(self, posterior_predictive: Any = None, prior: Any = None, prior_predictive: Any = None):
        """Return an ArviZ DataTree with groups `posterior` and `observed_data`.

        Data that are whole numbers are integers there, as ArviZ wants them of counts. The names of the entries of x are
        coordinates of their last axis, where they are known.

        Its plots come with `pip install "unle[arviz]"`: `import arviz_plots`. ArviZ before version 1, the newest that
        `pip install arviz` finds for Python 3.11, knows no DataTree: give it
        `arviz.InferenceData.from_datatree(draws.to_arviz())`.

        A "/" in a parameter's name is written "|" there: in a tree, and in its files, "/" leads from group to group.

        Args:
            posterior_predictive: data simulated at every draw, in the order of `np.asarray(draws)`; they become the
                group of this name, for predictive checks.
            prior: a `Prior`; as many draws of it as there are of the posterior become the group `prior`.
            prior_predictive: data simulated from the prior, such as `simulations.x`: the group of this name.
        """
        import arviz_base

        groups: dict[str, Any] = {"posterior": self._variables(self.values), "observed_data": {"x": self.x_o}}
        if prior is not None:
            if tuple(prior.names) != tuple(self.names):
                raise InputError(f"expected a prior of {', '.join(self.names)}; got one of {', '.join(prior.names)}.")
            groups["prior"] = self._variables(np.reshape(prior.sample(len(self), seed=0), self.values.shape))
        if prior_predictive is not None:
            x = np.asarray(prior_predictive)
            groups["prior_predictive"] = {"x": x.reshape(1, len(x), 1, -1)}
        if posterior_predictive is not None:
            x = np.asarray(posterior_predictive)
            shape = (*self.values.shape[:2], *self.x_o.shape)
            if x.size != np.prod(shape) or len(x) != len(self):
                advice = "try unle.simulators.simulate_at(simulator, np.asarray(draws)).x."
                if (rows := len(self.x_o)) > 1:
                    repeated = f"np.repeat(np.asarray(draws), {rows}, axis=0)"
                    advice = (
                        f"try unle.simulators.simulate_at(simulator, {repeated}).x.reshape(len(draws), {rows}, -1)."
                    )
                raise InputError(
                    f"expected `posterior_predictive` with data like x_o for each of {len(self)} draws; got {x.shape}; "
                    + advice
                )
            groups["posterior_predictive"] = {"x": x.reshape(shape)}
        data = [of for name, of in groups.items() if name not in ("posterior", "prior")]
        if all((of["x"] == np.round(of["x"])).all() and (np.abs(of["x"]) < EXACT).all() for of in data):  # not for NaN
            for of in data:
                of["x"] = of["x"].astype(int)
        with warnings.catch_warnings():
            # Exchange has many short chains: ArviZ takes that for axes in the wrong order.
            warnings.filterwarnings("ignore", message="Found chain dimension to be longer", category=UserWarning)
            coords = {X_AXIS: list(self.x_names)} if self.x_names else {}
            tree = arviz_base.from_dict(groups, sample_dims=["chain", "draw"], coords=coords)
        tree.attrs.update(self._attributes())
        return tree

    def _variables(self, values: np.ndarray) -> dict[str, np.ndarray]:
        return {_variable(name): values[..., i] for i, name in enumerate(self.names)}

    def to_pandas(self):
        """Return a table of pandas with one column per parameter and one row per draw."""
        import pandas

        return pandas.DataFrame(np.asarray(self), columns=list(self.names))

    @other_names("draws.summary(hdi_prob=0.95)", prob="ci_prob", names="var_names", parameters="var_names")
    def summary(self, var_names: Any = None, *, ci_prob: float = INTERVAL, hdi_prob: float | None = None):
        """Return a table of pandas: mean, sd, interval, effective sample sizes and R-hat per parameter.

        Numbers are rounded to four significant digits.

        Args:
            var_names: a parameter, or several; all by default.
            ci_prob: probability in the central interval.
            hdi_prob: probability in the shortest interval, which then takes the place of the central one.
        """
        # From the module itself: without xarray the package hides these names instead of failing.
        from arviz_stats.summary import summary

        shown = self.names if var_names is None else np.atleast_1d(var_names).astype(str).tolist()
        for name in shown:
            self._column(name)
        content = ci_prob if hdi_prob is None else hdi_prob
        if not 0 < content < 1:
            raise InputError(f"expected a probability between 0 and 1 in the interval; got {content}; try 0.95.")
        # Unrounded by ArviZ: two decimals would turn a rate of 1e-4 into zero.
        kind = "eti" if hdi_prob is None else "hdi"
        options: dict[str, Any] = {"ci_prob": content, "ci_kind": kind, "round_to": "none"}
        tree = self.to_arviz()
        table = summary(tree, **options)
        if hdi_prob is not None:  # ArviZ 0.8 puts the central interval there
            ends: Any = tree["posterior"].dataset.azstats.hdi(prob=hdi_prob)
            table.loc[:, table.columns.str.startswith("hdi")] = [ends[name].values for name in table.index]
        table = table.rename(index={_variable(name): name for name in self.names}).loc[list(shown)]
        table = table.drop(columns=[name for name in table.columns if name.startswith("mcse")])
        return table.map(lambda value: float(f"{value:.{DIGITS}g}"))

    def save(self, path: str | Path) -> Path:
        """Write the draws as NetCDF, group `posterior`, readable by ArviZ and xarray."""
        path = Path(path)
        if path.suffix in (".csv", ".txt", ".npy", ".npz", ".json", ".parquet"):
            raise InputError(
                f"expected a file of NetCDF, such as {path.with_suffix('.nc').name}; got {path.name}; "
                "for tables try draws.to_pandas().to_csv(path), or np.save(path, draws)."
            )
        temporary = path.with_name(path.name + ".part")
        try:
            self.to_arviz().to_netcdf(temporary, engine="h5netcdf")
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise StoreError(f"{path} could not be written: {_why(error)}.") from error
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Draws":
        """Read draws written by `save`."""
        import xarray

        if not Path(path).is_file():  # what HDF5 says about it is hard to read
            raise StoreError(f"{path} could not be read: there is no such file.")
        try:
            with xarray.open_datatree(str(path), engine="h5netcdf") as tree:
                return cls.from_arviz(tree)
        except OSError as error:
            raise StoreError(f"{path} could not be read: {_why(error)}.") from error

    @classmethod
    def from_arviz(cls, data: Any) -> "Draws":
        """Return the draws in a DataTree, an InferenceData or a group `posterior` of ArviZ, made by any program.

        Elements of a variable with further axes become parameters of their own: a[0], a[1], ...

        Raises:
            InputError: there is no group `posterior` with the axes chain and draw.
        """
        posterior = getattr(data, "posterior", data)  # or the group itself
        variables = getattr(posterior, "data_vars", None)
        if variables is None or not {"chain", "draw"} <= set(posterior.dims):
            raise InputError(
                f"expected ArviZ data with a group `posterior` of axes chain and draw; got {type(data).__name__}."
            )
        columns: dict[str, np.ndarray] = {}
        for name, variable in variables.items():
            values = np.asarray(variable.transpose("chain", "draw", ...))
            for place in np.ndindex(values.shape[2:]):
                label = f"{name}[{', '.join(map(str, place))}]" if place else str(name)
                columns[label] = values[(..., *place)]
        attributes = dict(data.attrs)
        names = tuple(json.loads(attributes.get("unle_names", json.dumps(list(columns)))))
        observed = getattr(data, "observed_data", {})
        x_o = np.asarray(observed["x"].values, float) if "x" in observed else np.zeros((1, 0))
        labels = observed[X_AXIS].values.tolist() if X_AXIS in observed else []
        return cls(
            np.stack([columns[_variable(name)] for name in names], axis=-1),
            names,
            np.atleast_2d(x_o),
            int(attributes.get("unle_seed", 0)),
            float(attributes.get("unle_log_evidence", "nan")),
            json.loads(attributes.get("unle_info", "{}")),
            tuple(label for label in labels if isinstance(label, str)),  # numbers are ArviZ's own
        )

    def _attributes(self) -> dict[str, Any]:
        return {
            "unle_names": json.dumps(list(self.names)),
            "unle_seed": self.seed,
            "unle_log_evidence": self.log_evidence,
            "unle_info": json.dumps(self.info),
        }


def _why(error: OSError) -> str:
    """Return the reason in a few words: HDF5 writes down the whole call."""
    number = error.errno or next((int(found) for found in re.findall(r"errno = (\d+)", str(error))), 0)
    return os.strerror(number) if number else "it is no NetCDF file" if "signature" in str(error) else str(error)


def _variable(name: str) -> str:
    return name.replace("/", "|")
