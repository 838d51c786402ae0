"""The page itself: one HTML file that needs nothing else, neither a network nor a second file.

Everything that comes from a run (names of parameters, paths, reasons) is escaped by the template; only the figures,
which are made here, are put in as they are.
"""

from importlib import resources
from pathlib import Path

from unle.diagnose import Findings, short
from unle.posterior import Draws, Posterior
from unle.report.contents import contents
from unle.store import RunDirectory, write_atomically


def write_report(
    run: RunDirectory, posterior: Posterior, draws: Draws | None, findings: Findings, path: Path | None = None
) -> Path:
    """Write the report of a run.

    Args:
        run: the directory.
        posterior: its fit.
        draws: at the observation, if there is one.
        findings: of its checks.
        path: where to; `report.html` in the directory by default.

    Returns:
        The path.
    """
    path = run.report if path is None else path
    page = render(contents(run, posterior, draws, findings))
    write_atomically(path, page.encode())
    return path


def render(values: dict) -> str:
    """Fill the report's template."""
    return fill_page(resources.files("unle.report").joinpath("page.html").read_text(encoding="utf-8"), values)


def fill_page(template: str, values: dict) -> str:
    """Fill the text of a template; the style and the script of this room go into the page."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    files = resources.files("unle.report")
    parts = {part: files.joinpath(part).read_text(encoding="utf-8") for part in ("style.css", "script.js")}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = Markup  # figures are ours; everything else is escaped
    environment.filters["short"] = short
    page = environment.from_string(template)
    return page.render(css=Markup(parts["style.css"]), script=Markup(parts["script.js"]), **values)
