"""One page that tells the story of a run: the question, the answer, and whether to believe it."""

from unle.report.contents import Picture, fill_page, picture, write_report

__all__ = ["Picture", "fill_page", "picture", "write_report"]
