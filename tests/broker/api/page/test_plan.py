"""What another number of members would move, on the map: asked of a real planner in a browser."""

import re
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from playwright.async_api import expect

from partq.testing.local_broker import LocalBroker
from tests.broker.api.page.conftest import WAIT_MS
from tests.broker.api.page.test_page import COUNT, GROUPS, member, page_url, squares, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=WAIT_MS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orders(browser):
    """A queue of 16 partitions at two brokers, which two members share."""
    async with (
        LocalBroker(partitions=COUNT, groups=GROUPS, broker_count=2) as broker,
        AsyncExitStack() as stack,
    ):
        for name in ("first", "second"):
            await stack.enter_async_context(member(broker, name))
        yield broker


async def open_map(orders, open_page, *, token=None, **look):
    """Return the page with the group of both members, which have their partitions."""
    page = await open_page(page_url(orders), token=token or orders.tokens.admin, **look)
    await page.get_by_label("Consumer group").select_option("workers")
    for name in ("first", "second"):
        await expect(page.locator("#legend li").filter(has_text=name)).to_contain_text(
            "8 partitions"
        )
    return page


async def test_a_plan_is_drawn_on_the_map_and_changes_nothing(orders, open_page):
    page = await open_map(orders, open_page)
    await page.get_by_label("Members of the group").focus()
    await page.keyboard.type("3")
    await page.keyboard.press("Enter")
    summary = page.locator("#plan-summary")
    await expect(summary).to_contain_text("With 3 members 5 partitions would move")
    await expect(summary).to_contain_text("nothing has been changed")
    planned = squares(page, state="planned")
    await expect(planned).to_have_count(5)
    await expect(planned.first).to_have_text(re.compile(r"^[AB]→\+1"))
    await expect(planned.first).to_have_accessible_name(re.compile("would move to new-1"))
    moves = page.get_by_role("table", name="Moves of the plan").locator("tbody tr")
    await expect(moves).to_have_count(5)
    await expect(moves.filter(has_text=re.compile(r"(first|second)new-1balance"))).to_have_count(5)
    after = page.get_by_role("table", name="Partitions of each member")
    await expect(after.get_by_role("row", name="+1: new-1 0 5")).to_be_visible()
    assert not await violations(page)
    await page.get_by_role("button", name="Back to the present").click()
    await expect(planned).to_have_count(0)
    await expect(page.get_by_label("Members of the group")).to_be_focused()
    await expect(page.get_by_role("button", name=re.compile("member A"))).to_have_count(8)
    await expect(page.locator("#moves li")).to_have_count(0)


async def test_a_plan_of_fewer_members_is_drawn_and_is_forgotten_with_the_token(orders, open_page):
    narrow = {"width": 400, "height": 800}
    page = await open_map(orders, open_page, viewport=narrow, color_scheme="dark")
    await page.get_by_label("Members of the group").fill("0")
    await page.get_by_role("button", name="Show the plan").click()
    await expect(squares(page, state="planned")).to_have_count(16)
    await expect(squares(page, state="planned").first).to_have_text(re.compile("^[AB]→-"))
    await page.get_by_label("Members of the group").fill("1")
    await page.get_by_role("button", name="Show the plan").click()
    await expect(squares(page, state="planned")).to_have_count(8)
    await expect(page.locator("#plan-moves")).to_contain_text("its member leaves")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 400
    assert not await violations(page)
    await page.get_by_role("button", name="Forget the token").click()
    assert "second" not in await page.locator("body").inner_html()


async def test_a_plan_says_that_the_group_has_changed_since(orders, open_page):
    page = await open_map(orders, open_page)
    await page.get_by_label("Members of the group").fill("2")
    await page.keyboard.press("Enter")
    summary = page.locator("#plan-summary")
    await expect(summary).to_contain_text("0 partitions would move")
    await expect(summary).not_to_contain_text("have changed since")
    async with member(orders, "third"):
        await expect(summary).to_contain_text("have changed since: show the plan again")


async def test_a_wrong_number_of_members_gets_a_sentence(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.admin)
    count = page.get_by_label("Members of the group")
    for given in ("many", "-1", "1001", "2.5", "99999", ""):
        await count.fill(given)
        await count.press("Enter")
        got = f'"{given}"' if given else "nothing"
        await expect(page.locator("#plan-error")).to_contain_text(
            f"got {got}, expected a whole number from 0 to 1,000"
        )
        await expect(count).to_be_focused()
        await expect(count).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#plan-result")).to_be_hidden()
    assert not await violations(page)


async def test_a_plan_needs_an_admin(orders, open_page):
    page = await open_page(page_url(orders), token=orders.tokens.consume)
    await page.get_by_label("Members of the group").fill("3")
    await page.keyboard.press("Enter")
    await expect(page.locator("#plan-error")).to_contain_text("needs a token of the role admin")
