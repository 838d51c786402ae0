"""The command line: `unle VERB ...`.

In come the words that a user typed, out go lines on the terminal, files in a run directory and an exit status. The
verbs parse, call and print; the mathematics is elsewhere. Heavy imports stay inside functions: `unle --help` must not
wait for a compiler.

Reading order: `entry` puts the verbs together; `run` and `inference` do the work of the main one; the other verbs have
one file each; `console` is how all of them speak. The verbs of the benchmark come from the package `unle_bench`.
"""

import os
import sys
from typing import Any

from unle.cli.check import require_fit
from unle.cli.console import STOPPED, Stages, counted, plain_ending, say, show_table, start_clock

__all__ = ["Stages", "app", "counted", "load_posterior", "main", "plain_ending", "require_fit", "say", "show_table"]


def main() -> None:
    """Run the command line; the entry point of the `unle` script."""
    start_clock()
    try:
        from unle.cli.entry import app

        app(prog_name="unle")
    except KeyboardInterrupt:  # before any verb had begun
        say("stopped; nothing was written.")
        _end_at_once(STOPPED)
    except SystemExit as end:
        if "jax" in sys.modules and isinstance(end.code, int):
            _end_at_once(end.code)
        raise


def _end_at_once(status: int) -> None:
    """End the process: a compiler may be at work in another thread, and JAX takes a second to be taken down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def __getattr__(name: str) -> Any:
    # Later than the module itself: the verbs of `unle_bench` import it, and a fitted posterior needs jax.
    if name == "app":
        from unle.cli.entry import app

        return app
    if name == "load_posterior":
        from unle.cli.inference import load_posterior

        return load_posterior
    raise AttributeError(f"module 'unle.cli' has no attribute {name!r}")
