"""Take the screenshots of docs/web.md: `python -m tests.broker.api.page.screenshots [messages]`.

A group of three members, one of them about to hand over; a dead letter blocks another group. With
names of parts (small, handoffs, many, messages, rates) only theirs are taken.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Browser, Page, async_playwright

from partq import Consumer, Message, Producer
from partq.core.layout import Layout
from partq.testing.frame_peers import key_of
from partq.testing.local_broker import LocalBroker
from tests.broker.api.page.conftest import sign_in

FOLDER = Path(__file__).parents[4] / "docs" / "images"
GROUPS = {
    "workers": {"rebalance": {"delaySeconds": 0, "maxHandoffSeconds": 600}},
    "strict": {"ack": {"maxRedeliveries": 0}},
}
WIDE, NARROW = {"width": 1100, "height": 760}, {"width": 400, "height": 800}


async def publish_one_each(broker: LocalBroker, count: int) -> None:
    """Publish a message to each partition of the queue."""
    layout = Layout.first(count)
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        messages = [Message(key_of(layout, at), b'{"amount": 3}') for at in range(count)]
        await (await producer.send_many(messages))


def member(broker: LocalBroker, name: str, group: str = "workers") -> Consumer:
    """Return a consumer of the queue."""
    return Consumer(
        broker.url, queue="orders", group=group, member=name, token=broker.tokens.consume
    )


async def open_page(browser: Browser, broker: LocalBroker, **look: Any) -> Page:
    """Return the page as somebody sees it that has signed in."""
    page = await (await browser.new_context(**look)).new_page()
    await page.goto(f"{broker.queue.brokers[0].url}/")
    await sign_in(page, broker.tokens.admin)
    await page.locator("#squares button").first.wait_for()
    return page


async def open_pages(browser: Browser, broker: LocalBroker) -> dict[str, Page]:
    """Return the page as the images show it: in the light, in the dark, and 400 px wide."""
    return {
        "light": await open_page(browser, broker, viewport=WIDE, color_scheme="light"),
        "dark": await open_page(browser, broker, viewport=WIDE, color_scheme="dark"),
        "narrow": await open_page(browser, broker, viewport=NARROW, color_scheme="dark"),
    }


async def take(page: Page, name: str) -> None:
    """Write one of the files, with a palette: that is a third of the bytes."""
    data = await page.screenshot(animations="disabled")
    image = Image.open(BytesIO(data)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    image.save(FOLDER / f"{name}.png", optimize=True)


async def take_all(pages: dict[str, Page], view: str, shown: str, *, at: str = "") -> None:
    """Write the files of a view once an element is shown; `at`: what the narrow one scrolls to."""
    for look, page in pages.items():
        await page.locator(shown).first.wait_for()
        if at and look == "narrow":
            await page.locator(at).evaluate("e => e.scrollIntoView()")
        await take(page, f"{view}-{look}")
        await page.evaluate("scrollTo(0, 0)")


async def go_to(pages: dict[str, Page], view: str, group: str) -> None:
    """Show a view of a group in each page."""
    for page in pages.values():
        await page.get_by_label("Consumer group").select_option(group)
        await page.get_by_role("link", name=view).click()


async def take_small(browser: Browser) -> None:
    """Take those of 16 partitions: map, plan, groups."""
    async with (
        LocalBroker(partitions=16, groups=GROUPS, broker_count=2) as broker,
        AsyncExitStack() as stack,
    ):
        pages = await open_pages(browser, broker)
        light = pages["light"]
        await light.get_by_label("Consumer group").select_option("workers")
        members = []
        for number in range(2):
            members.append(await stack.enter_async_context(member(broker, f"worker-{number}")))
        await light.get_by_role("button", name="worker-1").nth(7).wait_for()
        await publish_one_each(broker, 16)
        strict = await stack.enter_async_context(member(broker, "billing-0", "strict"))
        await strict.nack(await anext(strict), delay_s=0)
        held = [await anext(each) for each in members for _ in range(8)]
        members[0].pause([held[0].partition])
        await stack.enter_async_context(member(broker, "worker-2"))
        await go_to(pages, "Partition map", "workers")
        await take_all(pages, "map", ".square.paused:not(.sample)")
        for message in held:
            members[held.index(message) // 8].ack_nowait(message)
        for page in pages.values():
            settled = page.locator("#legend li").filter(has_text="worker-2, Active, 5 partitions")
            await settled.wait_for()
            await page.get_by_label("Members of the group").fill("5")
            await page.keyboard.press("Enter")
        await take_all(pages, "plan", ".square.planned:not(.sample)", at="#squares")
        await go_to(pages, "Groups", "strict")
        await take_all(pages, "groups", "#partition-table .reason:not(:empty)")


async def take_handoffs(browser: Browser) -> None:
    """Take those of handoffs: half a minute in which members come and go."""
    async with (
        LocalBroker(partitions=12, groups=GROUPS, broker_count=2) as broker,
        AsyncExitStack() as stack,
    ):
        pages = await open_pages(browser, broker)
        for number in range(3):
            await stack.enter_async_context(member(broker, f"worker-{number}"))
            await asyncio.sleep(8)
        async with member(broker, "worker-3"):
            await asyncio.sleep(8)
        await asyncio.sleep(8)
        await go_to(pages, "Handoffs", "workers")
        for page in pages.values():
            await page.locator("#span").select_option("60000")
            await page.locator("#strips rect.pause").last.evaluate(
                "e => e.focus({preventScroll: true})"
            )
        await take_all(pages, "handoffs", "#time-told:not(:empty)", at="#strips-title")


async def take_many(browser: Browser) -> None:
    """Take that of 1,024 partitions."""
    async with LocalBroker(partitions=1024, lease_ttl_s=30.0) as broker, AsyncExitStack() as stack:
        for number in range(3):
            await stack.enter_async_context(member(broker, f"worker-{number}"))
        page = await open_page(browser, broker, viewport=NARROW, color_scheme="dark")
        await page.get_by_role("button", name="worker-2").nth(300).wait_for(timeout=120_000)
        await take(page, "map-many-dark")


async def take_messages(browser: Browser) -> None:
    """Take that of messages, one of them chosen."""
    async with LocalBroker(partitions=4) as broker:
        layout = Layout.first(4)
        async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            for number in range(12):
                order = {
                    "order": 4711 + number,
                    "items": [{"sku": "A-17", "count": number % 3 + 1}],
                }
                value = bytes([0, 255, number]) if number == 9 else json.dumps(order).encode()
                headers = {"trace": f"{number:08x}"}
                key = key_of(layout, number % 4)
                await (await producer.send_many([Message(key, value, headers=headers)]))
        pages = await open_pages(browser, broker)
        for page in pages.values():
            await page.get_by_role("link", name="Messages").click()
            await page.locator("#message-table button").nth(1).click()
        await take_all(pages, "messages", "#value")


async def take_rates(browser: Browser) -> None:
    """Take that of rates, after a minute in which a group is slower than its producer."""
    async with LocalBroker(partitions=4, broker_count=2) as broker, AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(member(broker, "worker-0"))
        layout = Layout.first(4)
        async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            left = 0
            for number in range(400):
                count = 9 + 6 * (number // 100 % 2)
                left += count
                messages = [Message(key_of(layout, at % 4), b"{}") for at in range(count)]
                await (await producer.send_many(messages))
                for _ in range(min(12, left)):
                    await consumer.ack(await anext(consumer))
                    left -= 1
                await asyncio.sleep(0.1)
        pages = await open_pages(browser, broker)
        for page in pages.values():
            await page.get_by_role("link", name="Rates").click()
            await page.locator("#charts polyline").nth(3).wait_for()
        await take_all(pages, "rates", "#wait-charts polyline")


PARTS = {
    "small": take_small,
    "handoffs": take_handoffs,
    "many": take_many,
    "messages": take_messages,
    "rates": take_rates,
}


async def main() -> None:
    """Write every file of docs/images."""
    FOLDER.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium")
        for name in sys.argv[1:] or PARTS:
            await PARTS[name](browser)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
