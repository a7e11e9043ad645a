"""The page of groups of the types Shared and Session, in a real browser."""

import asyncio
import re
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from playwright.async_api import expect

from partq import Consumer, Message, Producer, SessionConsumer
from partq.testing.local_broker import LocalBroker
from tests.broker.api.page.conftest import WAIT_MS
from tests.broker.api.page.test_page import page_url, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=WAIT_MS)
KEYS = 6


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orders(browser):
    groups = {"thumbs": {"type": "Shared"}, "clerks": {"type": "Session"}}
    async with LocalBroker(partitions=2, groups=groups, broker_count=2) as broker:
        async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            messages = [Message(f"order-{at % KEYS}", b"{}") for at in range(60)]
            await (await producer.send_many(messages))
        yield broker


async def test_shared_members_are_seen_with_priority_and_what_they_have(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.admin)
    await page.get_by_label("Consumer group").select_option("thumbs")
    squares = page.locator("#squares button")
    await expect(squares.first).to_have_accessible_name(re.compile("no member"))
    place = {"queue": "orders", "group": "thumbs", "token": orders.tokens.consume}
    async with AsyncExitStack() as stack:
        ann = Consumer(orders.url, **place, member="ann", credit=10, handle_signals=False)
        await stack.enter_async_context(ann)
        await anext(ann)
        bob = Consumer(orders.url, **place, member="bob", priority=3, handle_signals=False)
        await stack.enter_async_context(bob)
        await anext(bob)
        for at in range(2):
            await expect(squares.nth(at)).to_have_text(re.compile(r"\*1\.\d"))
            await expect(squares.nth(at)).to_have_accessible_name(
                re.compile(r"any member gets its messages, lag \d+$")
            )
        await expect(page.locator("#map-summary")).not_to_contain_text("without a member")
        await expect(page.locator("#legend")).to_contain_text("bob, Active, priority 3, ")
        await expect(page.get_by_role("heading", name="What if")).to_be_hidden()
        await expect(page.locator("#detail")).to_contain_text("any member")
        assert not await violations(page)
        await page.get_by_role("link", name="Groups").click()
        members = page.get_by_role("table", name="Members of thumbs")
        await expect(members.locator("th").nth(2)).to_have_text("priority")
        rows = members.locator("tbody tr")
        await expect(rows).to_have_count(2)
        # ann has used up its credit at both brokers: it waits for no turn, and bob has the rest.
        await expect(rows.filter(has_text="ann")).to_have_text(re.compile(r"A: annActive00020$"))
        await expect(rows.filter(has_text="bob")).to_have_text(
            re.compile(r"B: bobActive3[\d,]+\d40$")
        )
        await expect(page.get_by_role("table", name="partitions of thumbs")).to_contain_text(
            "any member"
        )
        await expect(page.get_by_role("heading", name="Locked sessions")).to_be_hidden()
        assert not await violations(page)


async def test_locked_sessions_are_seen_and_accepts_that_wait(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.admin, hash_="#groups")
    await page.get_by_label("Consumer group").select_option("clerks")
    place = {"queue": "orders", "group": "clerks", "token": orders.tokens.consume}
    summary = page.locator("#sessions-summary")
    async with (
        SessionConsumer(orders.url, **place, member="carl", handle_signals=False) as carl,
        asyncio.timeout(WAIT_MS / 1000),
    ):
        sessions = [await carl.accept() for _ in range(KEYS)]
        waiting = asyncio.create_task(carl.accept(timeout_s=600))
        await expect(summary).to_have_text(
            f"{KEYS} sessions have messages, {KEYS} locked; 1 accept waits for one."
        )
        rows = page.get_by_role("table", name="Locked sessions").locator("tbody tr")
        await expect(rows).to_have_count(KEYS)
        found = rows.filter(has_text="order-3")
        await expect(found).to_have_text(
            re.compile(r"^order-3carlyes\d\d:\d\d:\d\d[\d.]+ s1\.[01]10$")
        )
        members = page.get_by_role("table", name="Members of clerks")
        await expect(members.locator("th").nth(2)).to_have_text("sessions")
        await expect(members.locator("tbody tr")).to_have_text(
            [re.compile(rf"carlActive{KEYS}\d+$")]
        )
        assert not await violations(page)
        await next(each for each in sessions if each.session_id == "order-3").close()
        await expect(found).to_have_count(1)  # who waited has it now
        await waiting
        await expect(summary).to_contain_text("0 accepts wait")
        await page.get_by_role("link", name="Partition map").click()
        await expect(page.locator("#squares button").first).to_have_text("*1.0")
        await expect(page.locator("#detail")).to_contain_text(
            re.compile(r"sessions\d with messages")
        )
        assert not await violations(page)


async def test_a_token_of_another_role_is_told_what_the_list_of_sessions_needs(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.consume, hash_="#groups")
    await page.get_by_label("Consumer group").select_option("clerks")
    place = {"queue": "orders", "group": "clerks", "token": orders.tokens.consume}
    async with SessionConsumer(orders.url, **place, member="dora", handle_signals=False) as dora:
        await dora.accept("order-1", timeout_s=WAIT_MS / 1000)
        told = page.locator("#sessions-told")
        await expect(told).to_contain_text("needs a token of the role admin")
