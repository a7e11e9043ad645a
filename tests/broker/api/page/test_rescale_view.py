"""The page while the number of partitions changes: the phase, who holds it up, and the squares."""

import pytest
import pytest_asyncio
from playwright.async_api import expect

from partq import Message, Producer
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.core.layout import Layout
from partq.testing.frame_peers import key_of
from partq.testing.local_broker import LocalBroker
from partq.wire.calls.bodies import RescaleBody
from partq.wire.calls.status import RescalePlan
from tests.broker.api.page.conftest import WAIT_MS
from tests.broker.api.page.test_page import violations

pytestmark = pytest.mark.asyncio(loop_scope="module")

expect.set_options(timeout=WAIT_MS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def orders(browser):
    async with LocalBroker(partitions=4, groups=("workers",)) as broker:
        yield broker


async def change(broker, count):
    options = ConnectionOptions(broker.url, "orders", token=broker.tokens.admin)
    async with Session(options) as session:
        body = RescaleBody(count)
        await session.ask("POST", "/partitions", RescalePlan, body, prefix="/admin")


async def test_a_change_is_shown_until_its_end_with_what_holds_it_up(orders, open_page):
    page = await open_page(orders.url, token=orders.tokens.admin)
    await expect(page.locator("#squares button")).to_have_count(4)
    await expect(page.locator("#rescale")).to_be_hidden()
    token = orders.tokens.produce
    async with Producer(orders.url, queue="orders", token=token) as producer:
        layout = Layout.first(4)
        await (await producer.send_many([Message(key_of(layout, at), b"v") for at in range(4)]))
    await change(orders, 3)
    await expect(page.locator("#rescale-phases .now")).to_have_text("Draining")
    summary = page.locator("#rescale-summary")
    await expect(summary).to_contain_text("4 → 3 partitions, generation 2")
    await expect(summary).to_contain_text(
        "group workers has 4 older messages to acknowledge before 3 new partitions"
    )
    await expect(page.locator("#squares button")).to_have_count(7)
    await expect(page.locator("#squares button.retired")).to_have_count(4)
    await expect(page.locator("#squares button.held")).to_have_count(3)
    await page.get_by_role("button", name="partition 1.0").click()
    await expect(page.locator("#detail")).to_contain_text("none: it is read to its end")
    assert not await violations(page)
    await change(orders, 6)
    await expect(page.locator("#rescale-earlier")).to_contain_text("4 → 3 partitions, Draining")
