"""One page that tells the story of a run: the question, the answer, and whether to believe it."""

from unle.report.figures import Picture, picture
from unle.report.page import fill_page, write_report

__all__ = ["Picture", "fill_page", "picture", "write_report"]
