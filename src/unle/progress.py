"""Progress that a person can read: rows that keep moving on a terminal, a few plain lines elsewhere.

Everything is written to the standard error stream, so that what a program prints on standard output stays clean. Bars
may be nested: a bar opened inside another one is drawn below it, and vanishes when it ends. A clock runs beside every
bar, and the word "compiling" while a program is compiled. The time that is left is shown once steps are steady.

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
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "AbstractBar",
    "Pace",
    "activity",
    "close_display",
    "enabled",
    "present_activity",
    "progress",
    "silence",
    "tell",
]

SECONDS_BETWEEN_LINES = 5.0  # short enough for a person who watches; of long stages, a tenth of their time
BRIEF = 1.0  # seconds; what is neither counted nor longer needs no line
SECONDS_BETWEEN_LOOKS = 0.5  # of the thread that writes a line where nothing has advanced

_SWITCH = {"on": True}
_ACTIVITY = {"word": ""}
_OPEN: list["_Bar"] = []  # outermost first
_LIVE: list[Any] = []  # the one live display of the process, while a bar is open: rich allows only one
_WATCHED = {"on": False}  # whether the thread that writes lines where nothing has advanced is there
_LOCK = threading.RLock()


def enabled(on: bool) -> None:  # noqa: FBT001  (the boolean is the whole message)
    """Switch progress output on or off for this process, as `UNLE_PROGRESS=0` in the environment does."""
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
    if _shown():
        print(sentence, file=sys.stderr, flush=True)


def activity(word: str) -> None:
    """Say in one word what the main thread does now, such as compiling; an empty word ends it."""
    if threading.current_thread() is threading.main_thread():
        _ACTIVITY["word"] = word


def present_activity() -> str:
    """Return the word of the moment."""
    return _ACTIVITY["word"]


def close_display() -> None:
    """Give the terminal back as it was, when the process is about to end."""
    while _LIVE:
        _LIVE.pop().stop()


def _shown() -> bool:
    return _SWITCH["on"] and os.environ.get("UNLE_PROGRESS") != "0"


class AbstractBar(abc.ABC):
    """What `progress` hands out."""

    @abc.abstractmethod
    def advance(self, k: int = 1, *, note: str = "") -> None:
        """Report that `k` more units are done; `note` is a few words beside the bar, empty keeps the last ones."""


@contextmanager
def progress(
    title: str, *, total: int | None = None, at_most: bool = False, steady: bool = True, few: bool = False
) -> Iterator[AbstractBar]:
    """Show the progress of the block; may also decorate a function.

    Args:
        title: what is being done, a few words.
        total: how many units there are; None when it is not known.
        at_most: whether the block may end before all of them are done.
        steady: False if units take times so different that nothing can be said about what is left.
        few: whether units are few and long, so that the second one must do to tell what is left.

    Yields:
        A bar with `advance(k, note="...")`.
    """
    if not _shown():
        yield _SilentBar()
        return
    if _OPEN and _OPEN[-1].title == title and total is None:  # it is on the screen already
        yield _OPEN[-1]
        return
    kind = _RichBar if sys.stderr.isatty() else _PlainBar
    bar = kind(title, total, at_most=at_most, steady=steady, few=few)
    with _LOCK:
        bar.open()
        _OPEN.append(bar)
    word = "done"
    try:
        yield bar
    except BaseException:
        word = "stopped"
        raise
    finally:
        activity("")
        with _LOCK:
            _OPEN.remove(bar)
            bar.close(word)


class Pace:
    """The time that is left, where it can be told: after three steps of about the same length, or one if they are few.

    The first step is left out, because it includes compiling. Steps shorter than a moment are counted together.
    """

    SHORTEST = 0.3  # seconds of a step
    STEPS = 3
    LATEST = 8  # steps that count
    UNEVEN = 3.0  # ratio of the longest to the shortest step, beyond which nothing is said

    def __init__(self, start: float, *, few: bool = False):
        self._last = start
        self._needed = 1 if few else self.STEPS
        self._units = 0
        self._steps: list[float] = []  # seconds for each unit

    def step(self, now: float, units: int) -> None:
        """Take note that so many more units are done."""
        self._units += units
        if self._units and now - self._last >= self.SHORTEST:
            self._steps.append((now - self._last) / self._units)
            self._last, self._units = now, 0

    def seconds_left(self, units: int) -> float | None:
        """Return the time for so many further units; None if it cannot be told."""
        steps = self._steps[1:][-self.LATEST :]
        if len(steps) < self._needed or max(steps) > self.UNEVEN * min(steps):
            return None
        return units * sum(steps) / len(steps)


class _SilentBar(AbstractBar):
    def advance(self, k: int = 1, *, note: str = "") -> None:
        pass


class _Bar(AbstractBar):
    def __init__(self, title: str, total: int | None, *, at_most: bool, steady: bool, few: bool):
        self.title, self.total = title, total
        self.done, self.note = 0, ""
        self.start = time.monotonic()
        self._at_most = "at most" if at_most else "about"
        self._pace = Pace(self.start, few=few) if steady else None

    def advance(self, k: int = 1, *, note: str = "") -> None:
        self.done += k
        self.note = note or self.note
        if self._pace is not None:
            self._pace.step(time.monotonic(), k)
        self.show()

    @property
    def left(self) -> str:
        """The time left in words; empty if nothing can be said about it."""
        if self._pace is None or not self.total or self.done >= self.total:
            return ""
        seconds = self._pace.seconds_left(self.total - self.done)
        return "" if seconds is None else f"{self._at_most} {_span(seconds)} left"

    @property
    def words(self) -> str:
        """What is said beside the bar: what the process does if this is its innermost bar, or the last note."""
        return present_activity() if _OPEN and _OPEN[-1] is self and present_activity() else self.note

    @abc.abstractmethod
    def open(self) -> None: ...

    @abc.abstractmethod
    def show(self) -> None: ...

    @abc.abstractmethod
    def close(self, word: str) -> None: ...


class _PlainBar(_Bar):
    """Lines such as `Training: 400/2000 (20 %) after 12 s, about 48 s left, loss 1.31`."""

    def open(self) -> None:
        self._last_line, self._lines = self.start, 0
        self._title = ": ".join([bar.title for bar in _OPEN] + [self.title])
        if not _WATCHED["on"]:
            _WATCHED["on"] = True
            threading.Thread(target=_watch, daemon=True).start()

    def show(self) -> None:
        now = time.monotonic()
        if now - self._last_line >= max(SECONDS_BETWEEN_LINES, 0.1 * (now - self.start)):
            self._last_line = now
            self._write("")

    def close(self, word: str) -> None:
        is_brief = time.monotonic() - self.start < BRIEF
        unseen = not (self.done or self._lines) and (self.total is None or word == "stopped")
        if not (is_brief and unseen):
            self._write(f" {word}")

    def _write(self, word: str) -> None:
        self._lines += 1
        count = f" {self.done}" if self.done else ""
        if self.total:
            count = f" {self.done}/{self.total} ({100 * self.done / self.total:.0f} %)"
        seconds = time.monotonic() - self.start
        elapsed = f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
        further = "".join(f", {part}" for part in ("" if word else self.left, self.words) if part)
        print(f"{self._title}:{count}{word} after {elapsed}{further}", file=sys.stderr, flush=True)


def _watch() -> None:
    """Write a line for the innermost bar where nothing has advanced for a while."""
    while True:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        with _LOCK:
            if not _OPEN:
                _WATCHED["on"] = False
                return
            if isinstance(_OPEN[-1], _PlainBar):
                _OPEN[-1].show()


class _RichBar(_Bar):
    """A row of the live display, which a thread of its own draws ten times a second."""

    def open(self) -> None:
        if not _LIVE:
            _LIVE.append(_display())
            _LIVE[0].start()
        self._task = _LIVE[0].add_task(self.title, total=self.total, bar=self)

    def show(self) -> None:
        if _LIVE:
            _LIVE[0].update(self._task, completed=self.done)

    def close(self, word: str) -> None:
        if not _LIVE:
            return
        if _OPEN:  # a nested row vanishes; the outermost stays on the screen
            _LIVE[0].remove_task(self._task)
            return
        if word == "done" and self.total is None:
            _LIVE[0].update(self._task, total=1, completed=1)
        _LIVE.pop().stop()


def _display() -> Any:
    """Return a live display for rows with a name, a bar, a count, a clock, the time left and a note."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Words(ProgressColumn):
        max_refresh = None

        def render(self, task: Any) -> Text:
            bar = task.fields["bar"]
            count = f"{bar.done:,}/{bar.total:,}" if bar.total else ""
            return Text("  ".join(part for part in (count, bar.left, bar.words) if part))

    return Progress(
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        Words(table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=Console(stderr=True),
    )


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
