"""Progress that a person can read: a bar on a terminal, a few plain lines elsewhere.

Everything is written to the standard error stream, so that what a program prints on standard output
stays clean. Bars may be nested: a bar opened inside another one is drawn below it.

Example:
    >>> from unle.progress import enabled, progress
    >>> enabled(False)  # or set the environment variable UNLE_PROGRESS=0
    >>> with progress("Training", total=3) as bar:
    ...     for step in range(3):
    ...         bar.advance(1, note=f"loss {1 / (step + 1):.2f}")
    >>> enabled(True)
"""

import abc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["AbstractBar", "enabled", "progress", "silence", "tell"]

SECONDS_BETWEEN_LINES = 5.0  # short enough for a person who watches, and long enough for a short log file

_SWITCH = {"on": True}
_OPEN_RICH: list[Any] = []  # the one live display of the process, while a bar is open: rich allows only one


def enabled(on: bool) -> None:  # noqa: FBT001  (the boolean is the whole message)
    """Switch progress output on or off for this process.

    Args:
        on: False silences every bar opened from now on. `UNLE_PROGRESS=0` in the environment does the same.
    """
    _SWITCH["on"] = on


@contextmanager
def silence() -> Iterator[None]:
    """Show no bars inside the block."""
    before = _SWITCH["on"]
    _SWITCH["on"] = False
    try:
        yield
    finally:
        _SWITCH["on"] = before


def tell(sentence: str) -> None:
    """Print one line beside the bars, where these are shown."""
    if _SWITCH["on"] and os.environ.get("UNLE_PROGRESS") != "0":
        print(sentence, file=sys.stderr, flush=True)


class AbstractBar(abc.ABC):
    """What `progress` hands out."""

    @abc.abstractmethod
    def advance(self, k: int = 1, *, note: str = "") -> None:
        """Report that `k` more units are done.

        Args:
            k: the number of units finished since the last call.
            note: a few words shown beside the bar, such as the current loss; empty keeps the last ones.
        """


@contextmanager
def progress(title: str, *, total: int | None = None) -> Iterator[AbstractBar]:
    """Show the progress of the block.

    Args:
        title: what is being done, one or two words.
        total: how many units there are; None when it is not known.

    Yields:
        A bar with `advance(k, note="...")`.
    """
    if not _SWITCH["on"] or os.environ.get("UNLE_PROGRESS") == "0":
        yield _SilentBar()
    elif sys.stderr.isatty():
        with _rich_bar(title, total) as bar:
            yield bar
    else:
        bar = _PlainBar(title, total)
        try:
            yield bar
        except BaseException:
            bar.close("stopped")
            raise
        bar.close("done")


class _SilentBar(AbstractBar):
    def advance(self, k: int = 1, *, note: str = "") -> None:
        pass


class _PlainBar(AbstractBar):
    """Lines such as `Training: 400/2000 (20 %) after 12 s, loss 1.31`."""

    def __init__(self, title: str, total: int | None):
        self._title, self._total = title, total
        self._done, self._note = 0, ""
        self._start = self._last_line = time.monotonic()

    def advance(self, k: int = 1, *, note: str = "") -> None:
        self._done += k
        self._note = note or self._note
        now = time.monotonic()
        if now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._write("")

    def close(self, word: str) -> None:
        self._write(f" {word}")

    def _write(self, word: str) -> None:
        count = f"{self._done}"
        if self._total:
            count += f"/{self._total} ({100 * self._done / self._total:.0f} %)"
        note = f", {self._note}" if self._note else ""
        seconds = time.monotonic() - self._start
        elapsed = f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
        left = ""
        if not word and self._total and self._done:
            left = f", about {seconds * (self._total - self._done) / self._done:.0f} s left"
        print(f"{self._title}: {count}{word} after {elapsed}{left}{note}", file=sys.stderr, flush=True)


class _RichBar(AbstractBar):
    def __init__(self, display: Any, task: Any):
        self._display, self._task = display, task

    def advance(self, k: int = 1, *, note: str = "") -> None:
        extra = {"note": note} if note else {}
        self._display.update(self._task, advance=k, **extra)


@contextmanager
def _rich_bar(title: str, total: int | None) -> Iterator[AbstractBar]:
    if _OPEN_RICH:  # nested: one more row in the display that is already live, removed when its block ends
        display = _OPEN_RICH[0]
        task = display.add_task(title, total=total, note="")
        try:
            yield _RichBar(display, task)
        finally:
            display.remove_task(task)
        return

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    display = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(stderr=True),
    )
    with display:
        _OPEN_RICH.append(display)
        try:
            yield _RichBar(display, display.add_task(title, total=total, note=""))
        finally:
            _OPEN_RICH.clear()
