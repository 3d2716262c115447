"""The site in a real browser, from the disk and offline: on a desk and on a phone."""

from pathlib import Path

import pytest
from tests.report.chromium import Browser

PAGES = ["index", "tutorial", "commands", "strict", "api/settings", "howto/scales", "evaluate"]


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_asks_for_nothing(chromium: Browser, site: Path, width: int) -> None:
    with chromium.tab(width, scripts=True) as tab:
        for page in PAGES:
            tab.open(site / f"{page}.html")
            asked = [address for address in tab.requests if not address.startswith("data:")]
            assert asked
            assert all(address.startswith(site.as_uri()) for address in asked), page
            assert tab.complaints == [], page
            assert tab.measure("document.documentElement.scrollWidth") == width, page
            broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
            assert tab.measure(broken) == 0, page
