"""One look for all figures: colours that colour-blind readers can tell apart, thin lines, no clutter.

The colours are Okabe and Ito's.  Densities go from clear to dark blue, by lightness alone: they look right on white
paper and on a dark page.  `as_svg` turns a figure into SVG text for a page: real text, colours that follow the page, no
name that another figure has too.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

LEARNED = "#0072B2"  # blue: what was inferred
EXACT = "#D55E00"  # vermilion: what it is compared with
TRUTH = "#000000"  # black: known values
THIRD = "#009E73"  # green, for a third curve
FAINT = "#999999"  # grey: reference lines and bands
DENSITY = "Blues"

_SETTINGS = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "figure.dpi": 200,
    "figure.facecolor": "white",
}
# Colours of the style become variables of the page, which a dark page can set lighter.
VARIABLES = {LEARNED: "--learned", EXACT: "--exact", THIRD: "--third", FAINT: "--faint", "#000000": "--ink"}


@contextmanager
def style() -> Iterator[None]:
    """Use the look inside the block, and leave the user's own settings as they were."""
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):  # pyright: ignore[reportArgumentType]  # the stubs want literal keys
        yield


@contextmanager
def new_figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Iterator[Any]:
    """Give a figure of so many inches in this look, and lay it out at the end of the block.

    The look also belongs to what is drawn last, such as the ticks: hence the layout before the block ends.
    """
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(width, height), layout=layout)
        yield figure
        figure.draw_without_rendering()


def clear_to(colour: str):
    """Return a colour map from transparent to a colour."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    red, green, blue = to_rgb(colour)
    return LinearSegmentedColormap.from_list("clear", [(red, green, blue, 0.0), (red, green, blue, 1.0)])


def plain_logarithm(axis: Any) -> None:
    """Write 0.5, 1, 2, 5, 10 on a logarithmic axis, and nothing between them."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def as_svg(figure: Any, name: str, *, dpi: int = 110) -> str:
    """Return a figure as one `<svg>` element to be put into HTML.

    The name is short and unique on the page; it begins every id.  There are no width and height, so that the page
    decides the size; `--natural` is its own width.
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
