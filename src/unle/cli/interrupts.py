"""Ctrl-C is answered at once, also while the main thread is in a compiler and hears of no signal.

Python hands a signal to the main thread between two of its instructions, and a compiler is one long instruction. The
signal also writes a byte to a socket. A thread waits for that byte and answers.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unle.progress import close_display, present_activity

STOPPED = 130  # the exit status that shells give to Ctrl-C
SECONDS_TO_REACT = 1.0  # for the main thread, before it counts as busy in a compiler


@contextmanager
def answering_interrupts(say: Callable[[str], None], saved: Callable[[], str]) -> Iterator[None]:
    """Answer Ctrl-C inside the block: with a sentence at once, then by `KeyboardInterrupt` in the main thread.

    A process that compiles has nothing to lose and ends without waiting; so does one that gets Ctrl-C twice.

    Args:
        say: writes a sentence.
        saved: says what of the work is kept, as the second half of a sentence.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reached = threading.Event()
    reader, writer = socket.socketpair()
    writer.settimeout(0.0)

    def raise_interrupt(*_: object) -> None:
        reached.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, raise_interrupt)
    fd_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_answer, args=(reader, reached, say, saved), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd_before)
        signal.signal(signal.SIGINT, before)
        writer.close()  # ends the thread


def _answer(
    reader: socket.socket, reached: threading.Event, say: Callable[[str], None], saved: Callable[[], str]
) -> None:
    interrupts = 0
    with reader:
        while received := reader.recv(1):
            if received[0] != signal.SIGINT:
                continue
            interrupts += 1
            if interrupts == 1:
                doing = present_activity()
                say(f"Ctrl-C: stopping{f' ({doing})' if doing else ''}; once more to stop without waiting.")
                if reached.wait(SECONDS_TO_REACT) or not present_activity():
                    continue
            close_display()
            say(f"stopped; {saved()}")
            os._exit(STOPPED)
