"""The website in a real browser, narrow and wide, light and dark: no fault, no error, no dead link, no table cut off.

`UNLE_SITE=site pytest -m slow tests/test_website.py` checks a site that was built before; without it one is built.
"""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]

# Tables and figures that reach beyond the window, and that no ancestor lets one scroll to.
CUT_OFF = """() => [...document.querySelectorAll('table, img, math, pre')].filter(element => {
  const box = element.getBoundingClientRect()
  if (box.width === 0 || (box.left >= -1 && box.right <= innerWidth + 1)) return false
  for (let parent = element; parent; parent = parent.parentElement)
    if (/auto|scroll/.test(getComputedStyle(parent).overflowX)
        && parent.getBoundingClientRect().right <= innerWidth + 1) return false
  return true
}).map(element => element.outerHTML.slice(0, 80))"""


class Page(HTMLParser):
    """The anchors of a page and the addresses that it refers to."""

    def __init__(self, path: Path):
        super().__init__()
        self.anchors, self.references = {""}, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.anchors |= {known[name] for name in ("id", "name") if known.get(name)}
        self.references += [known[name] for name in ("href", "src") if known.get(name)]


def dead_links(site: Path) -> list[str]:
    """Return the links within the site that lead nowhere, as `page -> address`."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for address in page.references:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].anchors if target in pages else {""}
            if not target.exists() or (target.suffix == ".html" and unquote(parts.fragment) not in known):
                found.append(f"{path.relative_to(site.resolve())} -> {address}")
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if "UNLE_SITE" in os.environ:
        return Path(os.environ["UNLE_SITE"]).resolve()
    pytest.importorskip("material", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return folder


def faults(page, axe) -> list[str]:
    """Return what is wrong with the page that is shown."""
    width = page.viewport_size["width"]
    found = [f"cut off: {element}" for element in page.evaluate(CUT_OFF)]
    if page.evaluate("document.documentElement.scrollWidth") > width:
        found.append("the page is wider than the window")
    # Without `preload`, which would fetch style sheets a second time: browsers refuse that to pages from the disk.
    for violation in axe.run(page, options={"preload": False}).response["violations"]:
        nodes = [" ".join(map(str, node["target"])) for node in violation["nodes"]]
        found.append(f"{violation['id']} ({violation['impact']}), {len(nodes)} times: {nodes[0]}")
    return found


def test_no_link_is_dead(site):
    assert dead_links(site) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_in_chromium(site, browser, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra browser").Axe()
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    errors, found = [], {}
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(f"not found: {request.url}"))
    paths = sorted(site.rglob("*.html"))
    assert len(paths) > 30
    for path in paths:
        errors.clear()
        page.goto(path.as_uri())
        if problems := [*errors, *faults(page, axe)]:
            found[path.relative_to(site).as_posix()] = problems
    page.close()
    assert found == {}


def test_faults_are_found(site, browser, tmp_path):
    """A page with a wide table, a picture without a text, pale words, a dead link and an error."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra browser").Axe()
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><html lang=en><head><title>t</title></head><body><main><h1>t</h1>"
        "<div style='overflow: hidden; width: 300px'><table style='width: 900px'><tr><td>1</td></tr></table></div>"
        "<p style='color: #ccc; background: #fff'>pale</p><img src=none.png><a href='gone.html#a'>gone</a>"
        "</main></body></html>"
    )
    page = browser.new_context(viewport={"width": 390, "height": 900}).new_page()
    page.goto(path.as_uri())
    found = "\n".join(faults(page, axe))
    page.close()
    assert all(re.search(word, found) for word in ("cut off: <table", "color-contrast", "image-alt"))
    assert dead_links(tmp_path) == ["bad.html -> none.png", "bad.html -> gone.html#a"]
