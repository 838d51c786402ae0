"""`unle bench`: methods on tasks with known posteriors, scored, stored row by row, and set beside published numbers."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli import counted, plain_ending, say, show_table
from unle.errors import InputError

EXAMPLE = "Example:  unle bench --tasks two_moons,slcp --methods aunle,nle --budgets 1000,10000 --seeds 0-2"
DEFAULT = Path("runs/bench.sqlite")
QUICK = {"tasks": "two_moons,gaussian_mixture", "methods": "aunle,nle", "budgets": "1000", "seeds": "0"}
QUICK_OBSERVATIONS = "1,2"
TOGETHER = 5  # seeds in one program of a GPU

Text = str | None


def bench(
    tasks: Annotated[
        Text, typer.Option(help="Names, separated by commas; `all` whose posterior is known.", show_default=False)
    ] = None,
    methods: Annotated[Text, typer.Option(help="Names, separated by commas.", show_default=False)] = None,
    budgets: Annotated[Text, typer.Option(help="Numbers of simulations.  [default: 1000]", show_default=False)] = None,
    seeds: Annotated[Text, typer.Option(help="Such as 0,1 or 0-4.  [default: 0]", show_default=False)] = None,
    observations: Annotated[
        Text, typer.Option(help="Numbers from 1 to 10.  [default: 1-10]", show_default=False)
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Results file; what it holds is not done again. With --show, also a .csv.")
    ] = DEFAULT,
    quick: Annotated[bool, typer.Option("--quick", help="Two tasks, two methods, two observations.")] = False,  # noqa: FBT002
    draws: Annotated[int, typer.Option(min=50, help="Draws per posterior; fewer than 10,000 flatter.")] = 10_000,
    classifier: Annotated[str, typer.Option(help="Of C2ST: fast (JAX) or exact (scikit-learn).")] = "fast",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes.  [default: one per core; 1 on a GPU]", show_default=False)
    ] = None,
    together: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Seeds of a method, if it is not sequential, in one program.  [default: 1; 5 on a GPU]",
            show_default=False,
        ),
    ] = None,
    own: Annotated[
        list[str] | None, typer.Option("--with", help="A Python file with METHODS or TASKS of your own; repeatable.")
    ] = None,
    sbi_python: Annotated[
        Path | None, typer.Option(help="Python of an environment with sbi, for the methods sbi-...")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed rows again.")] = False,  # noqa: FBT002
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show what is there.")] = False,  # noqa: FBT002
    write: Annotated[
        list[Path] | None, typer.Option(help="Write the table to a .md or .csv file; repeatable.", show_default=False)
    ] = None,
) -> None:
    """Score methods on tasks whose posterior is known.

    Every combination of task, method, budget, seed and observation becomes one row of the results file. After a crash,
    a kill or Ctrl-C the same command goes on with what is missing. Failures are rows with C2ST 1 and a reason.
    """
    if (workers or 1) > 1:  # several processes can share an accelerator if none takes all its memory; before jax starts
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with plain_ending(lambda: f"finished rows are in {results}; the same command goes on."):
        from unle_bench.results.results_csv import opened

        _check_writable(write or [])
        sweep = None
        if not show:
            if results.suffix == ".csv":
                raise InputError(f"expected a results file to run for, such as {DEFAULT}; {results} is to be shown.")
            given = {"tasks": tasks, "methods": methods, "budgets": budgets, "seeds": seeds}
            given |= {"observations": observations}
            if sbi_python is not None:
                _use_sbi(sbi_python)
            sweep = _sweep(given, quick=quick, draws=draws, classifier=classifier, own=tuple(own or ()))
            results.parent.mkdir(parents=True, exist_ok=True)
            if retry:
                _forget_failures(sweep, results)
            _run(sweep, results, workers, together)
        with opened(results) as stored:
            rows = stored.rows()
        _show(rows)
        _write(rows, write or [], results)
        if sweep is not None:
            _end_badly_if_nothing_worked(sweep, rows)


def _sweep(given: dict[str, Text], *, quick: bool, draws: int, classifier: str, own: tuple[str, ...]) -> Any:
    from unle_bench.methods.registry import Registry
    from unle_bench.sweep.scoring import Scorer
    from unle_bench.sweep.sweep import Sweep

    defaults = {"tasks": None, "methods": None, "budgets": "1000", "seeds": "0", "observations": "1-10"}
    if quick:
        defaults |= QUICK | {"observations": QUICK_OBSERVATIONS}
    values = {name: given[name] or defaults[name] for name in defaults}
    for name in ("tasks", "methods"):
        if values[name] is None:
            raise InputError(f"expected --{name}, such as --{name} {QUICK[name]}; or try --quick.")
    names_of_tasks, names_of_methods = (
        tuple(part.strip() for part in str(values[name]).split(",")) for name in ("tasks", "methods")
    )
    numbers = [whole_numbers(str(values[name]), f"--{name}") for name in ("budgets", "seeds", "observations")]
    if names_of_tasks == ("all",):
        everything = Registry.with_files(own).tasks
        names_of_tasks = tuple(name for name in everything if everything[name].has_reference)
    return Sweep(names_of_tasks, names_of_methods, *numbers, scorer=Scorer(draws, classifier), extra=own)


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read `1,2` and `1-10` and `1000`.

    Example:
        >>> whole_numbers("0-2,7", "--seeds")
        (0, 1, 2, 7)
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not (first.isdigit() and (last.isdigit() or not last)):
            raise InputError(f"expected {option} as whole numbers such as 1,2 or 1-10; got {text!r}.")
        if int(last or first) < int(first):
            raise InputError(f"expected {option} from the smaller to the larger number; got {part.strip()!r}.")
        found += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(found))


def _use_sbi(python: Path) -> None:
    from unle_bench.methods.peers import ENVIRONMENT_VARIABLE

    if not python.exists():
        raise InputError(
            f"there is no Python at {python}; make one with `python -m venv sbi-env && sbi-env/bin/pip install sbi`."
        )
    os.environ[ENVIRONMENT_VARIABLE] = str(python.absolute())  # the link itself: its folder is the environment


def _forget_failures(sweep: Any, path: Path) -> None:
    """Delete the failed rows of a sweep, once it is certain that it can be tried again."""
    from unle_bench.results.results_store import ResultsStore

    with ResultsStore(path) as store:
        failed = store.failed() & set(sweep.cells())
        sweep.check(store.finished() - failed)
        say(f"{counted(store.forget(failed), 'failed row')} to be tried again.")


def _end_badly_if_nothing_worked(sweep: Any, rows: list[dict[str, Any]]) -> None:
    from unle_bench.results.results_store import KEY, OK

    wanted = set(sweep.cells())
    outcomes = [row["outcome"] for row in rows if tuple(row[name] for name in KEY) in wanted]
    if outcomes and OK not in outcomes:
        say(f"error: every row of this sweep failed; the first of the reasons: {outcomes[0]}")
        raise typer.Exit(1)


def _run(sweep: Any, path: Path, workers: int | None, together: int | None) -> None:
    import jax

    from unle_bench.cli.live_table import LiveTable
    from unle_bench.sweep.run_sweep import run_sweep

    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = cores if jax.default_backend() == "cpu" else 1
    if together is None:
        together = 1 if jax.default_backend() == "cpu" else TOGETHER
    with LiveTable(sweep, path) as table:
        shown = {"on_row": lambda *_: table.update(), "on_tick": table.update}
        run_sweep(sweep, path, workers=workers, together=together, **shown)


def _show(rows: list[dict[str, Any]]) -> None:
    from unle_bench.results.tables import comparison, draws_of, under

    if not rows:
        typer.echo("No results yet.")
        return
    heads, table = comparison(rows)
    tasks = [line[0] for line in table]
    lines = [["" if k and tasks[k - 1] == line[0] else line[0], *line[1:]] for k, line in enumerate(table)]
    title = f"C2ST of {draws_of(rows)} draws, by the number of simulations"
    show_table(title, heads, lines, numbers_from=len(heads))
    typer.echo(under(rows))


def _check_writable(paths: list[Path]) -> None:
    for path in paths:
        if path.suffix not in (".md", ".csv"):
            raise InputError(f"expected a file that ends in .md or .csv; got {path}.")


def _write(rows: list[dict[str, Any]], paths: list[Path], source: Path) -> None:
    from unle.store import write_atomically
    from unle_bench.paper.results_page import write_results_page
    from unle_bench.results.results_csv import as_csv

    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            write_results_page(rows, path, source=source)
        else:
            write_atomically(path, as_csv(rows).encode())
        say(f"wrote {path}")
