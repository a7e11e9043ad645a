"""The page of a group whose members share the keys of a partition, in a real browser."""

import asyncio
import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from partq import Consumer, Message, Producer
from partq.testing.local_broker import LocalBroker
from tests.broker.api.page.conftest import WAIT_MS
from tests.broker.api.page.test_page import page_url, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=WAIT_MS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orders(browser):
    groups = {"workers": {"type": "KeyShared", "keyShared": {"parts": 4}}}
    async with LocalBroker(partitions=1, groups=groups) as broker:
        yield broker


async def test_the_members_of_a_partition_are_seen_and_a_key_that_waits(orders, open_page):
    async with Producer(orders.url, queue="orders", token=orders.tokens.produce) as producer:
        await (await producer.send_many([Message(str(at), b"{}") for at in range(32)]))
    place = {"queue": "orders", "group": "workers", "token": orders.tokens.consume}
    halves = asyncio.Event()

    def has_lanes(_, ranges):
        if sum(stop - first for first, stop in ranges) == 32_768:
            halves.set()

    page = await open_page(page_url(orders), token=orders.tokens.admin)
    one = Consumer(orders.url, **place, member="one", on_lanes=has_lanes)
    async with one, Consumer(orders.url, **place, member="two") as two:
        await asyncio.wait_for(halves.wait(), WAIT_MS / 1000)
        square = page.locator("#squares button[data-partition='1.0']")
        await expect(square).to_have_text(re.compile("AB|BA"))
        await expect(square).to_have_accessible_name(
            re.compile(r"member \w\w (one|two) \([0-3,-]+\), (one|two) \([0-3,-]+\)")
        )
        await square.click()
        detail = page.locator("#detail")
        for name in ("one", "two"):
            await expect(detail).to_contain_text(name)
        await two.nack(await anext(two), delay_s=600)
        await expect(detail).to_contain_text(
            re.compile(r"wait for redelivery1, the next in \d+ min")
        )
        await page.get_by_role("link", name="Groups").click()
        row = page.locator("#partition-table tbody tr")
        await expect(row).to_contain_text(re.compile(r"(one|two) \(.*(one|two) \("))
        await expect(row).to_contain_text(re.compile(r"1, the next in \d+ min"))
        members = page.get_by_role("table", name="Members of workers").locator("tbody tr")
        await expect(members).to_have_count(2)
        assert not await violations(page)
