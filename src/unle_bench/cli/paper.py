"""`unle paper`: the figures of the paper from stored results, in one folder with an index page."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli import counted, plain_ending, say
from unle.errors import InputError
from unle_bench.cli.bench import DEFAULT

EXAMPLE = "Example:  unle paper --results runs/bench.sqlite --out paper --only c2st"
PYLORIC = "pyloric"


def paper(
    results: Annotated[Path, typer.Option(help="Results file, made by `unle bench`; or a .csv of its rows.")] = DEFAULT,
    out: Annotated[Path, typer.Option(help="Folder for the page and the pictures.")] = Path("paper"),
    only: Annotated[list[str] | None, typer.Option(help="Name of a figure; repeatable.", show_default=False)] = None,
    pyloric: Annotated[Path, typer.Option(help="Run directory for the figures of the pyloric network.")] = Path(
        "runs/pyloric"
    ),
) -> None:
    """Draw the paper's figures from a results file.

    Writes OUT/index.html, which needs no other file, and every picture as PNG and SVG beside it.
    """
    with plain_ending():
        from unle_bench.paper.figures import FIGURES
        from unle_bench.paper.gallery import write_gallery
        from unle_bench.results.results_csv import opened
        from unle_bench.results.results_query import ResultsQuery
        from unle_bench.results.tables import comparison

        known = [*FIGURES, PYLORIC]
        wanted = list(only or known)
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise InputError(f"expected figures among {', '.join(known)}; got {', '.join(unknown)}.")
        figures, heads, rows = [], [], []
        of_results = [name for name in wanted if name != PYLORIC]
        if of_results:
            with opened(results) as stored:
                query = ResultsQuery(stored)
                figures = [FIGURES[name](query) for name in of_results]
                heads, rows = comparison(query.rows) if query.rows else ([], [])
        if PYLORIC in wanted:
            figures.append(_pyloric(pyloric))
        page = write_gallery(
            out,
            figures,
            source=str(results) if of_results else str(pyloric),
            table={"heads": heads, "rows": rows} if rows else None,
        )
        for figure in figures:
            if figure.command:
                say(f"{figure.name}: {counted(len(figure.drawn), 'picture')}; {figure.why}: {figure.command}")
        typer.echo(f"{page}  ({counted(sum(len(figure.drawn) for figure in figures), 'picture')})")


def _pyloric(path: Path) -> Any:
    """Draw a run of the pyloric network, as far as it exists."""
    from unle.cli import load_posterior, require_fit
    from unle.posterior import Draws
    from unle_bench.paper.pyloric_figures import pyloric

    if not (path / "run.json").exists():
        return pyloric()
    run = require_fit(path)
    if run.settings.get("model") != PYLORIC:
        raise InputError(f"expected a run of the task {PYLORIC} at {path}; got one of {run.settings.get('model')}.")
    with run.simulations(read_only=True) as store:
        rows = store.read()
    rounds = [rows.x[rows.round == number] for number in sorted(set(rows.round.tolist()))]
    return pyloric(rounds, load_posterior(run), Draws.load(run.draws) if run.draws.exists() else None, name=path.name)
