"""Draws in the formats of others."""

import csv
from pathlib import Path

import numpy as np

from unle.errors import InputError, StoreError
from unle.posterior import Draws


def export_draws(draws: Draws, path: str | Path) -> Path:
    """Write draws as NetCDF (.nc), Zarr (.zarr, needs the package zarr) or CSV (.csv), by the suffix.

    NetCDF and Zarr hold ArviZ's groups; CSV has one line per draw, with columns chain, draw and one per parameter.

    Args:
        draws: of one posterior.
        path: where to; never overwritten.

    Returns:
        The path.
    """
    path = Path(path)
    if path.suffix not in (".nc", ".zarr", ".csv"):
        raise InputError(f"expected a name that ends in .nc, .zarr or .csv; got {path.name}.")
    if path.exists():
        raise StoreError(f"{path} exists and is not overwritten; choose another name.")
    if path.suffix == ".nc":
        return draws.save(path)
    if path.suffix == ".zarr":
        try:
            import zarr  # noqa: F401  # pyright: ignore[reportMissingImports]  # optional
        except ImportError:
            raise InputError("expected the package zarr for a .zarr file; try `pip install zarr`, or .nc.") from None
        draws.to_arviz().to_zarr(path)
        return path
    chain, draw = np.indices(draws.values.shape[:2])
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["chain", "draw", *draws.names])
        flat = np.asarray(draws, float)
        writer.writerows([c, d, *row] for c, d, row in zip(chain.ravel(), draw.ravel(), flat.tolist(), strict=True))
    return path
