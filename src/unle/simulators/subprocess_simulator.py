"""Simulators that are programs: any executable, in any language, started once per simulation, without a shell.

Example:
    >>> import sys, numpy as np, unle
    >>> from unle.simulators import simulate_at
    >>> program = "import json, sys; t = json.load(sys.stdin); print(2 * t['theta'][0], t['seed'] % 2)"
    >>> simulator = unle.command([sys.executable, "-c", program])
    >>> simulate_at(simulator, np.array([[1.5]]), seed=0).x.tolist()
    [[3.0, 0.0]]
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unle.errors import InputError
from unle.simulators.piece import WrongResult

LARGEST_SEED = 2**31  # exclusive; every language has such integers
_SHOWN_CHARACTERS = 160  # of a program's error message in a reason
_FIELD = re.compile(r"\{(theta(?:\[\d+\])?|seed|\w+)\}")
_RUNNING: set[int] = set()  # process groups that must end with this process


class CommandFailed(Exception):
    """The program ended with an error, or printed something else than data."""


@dataclass(frozen=True)
class Command:
    """A simulator that starts a program; made by `command`."""

    arguments: tuple[str, ...]  # the program and its arguments, with `{...}` for parameters
    names: tuple[str, ...] = ()  # of the parameters
    template: str | None = None  # text of an input file, with `{...}` for parameters
    input_file: str = "input.txt"  # where that text is written, relative to the working directory
    output_file: str | None = None  # where the program leaves its result; None for its standard output
    timeout: float | None = None  # seconds

    def __call__(self, theta: np.ndarray, rng: np.random.Generator) -> Any:
        """Run the program once, in an empty directory of its own."""
        values, seed = [float(value) for value in theta], int(rng.integers(LARGEST_SEED))
        parameters = dict(zip(self.names, values, strict=False))
        fields = {f"theta[{i}]": value for i, value in enumerate(values)} | parameters | {"seed": seed}
        texts = {name: repr(value) for name, value in fields.items()}  # repr: every digit that matters
        message = json.dumps({"theta": values, "seed": seed, "parameters": parameters})
        with tempfile.TemporaryDirectory(prefix="unle-") as folder:
            if self.template is not None:
                (Path(folder) / self.input_file).write_text(_filled(self.template, texts), encoding="utf-8")
            arguments = [_filled(argument, texts) for argument in self.arguments]
            output = _run(arguments, message, folder, self.timeout)
            if self.output_file is not None:
                try:
                    output = (Path(folder) / self.output_file).read_text(encoding="utf-8")
                except OSError as error:
                    raise CommandFailed(f"the program left no file {self.output_file} ({error.strerror})") from None
        return _parsed(output)


def command(
    arguments: Sequence[str],
    *,
    names: Sequence[str] = (),
    template: str | Path | None = None,
    input_file: str = "input.txt",
    output_file: str | None = None,
    timeout: float | None = None,
) -> Command:
    """Declare a simulator that is a program.

    It is started once for every simulation, in an empty directory of its own, which is removed afterwards. Its
    parameters are in up to three places, of which you use the most convenient:

    * standard input, always: one JSON object {"theta": [...], "seed": 123, "parameters": {"name": value, ...}};
    * its arguments: `{theta[0]}`, `{seed}`, and `{name}` for a parameter of that name, are replaced by numbers;
    * a file, written from `template`, in which the same is replaced.

    It prints its data, or writes them to `output_file`: a JSON number, list or object, or plain numbers separated by
    blanks or commas. Ending with a status other than 0 makes the simulation invalid.

    Args:
        arguments: the program and its arguments. No shell is involved: no quoting is needed, and nothing in a
            parameter can be executed. Give paths in full: the working directory is a new one.
        names: of the parameters, in the order of theta.
        template: text of an input file, or the path of a file with that text.
        input_file: name of the file that is made from the template.
        output_file: name of the file that the program writes.
        timeout: seconds after which the program, with everything it has started, is killed.

    Returns:
        A simulator for `simulate`.

    Raises:
        InputError: a field in braces is unknown, or the template cannot be read.

    Example:
        >>> import sys, unle
        >>> program = [sys.executable, "-c", "print(2 * {theta[0]})"]
        >>> sims = unle.simulate(unle.command(program), unle.Prior.uniform(low=[-1.0], high=[1.0]), 2, seed=0)
        >>> bool(abs(sims.x - 2 * sims.theta).max() < 1e-5)
        True
    """
    if isinstance(arguments, str) or not arguments:
        raise InputError(f"expected a list such as ['./program', '{{theta[0]}}']; got {arguments!r}")
    if isinstance(template, Path):
        try:
            template = template.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"expected a template in {template}; it could not be read: {error.strerror}") from error
    known = {*names, "seed"}
    for name in _FIELD.findall(" ".join(map(str, arguments))):
        if name not in known and not re.fullmatch(r"theta\[\d+\]", name):
            raise InputError(f"expected {{theta[0]}}, {{seed}} or a parameter's name in braces; got {{{name}}}")
    return Command(tuple(map(str, arguments)), tuple(names), template, input_file, output_file, timeout)


def end_running() -> None:
    """Kill all programs that this process has started."""
    for group in list(_RUNNING):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _run(arguments: list[str], text: str, folder: str, timeout: float | None) -> str:
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            start_new_session=True,  # a group of its own, so that it can be killed with its descendants
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise CommandFailed(f"{arguments[0]} could not be started: {error.strerror}") from None
    _RUNNING.add(process.pid)
    try:
        output, error_text = process.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise WrongResult(f"timed out: more than {timeout:g} s") from None  # its message is the reason
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what is left of the group, also after an error
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        _RUNNING.discard(process.pid)
    if process.returncode:
        last = (error_text.strip().split("\n") or [""])[-1][:_SHOWN_CHARACTERS]
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"status {process.returncode}"
        raise CommandFailed(f"the program ended with {how}: {last}")
    return output


def _filled(text: str, values: dict[str, str]) -> str:
    """Replace known fields; other braces, as in JSON or C, stay."""
    return _FIELD.sub(lambda match: values.get(match[1], match[0]), text)


def _parsed(output: str) -> Any:
    """Read JSON, or numbers separated by blanks or commas."""
    try:
        return json.loads(output)
    except ValueError:
        pass
    try:
        return [float(word) for word in output.replace(",", " ").split()]
    except ValueError:
        raise CommandFailed(f"expected numbers or JSON from the program; got {output.strip()[:60]!r}") from None
