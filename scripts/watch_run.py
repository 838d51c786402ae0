"""Run a command on a terminal of its own, and report what a person would have seen of it.

    python scripts/watch_run.py unle run two_moons --observation 1 --out /tmp/run

Printed are the seconds until the first line, the longest stretches without a change on the screen and what stood on
the screen meanwhile, and the wall clock beside the total that the command prints.  On a machine that is busy with other
things the wall clock says little: compare it with the processor time.
"""

import argparse
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLUMNS, ROWS = 100, 40
STRETCHES = 5  # that are listed


def watch(command: list[str], *, show: bool = False) -> tuple[list[tuple[float, str]], float, int]:
    """Return what the command wrote and when, the wall clock of its process, and its exit status."""
    start = time.monotonic()
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    written: list[tuple[float, str]] = []
    while True:
        try:
            content = os.read(terminal, 1 << 16)
        except OSError:  # the terminal is closed
            break
        if not content:
            break
        written.append((time.monotonic() - start, ESCAPES.sub("", content.decode(errors="replace"))))
        if show:
            print(f"{written[-1][0]:8.2f} {written[-1][1]!r}", flush=True)
    _, status, used = os.wait4(child, 0)
    print(f"load of the machine {os.getloadavg()[0]:.1f}; processor time {used.ru_utime + used.ru_stime:.1f} s")
    return written, time.monotonic() - start, os.waitstatus_to_exitcode(status)


def report(written: list[tuple[float, str]], wall: float) -> dict[str, float]:
    """Print the numbers, and return them."""
    seen = [(at, text.strip()) for at, text in written if text.strip()]
    times = [0.0, *(at for at, _ in seen), wall]
    texts = ["(nothing)", *(text for _, text in seen)]
    gaps = sorted(((b - a, a, text) for a, b, text in zip(times, times[1:], texts, strict=False)), reverse=True)
    print(f"first line after {times[1]:.2f} s: {texts[1].splitlines()[0]}")
    for length, at, text in gaps[:STRETCHES]:
        print(f"{length:6.2f} s without a change from {at:7.2f} s on, at: {text.splitlines()[-1].strip()[:COLUMNS]}")
    numbers = {"first_line": times[1], "longest": gaps[0][0], "wall": wall}
    totals = re.findall(r"in all ([0-9.]+) s", "".join(text for _, text in written))
    if totals:
        numbers["printed"] = float(totals[-1])
        print(f"printed total {totals[-1]} s, wall clock {wall:.1f} s")
    return numbers


def main() -> None:
    """Run the command of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parser.add_argument("--show", action="store_true", help="Print everything that the command wrote, with its time.")
    arguments = parser.parse_args()
    written, wall, status = watch(arguments.command, show=arguments.show)
    report(written, wall)
    sys.exit(status)


if __name__ == "__main__":
    main()
