"""Tests of the documentation site in headless Chromium: every page, from disk, on a desktop and on a phone.

`make docs` builds the site. If EDGEMASK_SHOTS names a folder, the tests write screenshots of the pages to it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
CHROMIUM = "/usr/bin/chromium"
SITE = Path(__file__).resolve().parents[2] / "out" / "site"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
PAGES = sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html") if "_static" not in p.parts)
PROMISED = (
    *("index", "get_started", "which_method", "method", "comparison", "replication", "performance", "api/index"),
    *("cli_reference", "faq", "glossary", "contributing", "changelog"),
)


@pytest.fixture(scope="module")
def chromium():
    """A browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


def test_every_promised_page_is_there():
    assert [page for page in PROMISED if f"{page}.html" not in PAGES] == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_work_from_disk_and_fit_the_screen(chromium, size, scheme):
    width, height = SIZES[size]
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else wrong.append(f"network: {r.url}"))
    for name in PAGES:
        page.goto((SITE / name).as_uri())
        too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        broken = page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
        if too_wide > 0 or broken:
            wrong.append(f"{name}: {too_wide} pixels too wide, broken images: {broken}")
        if folder := os.environ.get("EDGEMASK_SHOTS"):
            page.screenshot(path=Path(folder) / f"{name.replace('/', '-')}-{size}-{scheme}.png")
    page.close()
    assert wrong == []


def test_the_search_finds_a_page_without_a_network(chromium):
    page = chromium.new_page()
    page.goto((SITE / "search.html").as_uri() + "?q=homophily")
    page.wait_for_selector("#search-results li a")
    assert "glossary.html" in " ".join(a.get_attribute("href") for a in page.query_selector_all("#search-results li a"))
    page.close()
