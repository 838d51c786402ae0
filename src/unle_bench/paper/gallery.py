"""A page with the paper's figures, in the look of a report, and every picture as a file beside it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from unle.report import Picture, fill_page, picture
from unle.store import write_atomically
from unle_bench.paper.figures import PaperFigure

TITLE = "The paper's figures"
INTRODUCTION = (
    "Drawn from the rows of one results file and a run of the pyloric network, nothing else. Where something is "
    "missing, the page gives the command that makes it; draw it by the same command again."
)


def write_gallery(
    folder: Path, figures: Sequence[PaperFigure], *, source: str, table: dict[str, Any] | None = None
) -> Path:
    """Write `index.html`, which needs no other file, and every picture as PNG and SVG.

    Args:
        folder: for all of them.
        figures: the content of the page.
        source: where the numbers come from.
        table: "heads" and "rows" of a table at the end.

    Returns:
        The path of the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sections = [
        {
            "name": figure.name,
            "title": figure.title,
            "text": figure.text,
            "pictures": _save(figure, folder),
            "command": figure.command,
            "why": figure.why,
        }
        for figure in figures
    ]
    values = {"title": TITLE, "introduction": INTRODUCTION, "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}
    values |= {"source": source, "table": table, "sections": sections}
    template = resources.files("unle_bench.paper").joinpath("gallery.html").read_text(encoding="utf-8")
    write_atomically(folder / "index.html", fill_page(template, values).encode())
    return folder / "index.html"


def _save(figure: PaperFigure, folder: Path) -> list[Picture]:
    pictures = []
    for k, drawn in enumerate(figure.drawn, start=1):
        name = figure.name if len(figure.drawn) == 1 else f"{figure.name}-{k}"
        for suffix in ("png", "svg"):
            drawn.figure.savefig(folder / f"{name}.{suffix}")
        pictures.append(picture(name, drawn.figure, drawn.caption, drawn.alt))
    return pictures
