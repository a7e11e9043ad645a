"""A real Chromium, one for the tests of a file, and a page of it that notes what is wrong."""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

REQUIRED = "PARTQ_REQUIRE_CHROMIUM"
WAIT_MS = 60_000
"""How long is waited for what the page shows: machines that run tests are busy."""

OpenPage = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """The Chromium of the system; Playwright's browsers are not downloaded."""
    program = shutil.which("chromium")
    if program is None:
        why = "no chromium: as root, apt-get install -y chromium"
        if os.environ.get(REQUIRED) == "1" or os.environ.get("CI") == "true":
            pytest.fail(f"{why} ({REQUIRED}=1 or CI=true: no skipping)")
        pytest.skip(why)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=["--disable-gpu"], timeout=WAIT_MS
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """Open pages in contexts of their own: sizes and schemes differ, tokens are not shared.

    At the end of the test none of them may have broken its Content-Security-Policy, or have had an
    error that it did not handle.
    """
    wrong: list[str] = []
    contexts = []

    async def open_(url: str, *, token: str | None = None, hash_: str = "", **look) -> Page:
        look.setdefault("viewport", {"width": 1280, "height": 900})
        if look.pop("grant_clipboard", False):
            look["permissions"] = ["clipboard-read", "clipboard-write"]
        context = await browser.new_context(**look)
        contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        page = await context.new_page()
        await page.add_init_script(
            "addEventListener('securitypolicyviolation',"
            " (e) => console.error('Content Security Policy', e.violatedDirective, e.blockedURI))"
        )
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text) if "Content Security Policy" in message.text else None
            ),
        )
        await page.goto(f"{url}/{hash_}")
        if token is not None:
            await sign_in(page, token)
        return page

    yield open_
    for context in contexts:
        for page in context.pages:  # a call that is under way ends with its page
            await page.unroute_all(behavior="ignoreErrors")
        await context.close()
    assert not wrong, wrong


async def sign_in(page: Page, token: str) -> None:
    """Give the page a token, as a person does."""
    await page.get_by_label("Token", exact=True).fill(token)
    await page.get_by_role("button", name="Show the queue").click()
