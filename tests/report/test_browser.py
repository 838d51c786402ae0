"""The page in a real browser: drawn, quiet, usable by everybody."""

import pytest

from unle.report import write_report

pytestmark = pytest.mark.slow


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


@pytest.fixture(scope="module")
def written(story):
    return write_report(story.run, story.posterior, story.draws, story.findings)


def open_page(browser, path, width):
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    page.goto(path.as_uri())
    return page


def test_a_wide_screen_is_used(browser, written):
    page = open_page(browser, written, 1280)
    assert page.evaluate("document.querySelector('main').getBoundingClientRect().width") > 1200
    shares = page.evaluate(
        "[...document.querySelectorAll('.wide svg')].map(s => s.getBoundingClientRect().width / s.closest('.paper')"
        ".getBoundingClientRect().width)"
    )
    assert min(shares) > 0.9  # figures fill their columns
    columns = page.evaluate("[...document.querySelectorAll('.gallery svg')].map(s => s.getBoundingClientRect().left)")
    assert max(columns) > 600  # and there is a second one
    page.close()


def test_on_a_narrow_screen_nothing_is_cut_off_without_a_hint(browser, written):
    page = open_page(browser, written, 390)
    wider = "[...document.querySelectorAll('.scroll, .paper')].filter(b => b.scrollWidth > b.clientWidth + 4)"
    assert page.evaluate(f"{wider}.length") > 0
    assert page.evaluate(f"{wider}.every(b => b.classList.contains('overflows'))")
    hint = "getComputedStyle(document.querySelector('.overflows'), '::before').content"
    assert "scroll sideways" in page.evaluate(hint)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("!document.querySelector('.summary').closest('.scroll').classList.contains('overflows')")
    page.close()


def test_the_print_view_has_no_buttons_and_fits_the_paper(browser, written):
    page = open_page(browser, written, 720)
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    shown = "[...document.querySelectorAll('nav, .zoom')].filter(b => getComputedStyle(b).display !== 'none').length"
    assert page.evaluate(shown) == 0
    wider = "[...document.querySelectorAll('.paper')].filter(b => b.scrollWidth > b.clientWidth + 4).length"
    assert page.evaluate(wider) == 0
    page.close()
