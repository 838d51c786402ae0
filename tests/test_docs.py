"""The documentation names what exists."""

import re
from pathlib import Path

import unle

DOCS = Path(__file__).parents[1] / "docs"


def test_every_public_name_is_on_the_api_page():
    page = (DOCS / "api.md").read_text()
    assert [name for name in unle.__all__ if name not in page] == []


def test_python_blocks_compile():
    for path in DOCS.glob("*.md"):
        for block in re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL):
            compile(block, str(path), "exec")


def test_links_between_pages_lead_somewhere():
    for path in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
