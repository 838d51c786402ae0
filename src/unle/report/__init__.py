"""One page that tells the story of a run: the question, the answer, and whether to believe it."""

from unle.report.page import write_report

__all__ = ["write_report"]
