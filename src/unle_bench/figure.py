"""What a figure of the paper is: pictures, words, and the command that makes what is missing."""

from dataclasses import dataclass, field
from typing import Any

MISSING = "rows are missing"


@dataclass(frozen=True)
class Drawn:
    """One picture: its figure, what is below it, and what it shows in a sentence."""

    figure: Any
    caption: str
    alt: str


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper, or of its appendix.

    Attributes:
        name: for `--only` and file names.
        title: its heading.
        text: what to look for.
        drawn: pictures, as far as rows exist.
        missing: (task, method, budget) without rows.
        how: the command that makes what is missing, where it is not a benchmark.
        why: what is missing, as the first half of a sentence that ends with the command.
    """

    name: str
    title: str
    text: str
    drawn: list[Drawn] = field(default_factory=list)
    missing: list[tuple[str, str, int]] = field(default_factory=list)
    how: str | None = None
    why: str = MISSING

    @property
    def command(self) -> str | None:
        """The command that makes what is missing, or None."""
        if not self.missing:
            return self.how
        names = [",".join(dict.fromkeys(str(key[k]) for key in self.missing)) for k in range(3)]
        return f"unle bench --tasks {names[0]} --methods {names[1]} --budgets {names[2]}"
