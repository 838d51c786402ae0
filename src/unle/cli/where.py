"""Where simulations run, as said on the command line: here, in several processes, or on a Dask cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Simulate in so many processes of this machine.")]
Dask = Annotated[
    str | None,
    typer.Option("--dask", metavar="ADDRESS", help="Simulate on the cluster of this Dask scheduler."),
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0.001, help="Seconds after which one simulation is given up.")
]


@dataclass(frozen=True)
class Where:
    """What does the simulating; it has no influence on the result.

    Attributes:
        workers: number of processes of this machine.
        dask: address of a scheduler.
    """

    workers: int | None = None
    dask: str | None = None

    @contextmanager
    def arguments(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments for `unle.simulate`; the connection to a cluster lasts as long as the block."""
        from unle.errors import InputError

        if self.workers is not None and self.dask is not None:
            raise InputError("expected either --workers or --dask; got both.")
        if self.dask is None:
            yield {"workers": self.workers}
            return
        from unle.simulators import dask_executor

        with dask_executor(self.dask) as executor:
            yield {"executor": executor}
