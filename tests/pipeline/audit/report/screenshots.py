"""Take the screenshots of docs/audit-report.md: `python -m tests.pipeline.audit.report.screenshots`

The page of the faulty run of the tests, in the light, in the dark, and 400 px wide.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import async_playwright

from partq.pipeline.audit.job import PAGE
from tests.broker.api.page.screenshots import take
from tests.pipeline.audit.report.faulty_report import FaultyReport

LOOKS = {"light": (1100, 1760), "dark": (1100, 1760), "narrow": (400, 1760)}


async def main() -> None:
    """Write the files into docs/images."""
    with TemporaryDirectory() as folder:
        report = FaultyReport.write(Path(folder))
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium")
            for look, (width, height) in LOOKS.items():
                context = await browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme="light" if look == "light" else "dark",
                )
                page = await context.new_page()
                await page.goto(f"{report.folder.as_uri()}/{PAGE}")
                await take(page, f"audit-{look}")
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
