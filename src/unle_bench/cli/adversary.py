"""`unle adversary`: methods on simulators that attack their defaults, and whether the checks notice."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli import counted, plain_ending, say, show_table
from unle.errors import InputError
from unle_bench.cli.bench import whole_numbers

EXAMPLE = "Example:  unle adversary --methods aunle --only student_2,counts --jobs 2"
DEFAULT = Path("runs/adversary.jsonl")


def adversary(
    methods: Annotated[str, typer.Option(help="Among aunle, sunle, nle, snle; separated by commas.")] = "aunle,sunle",
    seeds: Annotated[
        str, typer.Option(help="Such as 0,1 or 0-2; observations take turns: typical, tail, edge.")
    ] = "0-2",
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side, each with its share of the cores.")] = 1,
    only: Annotated[
        str | None, typer.Option(help="Names of simulators, separated by commas.  [default: all]", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="File of the rows; what it holds is not done again.")] = DEFAULT,
    write: Annotated[Path | None, typer.Option(help="Also write the rows to a .csv file.", show_default=False)] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show what is there.")] = False,  # noqa: FBT002
    names: Annotated[bool, typer.Option("--list", help="List the simulators and what they attack.")] = False,  # noqa: FBT002
) -> None:
    """Try methods on small simulators that attack their defaults, and whose posteriors are known.

    Every run is a row: how far the draws are from the exact posterior, and the verdict that `unle run` would give.
    After a crash or Ctrl-C the same command goes on with what is missing. Failures are rows with a reason.
    """
    if jobs > 1:  # several processes can share an accelerator if none takes all its memory; before jax starts
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with plain_ending(lambda: f"finished rows are in {out}; the same command goes on."):
        if write is not None and write.suffix != ".csv":
            raise InputError(f"expected a file that ends in .csv; got {write}.")
        if names:
            _list()
            return
        _show(_rows(methods, seeds, only, out, jobs, show=show), write)


def _rows(methods: str, seeds: str, only: str | None, out: Path, jobs: int, *, show: bool) -> list[dict[str, Any]]:
    from unle_bench.adversary.rows import line_of, read_rows
    from unle_bench.adversary.trials import run_adversary, trials

    if show:
        return read_rows(out)
    wanted = trials(_names(only), _names(methods), whole_numbers(seeds, "--seeds"))
    done = 0

    def tell(row: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        say(f"{done:>4}  {line_of(row)}")

    say(f"{counted(len(wanted), 'run')}, rows in {out}; those that are there are not done again.")
    return run_adversary(wanted, out, jobs=jobs, on_row=tell)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _list() -> None:
    from unle_bench.adversary import ADVERSARIES

    lines = [[one.name, str(one.prior.dim), f"{one.simulations:,}", one.attacks] for one in ADVERSARIES.values()]
    show_table(
        counted(len(lines), "simulator"), ["simulator", "parameters", "simulations", "attacks"], lines, numbers_from=9
    )


def _show(rows: list[dict[str, Any]], write: Path | None) -> None:
    from unle.store import write_atomically
    from unle_bench.adversary.rows import HEADS, as_csv, by_simulator, totals

    if not rows:
        typer.echo("No results yet.")
        return
    heads = [{"kolmogorov": "distance"}.get(head, head) for head in HEADS]  # twelve columns are narrow
    show_table("Runs by simulator, with the worst of every measure", heads, by_simulator(rows), numbers_from=2)
    for sentence in totals(rows):
        typer.echo(sentence)
    if write is not None:
        write.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(write, as_csv(rows).encode())
        say(f"wrote {write}")
