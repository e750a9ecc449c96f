"""Writes docs/images: what a browser shows of the page over a log of examples/nights.

``python docs/screenshots.py`` needs chromium. Run it when the page changed; no test compares pictures.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.external.browser import browsing  # noqa: E402
from vcd.timetravel.log_upgrade import up_to_date  # noqa: E402
from vcd.view.page_server import View  # noqa: E402

LOG = ROOT / "examples" / "nights" / "unlabelled.sqlite"
IMAGES = ROOT / "docs" / "images"
SHOWN = {"page.png": ("?job=default%2Fbert", "document.getElementById('answer').innerText !== ''")}
"""What is shown in each picture: a link of the page, and what is true once all of it is there."""
_THERE = "document.querySelectorAll('.jobs [data-job]').length > 0 && document.fonts.status === 'loaded'"


async def main() -> None:
    """Write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, up_to_date(LOG, lambda note: None) as log:
        async with View(log) as view, browsing(Path(folder), "--window-size=1280,800") as browser:
            for name, (link, shown) in SHOWN.items():
                await browser.open(view.url + link)
                await browser.until(f"{_THERE} && {shown}")
                await browser.picture(IMAGES / name)
                sys.stdout.write(f"{IMAGES / name}: {(IMAGES / name).stat().st_size:,} bytes\n")


if __name__ == "__main__":
    asyncio.run(main())
