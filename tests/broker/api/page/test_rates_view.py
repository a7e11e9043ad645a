"""The view of rates in a real browser: charts, the same as tables, waits, and what is missing."""

import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from partq import Consumer, Message, Producer
from partq.testing.local_broker import LocalBroker
from tests.broker.api.page.conftest import WAIT_MS, sign_in
from tests.broker.api.page.test_page import page_url, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=WAIT_MS)
EVIL = "<img src=x onerror=alert(1)>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orders(browser):
    """A queue at two brokers with messages, of which its group has acknowledged one."""
    async with LocalBroker(partitions=4, broker_count=2) as broker:
        async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            await (await producer.send_many([Message(str(at), b"{}") for at in range(8)]))
        consumer = Consumer(
            broker.url, queue="orders", group="workers", member="m", token=broker.tokens.consume
        )
        async with consumer:
            await consumer.ack(await anext(consumer))
        yield broker


def charts(page, name):
    return page.get_by_role("img", name=re.compile(name))


async def test_charts_and_tables_of_a_group(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.consume, hash_="#rates")
    lag = charts(page, r"^Lag: 7; at least \d, at most \d$")
    await expect(lag).to_have_count(1)
    for name in ("Published: ", "Delivered: ", "Oldest unacknowledged: "):
        await expect(charts(page, f"^{name}.*at most")).to_have_count(1)
    assert await lag.locator("polyline").count() >= 1
    for name in ("Until stored", "Until sent"):
        chart = charts(page, rf"^{name}: p50 [\d.]+ m?s; .*, p99 [\d.]+ m?s; at least")
        await expect(chart).to_have_count(1)
        await expect(chart.locator("polyline:not(.dashed)")).not_to_have_count(0)
        await expect(chart.locator("polyline.dashed")).not_to_have_count(0)
    table = page.get_by_role("table", name="Minute by minute")
    last = table.get_by_role("row").filter(has_text="last minute")
    await expect(last).to_contain_text("7")
    await expect(table.locator("tbody tr")).to_have_count(10)
    waits = page.get_by_role("table", name="How long messages wait")
    for told in (waits, page.get_by_role("list", name="How long messages wait")):
        await expect(told).to_have_accessible_description(re.compile("99th percentile"))
    stored = waits.get_by_role("row").filter(has_text="from arrival until stored")
    await expect(stored).to_contain_text(re.compile(r"\d m?s"))
    await expect(waits.get_by_role("row").filter(has_text="sent to workers")).to_have_count(1)
    assert not await violations(page)


async def test_a_token_that_is_forgotten_leaves_no_rates(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.produce, hash_="#rates")
    await expect(charts(page, "^Lag: ")).to_have_count(1)
    await page.get_by_role("button", name="Forget the token").click()
    assert "workers" not in await page.locator("body").inner_html()
    await expect(page.locator(".charts li, #rate-table tbody tr")).to_have_count(0)
    await sign_in(page, "wrong-token-000001")
    await expect(page.get_by_role("alert")).to_contain_text("unknown token")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_narrow_view_of_rates_is_readable(orders, open_page, scheme):
    look = {"viewport": {"width": 400, "height": 800}, "color_scheme": scheme}
    page = await open_page(page_url(orders), token=orders.tokens.admin, hash_="#rates", **look)
    await expect(charts(page, "^Lag: 7")).to_have_count(1)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 400
    assert not await violations(page)


async def test_gaps_names_and_missing_brokers_are_shown_as_such(orders, open_page):
    """A step that nobody has counted is a gap of the line; every name is text."""
    page = await open_page(page_url(orders))

    async def poison_status(route):
        answer = await (await route.fetch()).json()
        await route.fulfill(json={**answer, "groups": {EVIL: answer["groups"]["workers"]}})

    async def poison(route):
        theirs = f"{page_url(orders)}/v1/queues/orders/rates?group=workers"
        answer = await (await route.fetch(url=theirs)).json()
        group = answer["groups"]["workers"] | {"lag": [None, 5, 9, None, 0] + [None] * 115}
        publish = answer["publish"] | {"step_p99_ms": [30, 20] + [None] * 118}
        counts = {"accepted": [5, 15] + [None] * 118, "publish": publish}
        missing = {"unavailable": {EVIL: {"code": "unavailable", "message": EVIL}}}
        await route.fulfill(json=answer | {"groups": {EVIL: group}} | counts | missing)

    await page.route("**/status?*", poison_status)
    await page.route("**/rates?*", poison)
    await sign_in(page, orders.tokens.consume)
    await page.get_by_role("link", name="Rates").click()
    await expect(page.locator("#rates-of")).to_have_text(f"Published, and group {EVIL}")
    await expect(page.locator("#rates-summary")).to_have_text(
        f"The counts of these brokers are missing: {EVIL}: {EVIL}"
    )
    chart = charts(page, "^Lag: 0; at least 0, at most 9$")
    await expect(chart.locator("polyline")).to_have_count(2)
    minute = page.get_by_role("row", name="9 min ago").locator("td")
    for at, text in ((0, "2/s"), (2, "0"), (4, "30 ms")):  # the mean, the last, the highest
        await expect(minute.nth(at)).to_have_text(text)
    assert await page.locator("img").count() == 0


async def test_a_queue_without_a_group_has_rates(open_page):
    async with LocalBroker(groups=()) as broker:
        page = await open_page(page_url(broker), token=broker.tokens.admin, hash_="#rates")
        await expect(charts(page, "^Published: ")).to_have_count(1)
        await expect(charts(page, "^Lag")).to_have_count(0)


async def test_a_broker_that_is_killed_meanwhile_is_told(orders, open_page):
    """The view keeps what it has shown, with its time, and goes on."""
    page = await open_page(page_url(orders), token=orders.tokens.admin, hash_="#rates")
    await expect(charts(page, "^Lag: 7")).to_have_count(1)
    broker = orders.queue.brokers[0]
    broker.freeze()
    await expect(page.locator("#notice")).to_contain_text("does not answer")
    await expect(charts(page, "^Lag: 7")).to_have_count(1)
    await broker.kill()
    await expect(page.locator("#notice")).to_have_text("")
    await expect(page.locator("#rates-summary")).to_have_text("")
    await expect(charts(page, "^Lag: 7")).to_have_count(1)
