"""The words of a report: settings, priors and commands as people write them."""

import shlex
from collections.abc import Mapping
from typing import Any

NUMBERS_SHOWN = 60  # coordinates of an observation that are written out


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


def command(settings: Mapping[str, Any], directory: str) -> str:
    """Return the command that makes the run again; its observation is the file that the page offers."""
    words = ["unle", "run", str(settings.get("model_path") or settings.get("model", "MODEL"))]
    for name in ("method", "budget", "rounds", "draws", "seed", "members", "iterations"):
        if settings.get(name) is not None:
            words += [f"--{name}", str(settings[name])]
    if settings.get("x_o") is not None:
        words += ["--observation", "x_o.json"]
    return shlex.join([*words, "--out", directory])


def setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings as (name, value), without those that have a place of their own on the page."""
    rows = []
    for name, value in settings.items():
        if name not in ("prior", "x_o") and not (name == "model_sha256" and value is None):
            rows.append((name.replace("_", " "), "default" if value is None else str(value)))
    return rows


def short_number(value: float) -> str:
    """Return four digits, as plain as they can be: 0.1234, 12340, 1.234e-07."""
    return f"{value:.4g}"
