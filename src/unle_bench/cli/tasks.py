"""`unle tasks`: what is built in."""

import json
from typing import Annotated, Any

import typer

from unle.cli import plain_ending, show_table

EXAMPLE = "Example:  unle tasks --json"


def tasks(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,  # noqa: FBT002
) -> None:
    """List the built-in tasks: problems whose exact posterior is known, and one from a living animal."""
    with plain_ending():
        from unle_bench import TASKS

        records = [
            {
                "name": task.name,
                "dim_theta": task.dim_theta,
                "dim_x": task.dim_x,
                "prior": _describe(task.prior.spec()["blocks"]),
                "parameters": list(task.prior.names),
                "description": task.description,
                "observations": task.observation_source,
            }
            for task in TASKS.values()
        ]
        if as_json:
            typer.echo(json.dumps(records, indent=2))
            return
        rows = [
            [r["name"], str(r["dim_theta"]), str(r["dim_x"]), r["prior"], r["observations"], r["description"]]
            for r in records
        ]
        columns = ["name", "theta", "x", "prior", "x_o", "description"]
        show_table("Built-in tasks", columns, rows, numbers_from=len(columns))
        typer.echo(
            "theta, x: dimensions.  x_o: ten observations each, official (the benchmark's) or our own; or one recorded."
        )


def _describe(blocks: list[dict[str, Any]]) -> str:
    """Return `Uniform(low -1, high 1)` and the like; values that differ between parameters are left out."""
    return ", ".join(map(_describe_one, blocks))


def _describe_one(block: dict[str, Any]) -> str:
    while "base_dist" in block["arguments"]:
        block = block["arguments"]["base_dist"]
    parts = []
    for name, value in block["arguments"].items():
        values = value if isinstance(value, list) else [value]
        if all(isinstance(v, int | float) for v in values) and len(set(values)) == 1:
            parts.append(f"{name} {values[0]:g}")
    return f"{block['family']}({', '.join(parts)})" if parts else block["family"]
