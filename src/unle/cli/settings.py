"""What a run is asked to do: the options of `unle run`, kept in `run.json` by the same names; and what simulates.

Nothing heavy is imported here: the help text of every verb needs this file.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, get_type_hints

import typer

from unle.errors import InputError

BUDGET = 1000  # simulations, unless said otherwise
ROUNDS = "10"
OPTIONAL = ("flow", "sliced", "memory", "proposals", "repetition", "paper", "summary")  # older directories lack them
SEQUENTIAL = ("sunle", "snle")  # methods that simulate in rounds around one observation


def whole_number(text: str | int) -> int:
    """Return a whole number of one or more, which may be written 1e4 or 10_000."""
    with suppress(ValueError, OverflowError):
        number = int(text) if isinstance(text, int) or text.replace("_", "").isdigit() else float(text)
        if number == int(number) >= 1:
            return int(number)
    raise typer.BadParameter(f"expected a whole number of 1 or more; got {text}.")


WHOLE_NUMBER: dict[str, Any] = {"parser": whole_number, "metavar": "<int>"}

Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Simulate in so many processes of this machine.")]
Dask = Annotated[
    str | None,
    typer.Option("--dask", metavar="ADDRESS", help="Simulate on the cluster of this Dask scheduler."),
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0.001, help="Seconds after which one simulation is given up.")
]


@dataclass(frozen=True)
class ExecutorOptions:
    """What does the simulating; it has no influence on the result."""

    workers: int | None = None  # number of processes of this machine
    dask: str | None = None  # address of a scheduler

    @contextmanager
    def arguments(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments for `unle.simulate`; the connection to a cluster lasts as long as the block."""
        if self.workers is not None and self.dask is not None:
            raise InputError("expected either --workers or --dask; got both.")
        if self.dask is None:
            yield {"workers": self.workers}
            return
        from unle.simulators import dask_executor

        with dask_executor(self.dask) as executor:
            yield {"executor": executor}


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides the result of a run, but for the model and the data.

    The fields are the options of `unle run`, with their help texts. Where one is None, the method's default holds.
    """

    method: Annotated[
        str, typer.Option(help="How to infer: aunle, or sunle in rounds; baselines nle, snle, smnle.")
    ] = "aunle"
    budget: Annotated[int | None, typer.Option(**WHOLE_NUMBER, help="Number of simulations.  [default: 1000]")] = None
    rounds: Annotated[
        str | None,
        typer.Option(help="Rounds of sunle and snle: how many, or the size of each, as in 500,250,250.  [default: 10]"),
    ] = None
    normaliser: Annotated[
        str | None,
        typer.Option(
            help="What is done about Z(theta): tilted, divi, online or exchange (sunle), divi or exchange (smnle).  "
            "[default: the first]"
        ),
    ] = None
    proposals: Annotated[
        str | None,
        typer.Option(
            help="What proposes parameters in rounds of sunle: energies, bases, or the best of both.  [default: best]"
        ),
    ] = None
    repetition: Annotated[
        bool | None,
        typer.Option(
            "--repetition/--no-repetition",
            help="Look for repeated measurements in x: aunle.  [default: yes]",
            show_default=False,
        ),
    ] = None
    summary: Annotated[
        str | None,
        typer.Option(metavar="learned", help="Learn a summary of long data, and the likelihood of it: aunle, sunle."),
    ] = None
    paper: Annotated[
        bool | None,
        typer.Option("--paper", help="The algorithm of the paper and nothing else: aunle, sunle.", show_default=False),
    ] = None
    flow: Annotated[str | None, typer.Option(help="Flow of nle and snle: maf or spline.  [default: maf]")] = None
    sliced: Annotated[bool | None, typer.Option("--sliced", help="Match slices of scores: smnle.")] = None
    draws: Annotated[int, typer.Option(**WHOLE_NUMBER, help="Number of posterior draws.")] = 10_000
    seed: Annotated[int, typer.Option(min=0, help="Fixes the result.")] = 0
    members: Annotated[int | None, typer.Option(min=1, help="Size of the ensemble, if not the default.")] = None
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Most training steps of each network, if not the defaults.")
    ] = None
    timeout: Timeout = None
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory for the simulations in training, such as 2GB; of more, it sees a part at a time.  "
            "[default: half of the machine's]",
            show_default=False,
        ),
    ] = None

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "RunSettings":
        """Return the settings that `record` wrote."""
        names = [field.name for field in fields(cls) if field.name in record or field.name not in OPTIONAL]
        values: dict[str, Any] = {name: record[name] for name in names}
        sizes = values["rounds"]
        if sizes is not None:
            values["rounds"] = ",".join(map(str, sizes if isinstance(sizes, list) else [sizes]))
        return cls(**values)

    def record(self) -> dict[str, Any]:
        """Return the settings for `run.json`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"rounds": self.sizes, "paper": self.paper or None}
        return {name: value for name, value in values.items() if value is not None or name not in OPTIONAL}

    @property
    def is_sequential(self) -> bool:
        """Whether the method simulates in rounds around one observation."""
        return self.method in SEQUENTIAL

    @property
    def sizes(self) -> int | list[int] | None:
        """The number of rounds, or the sizes of all of them; None if the method has none."""
        if self.rounds is None:
            return None
        try:
            sizes = [int(part) for part in self.rounds.split(",")]
        except ValueError:
            raise InputError(
                f"expected --rounds to be a number, or sizes such as 500,250,250; got {self.rounds!r}."
            ) from None
        return sizes if len(sizes) > 1 else sizes[0]

    @property
    def round_count(self) -> int:
        """How many rounds there are."""
        return len(self.sizes) if isinstance(self.sizes, list) else self.sizes or 1

    def with_defaults(self, simulations: int | None = None) -> "RunSettings":
        """Refuse options that the method would ignore, and fill in what it takes for so many given simulations."""
        method = self.method
        if self.rounds is not None and not self.is_sequential:
            raise InputError(f"expected --rounds with --method sunle or snle only; {method} has one round.")
        if self.normaliser is not None and method not in ("sunle", "smnle"):
            raise InputError(f"expected --normaliser with --method sunle or smnle only; {method} has a normaliser.")
        if self.proposals is not None and method != "sunle":
            raise InputError(f"expected --proposals with --method sunle only; {method} has no energies in rounds.")
        if self.repetition is not None and method != "aunle":
            raise InputError(f"expected --repetition with --method aunle only; {method} looks for none.")
        normaliser = {"sunle": "exchange" if self.paper else "tilted", "smnle": "divi"}.get(method)
        filled = replace(
            self,
            rounds=self.rounds or (ROUNDS if self.is_sequential else None),
            normaliser=self.normaliser or normaliser,
        )
        made = self.budget or (sum(filled.sizes) if isinstance(filled.sizes, list) else BUDGET)
        return replace(filled, budget=made if simulations is None else simulations)


def takes_settings(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the fields of `RunSettings` as options, in place of its argument `settings`."""
    hints = get_type_hints(RunSettings, include_extras=True)
    parameters = []
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.name != "settings":
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        for field in fields(RunSettings):
            option = {"default": field.default, "annotation": hints[field.name]}
            parameters.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, **option))

    @functools.wraps(verb)
    def with_options(**values: Any) -> None:
        settings = RunSettings(**{field.name: values.pop(field.name) for field in fields(RunSettings)})
        verb(settings=settings, **values)

    with_options.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options
