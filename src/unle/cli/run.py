"""`unle run`: simulate, fit, and draw from the posterior, all kept in one directory."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from unle.cli.console import Stages, plain_ending, say
from unle.cli.report import report_after
from unle.cli.where import Dask, Timeout, Where, Workers

EXAMPLE = "Example:  unle run two_moons --observation 1 --check"
BUDGET = 1000


def run(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A built-in task, or a Python file with `prior` and `simulator`.")
    ],
    method: Annotated[
        str, typer.Option(help="How to infer: aunle, or sunle in rounds; baselines nle, snle, smnle.")
    ] = "aunle",
    budget: Annotated[int | None, typer.Option(min=1, help="Number of simulations.  [default: 1000]")] = None,
    rounds: Annotated[
        str | None,
        typer.Option(help="Rounds of sunle and snle: how many, or the size of each, as in 500,250,250.  [default: 10]"),
    ] = None,
    posterior: Annotated[
        str | None,
        typer.Option(
            help="What is done about Z(theta): tilted, divi, online or exchange (sunle), divi or exchange (smnle).  "
            "[default: the first]"
        ),
    ] = None,
    every_round: Annotated[
        bool | None,
        typer.Option(
            "--every-round/--no-every-round",
            help="Train energies in every round, or after the last only: sunle.  [default: where they help to propose]",
            show_default=False,
        ),
    ] = None,
    repetition: Annotated[
        bool | None,
        typer.Option(
            "--repetition/--no-repetition",
            help="Look for repeated measurements in x: aunle.  [default: yes]",
            show_default=False,
        ),
    ] = None,
    paper: Annotated[
        bool | None,
        typer.Option("--paper", help="The algorithm of the paper and nothing else: aunle, sunle.", show_default=False),
    ] = None,
    flow: Annotated[str | None, typer.Option(help="Flow of nle and snle: maf or spline.  [default: maf]")] = None,
    sliced: Annotated[bool | None, typer.Option("--sliced", help="Match slices of scores: smnle.")] = None,
    observation: Annotated[
        str | None,
        typer.Option(help="File with x_o (.csv, .txt, .npy, .json), or the number of a task's observation, 1 to 10."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory.  [default: runs/MODEL]", show_default=False)] = None,
    draws: Annotated[int, typer.Option(min=1, help="Number of posterior draws.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the result.")] = 0,
    members: Annotated[int | None, typer.Option(min=1, help="Size of the ensemble, if not the default.")] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Most training steps of each network, if not the defaults.")
    ] = None,
    workers: Workers = None,
    dask: Dask = None,
    timeout: Timeout = None,
    simulations: Annotated[
        Path | None,
        typer.Option(help="Use these simulations (.npz, .csv, .parquet, or a run directory) instead of simulating."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory for the simulations in training, such as 2GB; of more, it sees a part at a time.  "
            "[default: half of the machine's]",
            show_default=False,
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Score a task's draws against exact ones (C2ST).")] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,  # noqa: FBT002
    with_report: Annotated[  # noqa: FBT002
        bool, typer.Option("--report/--no-report", help="Check the run at its end and write DIR/report.html.")
    ] = True,
) -> None:
    """Simulate, fit a likelihood, and draw from the posterior.

    MODEL is a built-in task (see `unle tasks`) or a Python file that defines `prior`, `simulator(theta, rng)` and,
    optionally, the observation `x_o`. Without an observation the likelihood is fitted and saved for `unle sample`. The
    run directory keeps everything: `unle resume DIR`, or the same command again, goes on where the last one stopped.
    """
    directory = Path("runs") / Path(model).stem if out is None else out
    with plain_ending(lambda: _saved(directory)):
        from unle.cli import inference
        from unle.cli.model import load_model
        from unle.cli.observation import as_rows, read_observation
        from unle.errors import InputError

        loaded = load_model(model)
        if observation is not None:
            x_o = read_observation(observation, loaded.task)
        else:
            x_o = None if loaded.x_o is None else as_rows(loaded.x_o, f"`x_o` in {model}")
        if check and (loaded.task is None or x_o is None):
            raise InputError("expected a built-in task and an observation with --check; try --observation 1.")
        if check and loaded.task is not None and loaded.task.draw_posterior is None:
            raise InputError(f"expected a task whose exact posterior is known with --check; that of {model} is not.")
        given = None if simulations is None else _load(simulations, loaded.prior.names)
        split, posterior = _defaults(method, rounds, posterior, paper=bool(paper))
        if every_round is not None and method != "sunle":
            raise InputError(f"expected --every-round with --method sunle only; {method} has no energies in rounds.")
        if repetition is not None and method != "aunle":
            raise InputError(f"expected --repetition with --method aunle only; {method} looks for none.")
        budget = (budget or (sum(split) if isinstance(split, list) else BUDGET)) if given is None else len(given)
        imported = None if given is None else given.digest()
        request = inference.Request(
            loaded,
            budget,
            x_o,
            draws,
            seed,
            method,
            members,
            iterations,
            timeout,
            imported,
            given,
            split,
            posterior,
            flow,
            sliced,
            memory,
            every_round,
            repetition,
            paper,
        )
        kept = inference.open_run(directory, request)
        stages = Stages()
        _, drawn = inference.infer(request, kept, stages, Where(workers, dask))
        done = not stages.seconds
        score = inference.check_exact(request, drawn, stages) if check and drawn is not None else None
        if done:
            say(f"{directory} holds this run already, complete; nothing was repeated.")
        findings = report_after(kept, loaded) if with_report and not done else None
        report(directory, drawn, stages, score, findings, as_json=as_json, done=done)


def _defaults(
    method: str, rounds: str | None, posterior: str | None, *, paper: bool
) -> tuple[int | list[int] | None, str | None]:
    """Fill in what the method takes, and refuse what it would ignore."""
    from unle.cli.baselines import SEQUENTIAL
    from unle.errors import InputError

    if rounds is not None and method not in SEQUENTIAL:
        raise InputError(f"expected --rounds with --method sunle or snle only; {method} has one round.")
    if posterior is not None and method not in ("sunle", "smnle"):
        raise InputError(f"expected --posterior with --method sunle or smnle only; {method} has a normaliser.")
    default = {"sunle": "exchange" if paper else "tilted", "smnle": "divi"}.get(method)
    return _split(rounds or "10") if method in SEQUENTIAL else None, posterior or default


def _split(rounds: str) -> int | list[int]:
    """Read a number of rounds, or the sizes of all of them."""
    from unle.errors import InputError

    try:
        sizes = [int(part) for part in rounds.split(",")]
    except ValueError:
        raise InputError(f"expected --rounds to be a number, or sizes such as 500,250,250; got {rounds!r}.") from None
    return sizes if len(sizes) > 1 else sizes[0]


def _load(path: Path, names: Sequence[str]) -> Any:
    """Read simulations; in a table whose columns are not called theta..., the prior's names say which are."""
    from unle.errors import InputError
    from unle.simulators import Simulations

    try:
        return Simulations.load(path)
    except InputError:
        return Simulations.load(path, parameters=names)


def _saved(directory: Path) -> str:
    from unle.cli.inference import saved_so_far

    return saved_so_far(directory)


def report(
    directory: Path, draws: Any, stages: Stages, score: float | None, findings: Any, *, as_json: bool, done: bool
) -> None:
    """Print the table, or the JSON object, of a finished run."""
    from unle.cli.summary import complaints, show_summary, summarise

    summary = None if draws is None else summarise(draws)
    files = sorted(str(path) for path in directory.rglob("*") if path.is_file())
    if as_json:
        result = {
            "directory": str(directory),
            "repeated": not done,
            "seconds": stages.seconds,
            "draws": None if draws is None else len(draws),
            "summary": summary,
            "c2st": score,
            "verdict": None if findings is None else findings.verdict,
            "reasons": [] if findings is None else list(findings.reasons),
            "files": files,
        }
        typer.echo(json.dumps(result, indent=2))
    elif draws is None:
        typer.echo(f"The likelihood is fitted and saved in {directory}. Draw from it, for any observation, with")
        typer.echo(f"    unle sample {directory} --observation FILE")
    else:
        show_summary(draws, summary or {})
    for sentence in complaints(summary or {}):
        say(f"warning: {sentence}")
    if as_json:
        return
    if score is not None:
        typer.echo(f"C2ST against exact draws: {score:.3f} (0.5 is indistinguishable, 1 is entirely different)")
    if stages.seconds:
        typer.echo(f"Time: {stages.line()}")
    if draws is not None:
        from unle.cli.baselines import SEQUENTIAL

        amortised = run_method(directory) not in SEQUENTIAL
        more = f"; another observation: unle sample {directory} --observation FILE" if amortised else "."
        typer.echo(f"Everything is in {directory}{more}")


def run_method(directory: Path) -> str:
    """Return the method of a run directory."""
    from unle.store import RunDirectory

    return str(RunDirectory.open(directory).settings.get("method"))
