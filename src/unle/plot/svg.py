"""A figure as SVG text for a page: real text, colours that follow the page, no name that another figure has too."""

import io
import re
from typing import Any

from unle.plot.style import EXACT, FAINT, LEARNED, THIRD

# Colours of the style become variables of the page, which a dark page can set lighter.
VARIABLES = {LEARNED: "--learned", EXACT: "--exact", THIRD: "--third", FAINT: "--faint", "#000000": "--ink"}


def as_svg(figure: Any, name: str, *, dpi: int = 110) -> str:
    """Return a figure as one `<svg>` element to be put into HTML.

    Args:
        figure: a matplotlib figure.
        name: short and unique on the page; begins every id.
        dpi: of the parts that are pixels.

    Returns:
        The element, without width and height, so that the page decides its size; `--natural` is its own width.
    """
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        buffer = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", dpi=dpi, transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    for colour, variable in VARIABLES.items():
        text = re.sub(re.escape(colour), f"var({variable})", text, flags=re.IGNORECASE)
    width = float(re.search(r'\bwidth="([\d.]+)pt"', text).group(1)) * 96 / 72  # pyright: ignore[reportOptionalMemberAccess]
    return re.sub(
        r'^<svg\b([^>]*?) width="[^"]+"([^>]*?)>',
        lambda found: _head(found.group(1) + found.group(2), width),
        re.sub(r'^(<svg\b[^>]*?) height="[^"]+"', r"\1", text, count=1),
        count=1,
    )


def _head(attributes: str, width: float) -> str:
    return f'<svg{attributes} style="--natural: {width:.0f}px" aria-hidden="true" focusable="false">'
