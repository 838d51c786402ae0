"""The website in a real browser, narrow and wide, light and dark: no fault, no error, no dead link, no table cut off.

`UNLE_SITE=site pytest -m slow tests/test_website.py` checks a site that was built before; without it one is built.
"""

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
# Every rule is applied at both widths and in both colour schemes, but only the rules on colours to all four pairs: of
# the others none sees colours.
WIDTHS, EVERYTHING = (390, 1280), {("light", 390), ("dark", 1280)}

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


async def faults(page, width: int, scheme: str) -> list[str]:
    """Return what is wrong with the page that is shown."""
    from axe_playwright_python.async_playwright import Axe

    found = [f"cut off: {element}" for element in await page.evaluate(CUT_OFF)]
    if await page.evaluate("document.documentElement.scrollWidth") > width:
        found.append("the page is wider than the window")
    # Without `preload`, which would fetch style sheets a second time: browsers refuse that to pages from the disk.
    options = {"preload": False, "resultTypes": ["violations"]}
    if (scheme, width) not in EVERYTHING:
        options["runOnly"] = ["color-contrast", "link-in-text-block"]
    for violation in (await Axe().run(page, options=options)).response["violations"]:
        nodes = [" ".join(map(str, node["target"])) for node in violation["nodes"]]
        found.append(f"{violation['id']} ({violation['impact']}), {len(nodes)} times: {nodes[0]}")
    return found


async def faults_of_pages(paths: list[Path], scheme: str, chromium: dict) -> dict[str, list[str]]:
    """Open every page in one browser, several at a time, and return what is wrong by file name and width."""
    from playwright.async_api import async_playwright

    found, waiting = defaultdict(list), iter(paths)

    async def look(context):
        page, said = await context.new_page(), []
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("requestfailed", lambda request: said.append(f"not found: {request.url}"))
        for path in waiting:  # shared by all who look: each takes the next
            for width in WIDTHS:
                said.clear()
                await page.set_viewport_size({"width": width, "height": 900})
                await page.goto(path.as_uri())
                found[f"{path.parent.name}/{path.name} {width}"] += [*said, *await faults(page, width, scheme)]

    async with async_playwright() as driver:
        engine = await driver.chromium.launch(**chromium)
        context = await engine.new_context(color_scheme=scheme)
        context.set_default_timeout(300_000)  # milliseconds: a busy machine is no fault
        await asyncio.gather(*(look(context) for _ in range(min(4, os.cpu_count() or 1))))
        await engine.close()
    return {name: some for name, some in found.items() if some}


def test_no_link_is_dead(site):
    assert dead_links(site) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_in_chromium(site, chromium, scheme):
    pytest.importorskip("axe_playwright_python", reason="needs the extra browser")
    paths = sorted(site.rglob("*.html"), key=lambda path: -path.stat().st_size)  # the long ones first
    assert len(paths) > 30
    assert asyncio.run(faults_of_pages(paths, scheme, chromium)) == {}


def test_faults_are_found(chromium, tmp_path):
    """A page with a wide table, a picture without a text, pale words, a dead link and an error."""
    pytest.importorskip("axe_playwright_python", reason="needs the extra browser")
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><html lang=en><head><title>t</title></head><body><main><h1>t</h1>"
        "<div style='overflow: hidden; width: 300px'><table style='width: 900px'><tr><td>1</td></tr></table></div>"
        "<p style='color: #ccc; background: #fff'>pale</p><img src=none.png><a href='gone.html#a'>gone</a>"
        "<script>throw new Error('broken')</script></main></body></html>"
    )
    everywhere = {}
    for scheme in ("light", "dark"):
        found = asyncio.run(faults_of_pages([path], scheme, chromium))
        everywhere |= {(scheme, int(name.split()[1])): "\n".join(some) for name, some in found.items()}
    for pair, found in everywhere.items():
        assert "color-contrast" in found, pair
        assert ("image-alt" in found) == (pair in EVERYTHING), pair
    assert all(word in everywhere["light", 390] for word in ("cut off: <table", "broken", "not found: file:"))
    assert len(everywhere) == 4
    assert dead_links(tmp_path) == ["bad.html -> none.png", "bad.html -> gone.html#a"]


@pytest.mark.parametrize("served", [True, False], ids=["as on GitHub Pages", "from the disk"])
def test_the_search_finds_pages(site, browser, served, tmp_path):
    """The search needs a worker and an index: a page from the disk gets them in another way than one from a server."""
    (tmp_path / "unle").symlink_to(site)  # GitHub Pages serves a project below the root
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    handler.log_message = None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/unle" if served else site.as_uri()
        page = browser.new_context(offline=not served).new_page()
        page.set_default_timeout(300_000)
        page.goto(f"{root}/api/checks.html")
        page.locator(".md-search__input").click()
        page.locator(".md-search__input").press_sequentially("two moons")  # key by key, as the theme listens to keys
        page.locator(".md-search-result__link").first.click()
        page.wait_for_url(f"{root}/*.html*")
        page.close()
        server.shutdown()
