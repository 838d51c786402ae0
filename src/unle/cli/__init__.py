"""The command line: `unle VERB ...`.

In come the words that a user typed, out go lines on the terminal, files in a run directory and an exit status. The
verbs parse, call and print; the mathematics is elsewhere. Heavy imports stay inside functions: `unle --help` must not
wait for a compiler.

Reading order: `entry` puts the verbs together; `run` and `inference` do the work of the main one; the other verbs have
one file each; `console` is how all of them speak. The verbs of the benchmark come from the package `unle_bench`.
"""

from typing import Any

from unle.cli.check import require_fit
from unle.cli.console import Stages, counted, plain_ending, say, show_table

__all__ = ["Stages", "app", "counted", "load_posterior", "main", "plain_ending", "require_fit", "say", "show_table"]


def main() -> None:
    """Run the command line; the entry point of the `unle` script."""
    from unle.cli.entry import app

    app(prog_name="unle")


def __getattr__(name: str) -> Any:
    # Later than the module itself: the verbs of `unle_bench` import it, and a fitted posterior needs jax.
    if name == "app":
        from unle.cli.entry import app

        return app
    if name == "load_posterior":
        from unle.cli.inference import load_posterior

        return load_posterior
    raise AttributeError(f"module 'unle.cli' has no attribute {name!r}")
