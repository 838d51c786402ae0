"""The words of a report: settings, priors and commands as people write them."""

import shlex
from collections.abc import Mapping
from typing import Any

NUMBERS_SHOWN = 60  # coordinates of an observation that are written out
DEFAULTED = ("members", "iterations")  # settings that have a default where they are not given


def prior_rows(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (parameter, distribution) of a prior's description; a block of several shares its line."""
    names = list(spec["names"])
    rows = []
    for block in spec["blocks"]:
        inner = block
        while "base_dist" in inner["arguments"]:
            inner = inner["arguments"]["base_dist"]
        arguments = {key: value for key, value in inner["arguments"].items() if _is_vector(value)}
        length = max((len(value) for value in arguments.values() if isinstance(value, list)), default=1)
        for i in range(length):
            if not names:
                break
            parts = [f"{key} {_entry(value, i):g}" for key, value in arguments.items()]
            rows.append((names.pop(0), f"{inner['family']}({', '.join(parts)})"))
    rows += [(name, "part of a joint distribution") for name in names]
    return rows


def _is_vector(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _entry(value: Any, i: int) -> float:
    return float(value[min(i, len(value) - 1)] if isinstance(value, list) else value)


OPTIONS = ("method", "budget", "rounds", "posterior", "flow", "draws", "seed")
OPTIONS += ("members", "iterations", "timeout", "memory", "summary")


def command(settings: Mapping[str, Any], directory: str, *, again: bool = True) -> str:
    """Return the command of the run; its observation is the file the page offers.

    Args:
        settings: of the run.
        directory: where it is kept.
        again: make it once more, beside the old one.

    Example:
        >>> command({"model": "model.py", "method": "sunle", "rounds": [500, 250], "seed": 1}, "runs/mine")
        'unle run model.py --method sunle --rounds 500,250 --seed 1 --out runs/mine-again'
    """
    words = ["unle", "run", str(settings.get("model", "MODEL"))]
    brought = settings.get("simulations_sha256") is not None
    for name in OPTIONS:
        value = settings.get(name)
        if value is not None and not (brought and name == "budget"):  # as many as were brought
            words += [f"--{name}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    words += [f"--{name}" for name in ("sliced", "paper") if settings.get(name)]
    for name in ("every_round", "repetition"):
        if settings.get(name) is not None:
            option = name.replace("_", "-")
            words.append(f"--{option}" if settings[name] else f"--no-{option}")
    if brought:
        words += ["--simulations", directory]
    if settings.get("x_o") is not None:
        words += ["--observation", "x_o.json"]
    return shlex.join([*words, "--out", directory.rstrip("/") + ("-again" if again else "")])


def setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings as (name, value), without those that do not apply or have a place of their own."""
    names = {"model_sha256": "check sum of the model", "simulations_sha256": "check sum of the simulations"}
    rows = []
    for name, value in settings.items():
        if name in ("prior", "x_o") or (value is None and name not in DEFAULTED):
            continue
        text = "default" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        rows.append((names.get(name, name.replace("_", " ")), text))
    return rows


def short_number(value: float) -> str:
    """Return four digits, as plain as they can be: 0.1234, 12340, 1.234e-07."""
    return f"{value:.4g}"
