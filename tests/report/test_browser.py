"""The page in a real browser: drawn, quiet, usable by everybody."""

import shutil

import pytest

from unle.report import write_report

pytestmark = pytest.mark.slow
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        engine = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield engine
        engine.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_in_chromium(browser, story, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    path = write_report(story.run, story.posterior, story.draws, story.findings)
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    errors, requests = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    heights = page.evaluate("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)")
    assert len(heights) >= 8
    assert min(heights) > 40
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["impact"]) for v in found if v["impact"] in ("serious", "critical")] == []

    page.locator("button.zoom").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('dialog').open")
    assert page.evaluate("document.querySelectorAll('.stage svg').length") == 1
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelectorAll('.stage svg').length === 0")
    page.close()
