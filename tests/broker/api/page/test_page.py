"""The page in a real browser, against real brokers and members."""

import asyncio
import re
from contextlib import AsyncExitStack
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from partq import Consumer, Message, Producer
from partq.core.layout import Layout
from partq.testing.frame_peers import key_of
from partq.testing.local_broker import LocalBroker
from tests.broker.api.page.conftest import WAIT_MS, sign_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=WAIT_MS)
COUNT = 16
GROUPS = {
    "workers": {"rebalance": {"delaySeconds": 0, "maxHandoffSeconds": 600}},
    "strict": {"ack": {"maxRedeliveries": 1}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orders(browser):
    """A queue of 16 partitions at two brokers; a fixture of its browser, for it is no use alone."""
    async with LocalBroker(partitions=COUNT, groups=GROUPS, broker_count=2) as broker:
        yield broker


def page_url(broker):
    return broker.queue.brokers[0].url


def squares(page, **having):
    return page.locator("#squares button" + "".join(f".{each}" for each in having.values()))


async def violations(page):
    """Return what axe-core finds wrong: rule, impact, and the elements."""
    found = await Axe().run(page)
    return [
        (each["id"], each["impact"], [node["html"] for node in each["nodes"]][:3])
        for each in found.response["violations"]
    ]


async def publish_one_each(broker):
    """Publish a message to each partition."""
    layout = Layout.first(COUNT)
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        messages = [Message(key_of(layout, at), b"{}") for at in range(COUNT)]
        await (await producer.send_many(messages))


def member(broker, name, group="workers"):
    return Consumer(
        broker.url, queue="orders", group=group, member=name, token=broker.tokens.consume
    )


async def test_a_wrong_token_gets_a_sentence_and_a_right_one_is_asked_for_once(orders, open_page):
    page = await open_page(page_url(orders), token="wrong-token-000001")
    await expect(page.get_by_role("alert")).to_contain_text("unknown token")
    await expect(page.get_by_label("Token", exact=True)).to_be_focused()
    assert not await page.evaluate("sessionStorage.length + localStorage.length")
    assert not await violations(page)
    await sign_in(page, "not a token")
    await expect(page.get_by_role("alert")).to_contain_text("no spaces")
    await sign_in(page, orders.tokens.admin)
    await expect(squares(page)).to_have_count(COUNT)
    await page.reload()
    await expect(squares(page)).to_have_count(COUNT)
    assert orders.tokens.admin not in page.url
    assert await page.evaluate("localStorage.length + document.cookie.length") == 0
    await page.get_by_role("button", name="Forget the token").click()
    await expect(page.get_by_label("Token", exact=True)).to_be_visible()
    assert await page.evaluate("sessionStorage.length") == 0


async def test_a_handoff_is_seen_live(orders, open_page):
    """Paused while the first member has a message in flight, then the second member's."""
    page = await open_page(page_url(orders), token=orders.tokens.admin)
    await page.get_by_label("Consumer group").select_option("workers")
    await publish_one_each(orders)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(member(orders, "first"))
        in_flight = [await anext(first) for _ in range(COUNT)]
        await expect(page.get_by_role("button", name="member A first")).to_have_count(COUNT)
        await stack.enter_async_context(member(orders, "second"))
        paused = squares(page, state="paused")
        await expect(paused).not_to_have_count(0)
        assert "gradient" in await paused.first.evaluate("e => getComputedStyle(e).backgroundImage")
        await expect(paused.first).to_have_accessible_name(
            re.compile("in a handoff, is handed over to second")
        )
        assert not await violations(page)
        for message in in_flight:
            first.ack_nowait(message)
        theirs = page.get_by_role("button", name="member B second")
        await expect(theirs).to_have_count(COUNT // 2)
        await expect(paused).to_have_count(0)
        await expect(page.get_by_role("log")).to_contain_text("first → second")
        await expect(page.get_by_role("log")).to_contain_text("more partitions")
        colour = "e => getComputedStyle(e).backgroundColor"
        others = page.get_by_role("button", name="member A first")
        assert await theirs.first.evaluate(colour) != await others.first.evaluate(colour)
        await page.get_by_role("link", name="Handoffs").click()
        strips = page.get_by_role("group", name="then first, then second")
        await expect(strips).to_have_count(COUNT // 2)
        await expect(strips.first.locator("rect.pause title").last).to_have_text(
            re.compile(r"first → second, pause [\d,]+ ms, newcomer")
        )
        rebalances = page.get_by_role("table", name="Rebalances")
        await expect(rebalances).to_contain_text(re.compile("member joined80"))
        await pauses_and_columns_are_reached_by_the_keyboard(page)
        moves = page.get_by_role("table", name="Moves")
        await expect(moves.get_by_role("row", name="first second")).to_have_count(COUNT // 2)
        assert not await violations(page)


async def pauses_and_columns_are_reached_by_the_keyboard(page):
    """Tab stops once; arrows go on; what is focused is told in words, also for the pointer."""
    told = page.locator("#time-told")
    await expect(page.locator("#timeline rect[tabindex='0']")).to_have_count(1)
    await page.locator("#span").focus()
    for _ in range(10):  # over the two tables before
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.tagName") == "rect":
            break
    await page.keyboard.press("End")
    column = re.compile(
        r"rebalance: member joined, 8 moves, 0 first assignments, longest pause [\d,]+ ms"
    )
    await expect(told).to_contain_text(column)
    await expect(page.locator("rect:focus")).to_have_accessible_name(column)
    await page.keyboard.press("ArrowDown")
    await expect(told).to_contain_text(re.compile(r"partition 1\.\d+: .* pause [\d,]+ ms, "))
    await expect(page.locator("#timeline rect[tabindex='0']")).to_have_count(1)
    await page.keyboard.press("ArrowUp")
    await expect(told).to_contain_text("rebalance: ")
    await page.locator("#strips rect.pause").last.hover()
    await expect(told).to_contain_text("partition 1.15: ")
    drawn_to = await page.locator("#time-to").text_content()
    await expect(page.locator("#time-to")).not_to_have_text(drawn_to)
    await expect(told).to_contain_text("partition 1.15: ")  # also when it is drawn again


async def test_the_page_asks_more_often_while_partitions_move(orders, open_page):
    """A handoff that is under way, or an epoch that has changed since the last answer."""
    page = await open_page(page_url(orders))
    asked, epoch, handoffs = [], 1, []

    async def note(route):
        asked.append(int(parse_qs(urlsplit(route.request.url).query)["max_age_ms"][0]))
        answer = await (await route.fetch()).json()
        group = answer["groups"]["workers"]
        group["handoffs"] = handoffs
        for row in group["partitions"].values():
            row.update(member="steady", epoch=epoch)
        answer["groups"] = {"workers": group}
        await route.fulfill(json=answer)

    async def until(period):
        before = len(asked)
        while period not in asked[before:]:
            await page.clock.run_for(1_000)

    await page.clock.install()
    await page.route("**/status?*", note)
    await sign_in(page, orders.tokens.admin)
    await expect(squares(page)).to_have_count(COUNT)
    await until(1000)
    assert set(asked) == {1000}
    epoch = 2
    await until(250)
    await expect(page.get_by_role("log")).to_contain_text("1.0: steady again")
    told, epoch = await page.locator("#moves li").count(), 1  # of a broker with an older status
    asked_before = len(asked)
    while len(asked) < asked_before + 3:
        await page.clock.run_for(1_000)
    epoch = 2
    await until(1000)
    assert await page.locator("#moves li").count() == told
    handoffs = [
        {"partition": "1.0", "source": "steady", "target": "n", "attempt": 1, "phase": "Draining"}
    ]
    await until(250)


async def test_groups_members_and_partitions_and_why_one_is_blocked(orders, open_page):
    """A dead letter has nowhere to go: the square is red and says so, the table says why."""
    page = await open_page(page_url(orders), token=orders.tokens.admin)
    await page.get_by_label("Consumer group").select_option("strict")
    await publish_one_each(orders)
    async with member(orders, "strict-one", "strict") as consumer:
        async for message in consumer:
            await consumer.nack(message, delay_s=0)
            if message.redeliveries == 1 and message.partition.index == 3:
                break
        blocked = page.locator("#squares button.blocked[data-partition='1.3']")
        await expect(blocked).to_have_count(1)
        await expect(blocked).to_have_text(re.compile("A!"))
        await blocked.click()
        await expect(page.locator("#detail")).to_contain_text("orders-strict-dlq: not found")
        await page.get_by_role("link", name="Groups").click()
        link = page.get_by_role("link", name="Groups")
        await expect(link).to_have_attribute("aria-current", "page")
        row = page.locator("#partition-table tbody tr").filter(
            has=page.get_by_role("rowheader", name="1.3", exact=True)
        )
        await expect(row).to_contain_text("orders-strict-dlq: not found")
        groups = page.get_by_role("table", name="Groups of the queue")
        await expect(groups.get_by_role("rowheader", name="strict")).to_be_visible()
        members = page.get_by_role("table", name="Members of strict")
        theirs = members.get_by_role("row").filter(has_text="strict-one")
        await expect(theirs).to_contain_text(str(COUNT))
        await page.get_by_label("Of", exact=True).select_option(label="strict-one")
        await page.get_by_label("only where something waits").check()
        await expect(row).to_be_visible()
        assert not await violations(page)


async def test_what_an_application_has_paused_and_given_back_is_told(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.admin)
    await publish_one_each(orders)
    async with member(orders, "pausing") as consumer:
        found = {}
        async for message in consumer:
            found[message.partition.index] = message
            if {3, 5} <= found.keys():
                break
        await consumer.nack(found[3], delay_s=600)
        consumer.pause([found[5].partition])
        await page.get_by_label("Consumer group").select_option("workers")
        paused = squares(page, state="withheld")
        await expect(paused).to_have_count(1)
        await expect(paused).to_have_accessible_name(re.compile("1.5, .*paused by its application"))
        await expect(page.locator("#map-summary")).to_contain_text("1 paused by their application")
        await paused.click()
        detail = page.locator("#detail")
        await expect(detail).to_contain_text("its application: pausing has called pause")
        await page.locator("#squares button[data-partition='1.3']").click()
        await expect(detail).to_contain_text(
            re.compile(r"wait for redelivery1, the next in \d+ min")
        )
        await page.get_by_role("link", name="Groups").click()
        await page.get_by_label("only where something waits").check()
        rows = page.locator("#partition-table tbody tr")
        third, fifth = (rows.filter(has_text=name) for name in ("1.3", "1.5"))
        await expect(third).to_contain_text(re.compile(r"1, the next in \d+ min"))
        await expect(fifth).to_contain_text("paused by its application")
        assert not await violations(page)


async def test_who_may_not_see_the_handoffs_is_told_so(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.consume, hash_="#handoffs")
    told = page.locator("#handoffs-summary")
    await expect(told).to_contain_text("needs a token of the role admin")
    await page.get_by_role("link", name="Groups").click()
    await expect(page.get_by_role("table", name="Groups of the queue")).to_be_visible()
    reasons = re.compile("brokers other than .* only a token of the role admin shows")
    table = page.locator("#partition-table")
    await expect(table).to_have_accessible_description(reasons)
    await expect(page.locator("#partitions-about")).to_be_visible()
    await page.get_by_role("link", name="Partition map").click()
    await expect(page.locator("#detail")).to_have_accessible_description(
        re.compile("only a token of the role admin shows that it is blocked")
    )


async def test_who_may_not_see_the_handoffs_does_not_ask_for_them_again(orders, open_page):
    """The status goes on, and no further snapshot is asked for, though partitions move."""
    asked = []

    async def note(route):
        asked.append(route.request.url)
        answer = await (await route.fetch()).json()
        if "/status" in route.request.url:  # Owners change, so a snapshot would be due after 3 s.
            answer["groups"]["workers"]["partitions"]["1.0"]["member"] = f"m{len(asked)}"
        await route.fulfill(json=answer, status=403 if "picture" in route.request.url else 200)

    page = await open_page(page_url(orders))
    await page.clock.install()
    await page.route("**/groups/*/picture", note)
    await page.route("**/status?*", note)
    await sign_in(page, orders.tokens.consume)
    await page.get_by_label("Consumer group").select_option("workers")
    await page.get_by_role("link", name="Handoffs").click()
    told = page.locator("#handoffs-summary")
    await expect(told).to_contain_text("does not ask again")
    before = len(asked)
    while len(asked) < before + 6:
        await page.clock.run_for(5_000)
    assert sum("picture" in each for each in asked) == 1
    await expect(told).to_contain_text("does not ask again")


async def test_the_name_of_a_member_of_every_object_is_no_view(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.admin, hash_="#constructor")
    await expect(squares(page)).to_have_count(COUNT)


async def test_a_token_that_is_forgotten_leaves_nothing_to_the_next_one(orders, open_page):
    """Neither in the views nor in what is hidden of them; an answer that comes late is void."""
    page = await open_page(page_url(orders), token=orders.tokens.admin, hash_="#handoffs")
    answered, late = asyncio.Event(), asyncio.Event()
    async with member(orders, "alone"):
        await page.get_by_label("Consumer group").select_option("workers")
        views = {"Partition map": "#legend", "Groups": "#member-table", "Handoffs": "#move-table"}
        for view, shown in views.items():
            await page.get_by_role("link", name=view).click()
            await expect(page.locator(shown)).to_contain_text("alone")

        async def hold(route):
            answer = await route.fetch()
            answered.set()
            await late.wait()
            await route.fulfill(response=answer)

        await page.route("**/groups/strict/picture", hold)
        await page.get_by_label("Consumer group").select_option("strict")
        await answered.wait()
        await page.get_by_role("button", name="Forget the token").click()
        everything = await page.locator("body").inner_html()
        for name in ("alone", "workers", "strict"):
            assert name not in everything
        await sign_in(page, orders.tokens.consume)
        late.set()
        told = page.locator("#handoffs-summary")
        await expect(told).to_contain_text("needs a token of the role admin")
        for rows in ("#move-table tbody tr", "#rebalance-table tbody tr", "#strips li"):
            await expect(page.locator(rows)).to_have_count(0)


async def test_handoffs_of_another_group_or_of_a_lost_role_are_not_shown(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.admin, hash_="#handoffs")
    group = page.get_by_label("Consumer group")
    moves = page.locator("#move-table tbody tr")
    answered, late = asyncio.Event(), asyncio.Event()

    async def hold(route):
        answered.set()
        await late.wait()
        await route.continue_()

    async def lose_role(route):
        headers = route.request.headers | {"authorization": f"Bearer {orders.tokens.consume}"}
        await route.continue_(headers=headers)

    await page.route("**/groups/strict/picture", hold)
    async with member(orders, "alone"):
        await group.select_option("workers")
        await expect(moves.filter(has_text="alone")).not_to_have_count(0)
        await group.select_option("strict")
        await answered.wait()
        await expect(moves).to_have_count(0)
        await group.select_option("workers")
        late.set()
        await expect(moves.filter(has_text="alone")).not_to_have_count(0)
        await page.route("**/groups/workers/picture", lose_role)
    # The member has left: partitions have moved, and the page reads again.
    told = page.locator("#handoffs-summary")
    await expect(told).to_contain_text("needs a token of the role admin")
    await expect(moves).to_have_count(0)
    await expect(page.locator("#strips li")).to_have_count(0)


async def test_a_broker_of_another_queue_is_told_as_such(orders, open_page):
    """It has taken the token: that the queue is not there is all that is wrong."""
    page = await open_page(page_url(orders))

    async def ask_for_another(route):
        await route.continue_(url=route.request.url.replace("/orders/", "/payments/"))

    await page.route("**/status?*", ask_for_another)
    await sign_in(page, orders.tokens.admin)
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("payments: this broker serves")
    await expect(alert).not_to_contain_text("refuses the token")


async def test_squares_are_reached_by_the_keyboard(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.consume)
    await page.locator("#squares button[tabindex='0']").focus()
    await page.keyboard.press("End")
    await expect(page.locator("button:focus")).to_have_attribute("data-partition", "1.15")
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator("#detail")).to_contain_text("1.14")
    await page.keyboard.press("Home")
    await expect(page.locator("button:focus")).to_have_attribute("data-partition", "1.0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_narrow_page_is_readable_in_the_dark_and_in_the_light(orders, open_page, scheme):
    """Nothing but tables is wider than 400 px, and these scroll by themselves."""
    look = {"viewport": {"width": 400, "height": 800}, "color_scheme": scheme}
    page = await open_page(page_url(orders), token=orders.tokens.admin, **look)
    views = {
        "Partition map": "#squares button",
        "Groups": "#group-table tbody tr",
        "Handoffs": "#rebalance-table thead",
    }
    for view, shown in views.items():
        await page.get_by_role("link", name=view).click()
        await expect(page.locator(shown).last).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 400
        assert not await violations(page)


async def test_names_and_reasons_are_shown_as_text(orders, open_page):
    """What the broker answers is text, whatever it looks like."""
    page = await open_page(page_url(orders))
    evil = "<img src=x onerror=alert(1)>"

    async def poison(route):
        answer = await (await route.fetch()).json()
        group = next(iter(answer["groups"].values()))
        group["members"].append({"member": evil, "partitions": 1, "state": "Active"})
        group["partitions"]["1.0"] |= {"member": evil, "blocked": evil}
        await route.fulfill(json={**answer, "groups": {evil: group}})

    async def poison_moves(route):
        theirs = f"{page_url(orders)}/v1/queues/orders/groups/workers/picture"
        answer = await (await route.fetch(url=theirs)).json()
        move = {"at_ms": answer["now_ms"], "pause_ms": 5, "source": evil, "target": evil}
        answer["past"] = {"1.0": [{**move, "evidence": evil, "trigger": evil, "forced": evil}]}
        await route.fulfill(json=answer)

    await page.route("**/status?*", poison)
    await page.route("**/picture", poison_moves)
    await sign_in(page, orders.tokens.admin)
    await expect(page.locator("#legend")).to_contain_text(evil)
    await page.get_by_role("link", name="Groups").click()
    await expect(page.locator("#partition-table")).to_contain_text(evil)
    await page.get_by_role("link", name="Handoffs").click()
    await expect(page.locator("#move-table")).to_contain_text(f"forced: {evil}")
    await expect(page.locator("#strips rect.pause title")).to_contain_text(evil)
    assert await page.locator("img").count() == 0


async def test_a_broker_that_is_killed_is_named_and_comes_back(orders, open_page):
    """The page keeps what it knew, says from when it is, and goes on by itself."""
    page = await open_page(page_url(orders), token=orders.tokens.admin)
    await expect(squares(page)).to_have_count(COUNT)
    broker = orders.queue.brokers[0]
    broker.freeze()
    notice = page.locator("#notice")
    await expect(notice).to_contain_text("does not answer")
    await expect(notice).to_contain_text("shows the state of")
    await expect(squares(page)).to_have_count(COUNT)
    await broker.kill()
    await expect(notice).to_have_text("")
    await expect(squares(page)).to_have_count(COUNT)


async def test_a_thousand_partitions_fit(open_page):
    async with LocalBroker(partitions=1024, lease_ttl_s=30.0) as broker:
        consumer = Consumer(
            broker.url, queue="orders", group="workers", member="one", token=broker.tokens.consume
        )
        async with consumer:
            narrow = {"width": 400, "height": 800}
            page = await open_page(page_url(broker), token=broker.tokens.admin, viewport=narrow)
            await expect(page.get_by_role("button", name="member A one")).to_have_count(1024)
            box = await squares(page).first.bounding_box()
            assert box["width"] >= 24
            assert box["height"] >= 24
            assert await page.evaluate("document.documentElement.scrollWidth") <= 400
            await page.get_by_label("Members of the group").fill("2")
            await page.keyboard.press("Enter")
            await expect(squares(page, state="planned")).to_have_count(512)
            await expect(squares(page, state="planned").first).to_have_text(re.compile(r"^\+1"))
            assert not await violations(page)
