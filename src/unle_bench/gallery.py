"""A page of figures with headings: the same look as a report, for figures that belong to no single run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from unle.report import Picture, fill_page
from unle.store import write_atomically


@dataclass(frozen=True)
class Chapter:
    """A heading, a sentence, pictures, a command that makes what is missing, and words for what that is."""

    name: str
    title: str
    text: str
    pictures: Sequence[Picture] = field(default_factory=list)
    command: str | None = None
    why: str = "some is missing"


def write_gallery(
    path: Path,
    chapters: Sequence[Chapter],
    *,
    title: str,
    introduction: str,
    when: str,
    source: str,
    table: dict[str, Any] | None = None,
) -> Path:
    """Write one self-contained HTML page.

    Args:
        path: of the page.
        chapters: its content.
        title: of the page.
        introduction: one sentence below it.
        when: the date, as text.
        source: where the numbers come from.
        table: "heads" and "rows" of a table at the end.
    """
    values = {"title": title, "introduction": introduction, "when": when, "source": source, "table": table}
    template = resources.files("unle_bench").joinpath("gallery.html").read_text(encoding="utf-8")
    write_atomically(path, fill_page(template, values | {"sections": chapters}).encode())
    return path
