"""How a command speaks: results on standard output, everything else on standard error, and a plain ending.

A command that cannot do what was asked ends with one sentence and a non-zero exit status; a traceback means a bug.

Ctrl-C is answered at once, also while the main thread is in a compiler and hears of no signal.  Python hands a signal
to the main thread between two of its instructions, and a compiler is one long instruction. The signal also writes a
byte to a socket. A thread waits for that byte and answers.

An exception in a callback of Python's garbage collector is printed and forgotten, also `KeyboardInterrupt`: it is
raised once more, outside of the callback.
"""

import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer

from unle.errors import InputError, UnleError, UnleWarning
from unle.progress import close_display, present_activity, progress

STOPPED = 130  # the exit status that shells give to Ctrl-C
STOPS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}  # a cluster's scheduler sends the second
SECONDS_TO_RAISE_AGAIN = 0.05  # an interrupt that was lost in a callback
SECONDS_TO_REACT = 1.0  # for the main thread, before it counts as busy in a compiler
FILE_WIDTH = 120  # columns of a table that goes to a file or a pipe
PARAGRAPH = "\n\n"  # before the details of an error, such as the traceback of a user's simulator
CLOCK: dict[str, float] = {}  # when the process started, if the command line is all that it does


@contextmanager
def answering_interrupts(say: Callable[[str], None], saved: Callable[[], str]) -> Iterator[None]:
    """Answer Ctrl-C inside the block: with a sentence at once, then by `KeyboardInterrupt` in the main thread.

    SIGTERM, with which schedulers end jobs, is answered likewise.  A process that compiles has nothing to lose and ends
    without waiting; so does one that gets Ctrl-C twice.  `saved` says what of the work is kept, as the second half of a
    sentence.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reached, lost = threading.Event(), threading.Event()
    reader, writer = socket.socketpair()
    writer.settimeout(0.0)

    def raise_interrupt(*_: object) -> None:
        reached.set()
        raise KeyboardInterrupt

    def raise_again(ignored: Any) -> None:
        if ignored.exc_type is KeyboardInterrupt:
            lost.set()
            main = threading.main_thread().ident
            threading.Timer(SECONDS_TO_RAISE_AGAIN, signal.pthread_kill, [main, signal.SIGINT]).start()
        else:
            hook_before(ignored)

    hook_before, sys.unraisablehook = sys.unraisablehook, raise_again
    before = {number: signal.signal(number, raise_interrupt) for number in STOPS}
    fd_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_answer, args=(reader, reached, lost, say, saved), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook_before
        writer.close()  # ends the thread


def _answer(
    reader: socket.socket,
    reached: threading.Event,
    lost: threading.Event,
    say: Callable[[str], None],
    saved: Callable[[], str],
) -> None:
    interrupts = 0
    with reader:
        while received := reader.recv(1):
            name = STOPS.get(signal.Signals(received[0]))
            if name is None:
                continue
            if interrupts and lost.is_set():  # the same interrupt, raised again; the first is always answered
                lost.clear()
                continue
            interrupts += 1
            if interrupts == 1:
                doing = present_activity()
                say(f"{name}: stopping{f' ({doing})' if doing else ''}; once more to stop without waiting.")
                if reached.wait(SECONDS_TO_REACT) or not present_activity():
                    continue
            close_display()
            say(f"stopped; {saved()}")
            os._exit(STOPPED)


def say(text: str) -> None:
    """Write one line to standard error: what a person wants to know and a program should not have to skip."""
    typer.echo(text, err=True)


def refuse_missing(*files: str | Path | None) -> None:
    """Refuse files that are not there, before anything takes time; a number is an observation of a task."""
    for file in files:
        if file is not None and not str(file).isdigit() and not Path(file).exists():
            folder = "" if Path(file).is_absolute() else f" in {Path.cwd()}"
            raise InputError(f"expected a file that exists; there is no file {file}{folder}.")


def counted(number: int, thing: str) -> str:
    """Return a number of things in words.

    Example:
        >>> counted(1, "picture"), counted(2, "picture")
        ('1 picture', '2 pictures')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


@contextmanager
def plain_ending(saved: Callable[[], str] = lambda: "nothing was written.") -> Iterator[None]:
    """Turn errors, warnings and Ctrl-C inside the block into one sentence each.

    `saved` is called after Ctrl-C; it says what of the work is kept, as the second half of a sentence.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnleWarning)
        warnings.showwarning = _one_line_each(warnings.showwarning)
        try:
            with answering_interrupts(say, saved):
                yield
        except KeyboardInterrupt:
            say(f"stopped; {saved()}")
            raise typer.Exit(STOPPED) from None
        except BrokenPipeError:  # the reader of our output has gone, as in `unle tasks | head -1`
            raise
        except (UnleError, OSError) as error:
            sentence, _, details = str(error).partition(PARAGRAPH)
            say(f"error: {' '.join(sentence.split())}")
            if details:
                say(details)
            raise typer.Exit(1) from None


def _one_line_each(otherwise: Callable[..., None]) -> Callable[..., None]:
    seen: set[str] = set()

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        text = " ".join(str(message).split())
        if not issubclass(category, UnleWarning):
            otherwise(message, category, filename, lineno, file, line)
        elif text not in seen:
            seen.add(text)
            say(f"warning: {text}")

    return show


class Stages:
    """The seconds that each stage of a command took, in the order of the stages."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._made = time.perf_counter()
        self._start = CLOCK.get("start", self._made)

    @contextmanager
    def stage(self, name: str, title: str | None = None) -> Iterator[None]:
        """Add the time of the block to the stage `name`, and show the title while it lasts."""
        start = time.perf_counter()
        try:
            with nullcontext() if title is None else progress(title):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def line(self) -> str:
        """Return one line for people: `load 3.1 s, simulate 0.4 s, fit 61.0 s, in all 64.6 s`.

        The last number is the time since the process started, whatever it did.
        """
        load = self._made - self._start
        named = ({"load": load} if load > 0 else {}) | self.seconds
        parts = [f"{name} {seconds:.1f} s" for name, seconds in named.items()]
        return ", ".join([*parts, f"in all {time.perf_counter() - self._start:.1f} s"])


def start_clock() -> None:
    """Count the time of this command from the start of the process, where the system knows it."""
    now = time.perf_counter()
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        CLOCK["start"] = now - (time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, ValueError, AttributeError, IndexError):  # no Linux
        CLOCK["start"] = now


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_from: int = 1) -> None:
    """Print a table to standard output; columns from `numbers_from` on are set flush right."""
    import sys

    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(escape(column), justify="right" if i >= numbers_from else "left", no_wrap=i == 0)
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)
