"""The view of messages in a real browser: newest first, values of each kind, dead letters."""

import asyncio
import json
import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from partq import Consumer, Message, Producer
from partq.core.layout import Layout
from partq.testing.frame_peers import key_of
from partq.testing.local_broker import LocalBroker
from tests.broker.api.page.conftest import WAIT_MS
from tests.broker.api.page.test_page import page_url, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=WAIT_MS)
COUNT = 4
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
STRICT = {"ack": {"maxRedeliveries": 0}, "deadLetter": {"create": True}}
PAGE = 50


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orders(browser):
    """A queue of 4 partitions at two brokers, with a dead-letter queue."""
    groups = {"strict": STRICT}
    async with LocalBroker(partitions=COUNT, groups=groups, broker_count=2) as broker:
        yield broker


async def publish(orders, *messages):
    """Publish one after the other, so that each is stored later than those before."""
    async with Producer(orders.url, queue="orders", token=orders.tokens.produce) as producer:
        for message in messages:
            await (await producer.send_many([message]))


def keys(count, prefix=""):
    layout = Layout.first(COUNT)
    return [f"{prefix}{key_of(layout, at % COUNT)}" for at in range(count)]


def rows(page):
    return page.locator("#message-table tbody tr")


def summary(page):
    return page.locator("#messages-summary")


async def open_messages(open_page, orders, token=None, **look):
    page = await open_page(
        page_url(orders), token=token or orders.tokens.consume, hash_="#messages", **look
    )
    await expect(summary(page)).to_have_text(re.compile(r"message.*(may follow|none is older)"))
    return page


async def choose(page, text):
    await rows(page).filter(has_text=text).first.get_by_role("button").click()


async def test_the_newest_are_first_over_the_partitions_page_by_page(orders, open_page):
    numbers = range(PAGE + 20)
    named = enumerate(keys(len(numbers)))
    await publish(orders, *(Message(key, f"number {at}".encode()) for at, key in named))
    page = await open_messages(open_page, orders)
    await expect(rows(page)).to_have_count(PAGE)
    shown = await rows(page).locator("td:nth-child(4)").all_text_contents()
    assert shown == [f"number {at}" for at in reversed(numbers[-PAGE:])]
    await page.get_by_role("button", name="Older").click()
    await expect(rows(page).first).to_contain_text(f"number {numbers[-PAGE - 1]}")
    await expect(rows(page)).to_have_count(20)
    await expect(page.get_by_role("button", name="Older")).to_be_disabled()
    await page.get_by_label("Partition", exact=True).select_option("1.2")
    await page.get_by_role("button", name="Show the newest").click()
    await expect(rows(page)).to_have_count(len([at for at in numbers if at % COUNT == 2]))
    for place in await rows(page).get_by_role("button").all_text_contents():
        assert place.startswith("1.2 @ ")


async def test_messages_of_a_key_and_until_a_time(orders, open_page):
    await publish(orders, *(Message("the-key", b"mine"), Message("other", b"not mine")) * 2)
    page = await open_messages(open_page, orders)
    await page.get_by_label("Key", exact=True).fill("the-key")
    await page.get_by_role("button", name="Show the newest").click()
    await expect(rows(page)).to_have_count(2)
    await expect(summary(page)).to_contain_text("2 messages of the key")
    await page.get_by_label("Key", exact=True).fill("")
    await page.get_by_label("Stored until").fill("2020-01-01T00:00:00")
    await page.get_by_role("button", name="Show the newest").click()
    await expect(rows(page)).to_have_count(0)
    await expect(summary(page)).to_contain_text("0 messages; none is older")
    await page.get_by_label("Stored until").fill("2199-01-01T00:00:00")
    await page.get_by_role("button", name="Show the newest").click()
    await expect(rows(page)).not_to_have_count(0)


async def test_values_are_shown_as_what_they_are(orders, open_page):
    """JSON keeps its digits, bytes are hex or base64; of a large value the beginning is shown."""
    large = 3 * 1024 * 1024 // 4
    await publish(
        orders,
        Message("json", b'{"n": 12345678901234567890, "a": [1, {"b": []}], "t": "x: {y, z}"}'),
        Message("bytes", bytes([0, 255, 104, 105])),
        Message("large", "é".encode() * (large // 2)),
        Message("deep", b"[" * 5000 + b"]" * 5000),
    )
    page = await open_messages(open_page, orders)
    value = page.locator("#value")
    await choose(page, "json")
    await expect(page.locator("#message-title")).to_be_focused()
    await expect(value).to_have_text(
        '{\n  "n": 12345678901234567890,\n  "a": [\n    1,\n    {\n      "b": []\n    }\n  ],\n'
        '  "t": "x: {y, z}"\n}',
        use_inner_text=False,
    )
    await page.get_by_label("Shown as").select_option("text")
    await expect(value).to_have_text(re.compile(r'^\{"n": 12345678901234567890, '))
    await page.get_by_label("Shown as").select_option("auto")
    await choose(page, "bytes")
    await expect(value).to_contain_text(re.compile(r"^000000  00 ff 68 69 +\.\.hi$"))
    await expect(page.locator("#value-size")).to_have_text("binary, 4 bytes")
    await page.get_by_label("Shown as").select_option("base64")
    await expect(value).to_have_text("AP9oaQ==")
    await page.get_by_label("Shown as").select_option("auto")
    await choose(page, "large")
    await expect(page.locator("#value-size")).to_have_text(
        f"text, {large:,} bytes, the first 16,384 are shown"
    )
    assert await value.evaluate("e => e.textContent") == "é" * 8192
    await choose(page, "deep")
    assert len(await value.evaluate("e => e.textContent")) < 2_000_000
    assert not await violations(page)


async def test_what_a_producer_writes_is_text_and_the_command_has_no_token(orders, open_page):
    await publish(orders, Message(EVIL, json.dumps([EVIL]).encode(), headers={EVIL: EVIL}))
    page = await open_messages(open_page, orders, grant_clipboard=True)
    await choose(page, EVIL[:20])
    await expect(page.locator("#message-facts")).to_contain_text(EVIL)
    await expect(page.locator("#message-headers dt")).to_have_text(EVIL)
    await expect(page.locator("#message-headers dd")).to_have_text(EVIL)
    await expect(page.locator("#value")).to_contain_text(EVIL)
    assert await page.locator("img, body script").count() == 0
    command = await page.locator("#curl").text_content()
    assert "Bearer $PARTQ_TOKEN" in command
    assert orders.tokens.consume not in command
    assert EVIL not in command
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"PARTQ_TOKEN": orders.tokens.consume, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    answer, _ = await process.communicate()
    (message,) = json.loads(answer)["messages"]
    assert (message["key"], message["headers"]) == (EVIL, {EVIL: EVIL})
    await page.get_by_role("button", name="Copy as curl").click()
    await expect(page.locator("#copied")).to_contain_text("Copied")
    assert await page.evaluate("navigator.clipboard.readText()") == command


async def test_a_token_that_may_not_read_is_told_so_and_leaves_nothing(orders, open_page):
    await publish(orders, Message("secret-key", b"secret-value"))
    page = await open_messages(open_page, orders)
    await choose(page, "secret-key")
    await page.get_by_role("button", name="Forget the token").click()
    for secret in ("secret-key", "secret-value"):
        assert secret not in await page.locator("body").inner_html()
    await page.get_by_label("Token", exact=True).fill(orders.tokens.produce)
    await page.get_by_role("button", name="Show the queue").click()
    await expect(summary(page)).to_contain_text("needs a token of the role consume or admin")
    await expect(rows(page)).to_have_count(0)
    assert not await violations(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_narrow_view_of_messages_is_readable(orders, open_page, scheme):
    await publish(orders, Message("k" * 900, b"v" * 4000, headers={"h" * 200: "w" * 900}))
    look = {"viewport": {"width": 400, "height": 800}, "color_scheme": scheme}
    page = await open_messages(open_page, orders, **look)
    await choose(page, "kkk")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 400
    assert not await violations(page)


async def make_letters(orders, count):
    """Let a member give messages back until they are dead letters; return their queue."""
    await publish(orders, *(Message(key, b"{}") for key in keys(count, "letter-")))
    consumer = Consumer(
        orders.url, queue="orders", group="strict", member="m", token=orders.tokens.consume
    )
    left = count
    async with consumer:
        async for message in consumer:
            if message.key.startswith("letter-"):
                await consumer.nack(message, delay_s=0, reason=EVIL[:28])
                left -= 1
            else:
                await consumer.ack(message)
            if not left:
                break
    return orders.runtime.queue("orders-strict-dlq")


async def open_letters(open_page, queue, token, count):
    page = await open_page(queue.brokers[0].url, token=token, hash_="#messages")
    while await rows(page).count() < count:
        await page.get_by_role("button", name="Show the newest").click()
        await expect(summary(page)).to_have_text(re.compile("none is older"))
    return page


async def test_dead_letters_say_why_and_are_replayed_and_dropped_after_a_question(
    orders, open_page
):
    queue = await make_letters(orders, 5)
    page = await open_letters(open_page, queue, queue.tokens.admin, 5)
    why = f"maxRedeliveries ({EVIL[:28]}), failures: 1, from orders/strict 1."
    await expect(rows(page).first).to_contain_text(why)
    assert await page.locator("img").count() == 0
    told = page.locator("#letters-told")
    dialog = page.get_by_role("dialog")
    drop = page.get_by_role("button", name="Drop ...")
    await drop.focus()
    await page.keyboard.press("Enter")
    await expect(dialog).to_contain_text("Drop 5 dead letters?")
    await expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    assert not await violations(page)
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(drop).to_be_focused()
    await expect(rows(page)).to_have_count(5)
    await page.get_by_role("button", name="Replay ...").click()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(told).to_have_text("5 replayed.")
    await expect(rows(page)).to_have_count(0)
    await expect(drop).to_be_disabled()

    await make_letters(orders, 3)
    page = await open_letters(open_page, queue, queue.tokens.admin, 3)
    await page.get_by_role("textbox", name="Key").fill(keys(3, "letter-")[1])
    await page.get_by_role("button", name="Show the newest").click()
    await expect(rows(page)).to_have_count(1)
    await page.get_by_role("button", name="Replay ...").click()
    await expect(page.get_by_role("dialog")).to_contain_text("with the key that is shown")
    await page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    await expect(page.locator("#letters-told")).to_have_text("1 replayed.")
    await page.get_by_role("textbox", name="Key").fill("")
    await page.get_by_role("button", name="Show the newest").click()
    await expect(rows(page)).to_have_count(2)
    await page.get_by_role("button", name="Drop ...").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    await expect(page.locator("#letters-told")).to_have_text(re.compile(r"\d+ dropped\."))
    await expect(rows(page)).to_have_count(0)


async def test_only_an_admin_replays_and_drops(orders, open_page):
    queue = await make_letters(orders, 2)
    page = await open_letters(open_page, queue, queue.tokens.consume, 2)
    await page.get_by_role("button", name="Drop ...").click()
    told = page.locator("#letters-told")
    await expect(told).to_contain_text("needs a token of the role admin")
    await page.get_by_role("button", name="Replay ...").click()
    await page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    await expect(told).to_contain_text("needs a token of the role admin")
    await expect(rows(page)).not_to_have_count(0)


async def test_a_broker_that_is_killed_meanwhile_is_told(orders, open_page):
    await publish(orders, Message("before", b"1"))
    page = await open_messages(open_page, orders)
    broker = orders.queue.brokers[0]
    broker.freeze()
    await page.get_by_role("button", name="Show the newest").click()
    await expect(summary(page)).to_contain_text("does not answer")
    await broker.kill()
    while "may follow" not in (told := await summary(page).text_content()) and "none" not in told:
        await page.get_by_role("button", name="Show the newest").click()
        await expect(summary(page)).not_to_contain_text("Asking")
    await expect(rows(page)).not_to_have_count(0)
