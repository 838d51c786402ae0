"""`unle export` and `unle import`: simulations to and from files of other programs, and draws to them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.console import plain_ending, refuse_missing

EXPORT_EXAMPLE = "Example:  unle export runs/model simulations.parquet"
IMPORT_EXAMPLE = "Example:  unle import runs/mine simulations.npz"


def export_simulations(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory; it may be running.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to write: .npz, .csv or .parquet; of draws .csv, .nc or .zarr.")
    ],
    draws: Annotated[  # noqa: FBT002
        bool, typer.Option("--draws", help="Write the posterior draws instead of the simulations.")
    ] = False,
) -> None:
    """Write the simulations of a run directory, or its posterior draws, to a file for other programs."""
    with plain_ending():
        from unle.errors import StoreError
        from unle.simulators import Simulations
        from unle.store import RunDirectory

        run = RunDirectory.open(directory)
        if draws:
            _export_draws(run, file)
            return
        if file.exists():
            raise StoreError(f"{file} exists and is not overwritten; choose another name.")
        with run.simulations(read_only=True) as store:
            simulations = Simulations.from_store(store)
            names = store.fact("theta_names") or ()
        simulations.save(file, theta_names=names)
        typer.echo(f"{file}: {simulations.summary()}")


def _export_draws(run: Any, file: Path) -> None:
    from unle.diagnose import export_draws
    from unle.errors import StoreError
    from unle.posterior import Draws

    if not run.draws.exists():
        raise StoreError(f"{run.path} holds no draws; make some: unle sample {run.path} --observation FILE.")
    draws = Draws.load(run.draws)
    typer.echo(f"{export_draws(draws, file)}: {len(draws):,} draws of {', '.join(draws.names)}")


def import_simulations(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new run directory.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to read: .npz with theta and x, .csv or .parquet.")
    ],
    parameters: Annotated[
        str, typer.Option(help="Columns that are parameters, as a,b,c, if they are not called theta...")
    ] = "",
) -> None:
    """Bring simulations that were made elsewhere into a run directory: `unle run MODEL --simulations DIR` uses them."""
    with plain_ending():
        refuse_missing(file)
        from unle.simulators import Simulations
        from unle.store import RunDirectory, sha256_of

        chosen = [name.strip() for name in parameters.split(",") if name.strip()]
        simulations = Simulations.load(file, parameters=chosen)
        settings = {"method": "import", "file": file.name, "sha256": sha256_of(file), "parameters": chosen}
        run = RunDirectory.create(directory, settings)
        with run.locked(), run.simulating() as store:
            if not store.count():
                simulations.append_to(store)
        typer.echo(f"{directory}: {simulations.summary()}")
