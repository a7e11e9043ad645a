"""The programs of docs/coming-from/ that use partq run as they stand there, on a real queue."""

import asyncio
import re
from itertools import chain, repeat

import pytest

from partq.sync import Producer
from partq.testing.local_broker import LocalBroker
from tests.examples.pages import ROOT, program

PAGES = sorted(path.stem for path in (ROOT / "docs" / "coming-from").glob("*.md"))


class EnoughError(Exception):
    """What a loop without an end is left by."""


class InvalidOrderError(Exception):
    """What no repeat helps against."""


class TryAgainLaterError(Exception):
    """What a repeat helps against."""


FAILURES = {
    "pulsar": [("first", TryAgainLaterError)],
    "service-bus": [("first", InvalidOrderError), ("second", TryAgainLaterError)],
}
"""What the processing raises at the first try of a message, by page."""


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(groups=PAGES) as local:
        yield local


def test_each_system_has_a_page():
    assert PAGES == ["kafka", "pulsar", "rabbitmq", "service-bus", "solace"]


@pytest.mark.parametrize(
    ("page", "system"),
    [
        ("pulsar", "Apache Pulsar"),
        ("service-bus", "Azure Service Bus"),
        ("solace", "Solace PubSub+"),
    ],
)
def test_it_counts_the_rows_of_its_system(page, system):
    rows = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    (count,) = re.findall(rf"^\| \*\*{re.escape(system)}\*\* \| (\d+) \|", rows, re.MULTILINE)
    text = " ".join((ROOT / "docs" / "coming-from" / f"{page}.md").read_text("utf-8").split())
    assert f"compares {count} statements" in text


@pytest.mark.parametrize("page", PAGES)
async def test_the_program_publishes_and_consumes(broker, page):
    """Two orders of the same customer wait for it; its own is behind them."""
    mine = [f"{page} first".encode(), f"{page} second".encode(), b"paid"]
    failures = {f"{page} {which}".encode(): error for which, error in FAILURES.get(page, [])}
    expected = list(
        chain.from_iterable(
            repeat(value, 2 if failures.get(value) is TryAgainLaterError else 1) for value in mine
        )
    )
    seen = []

    def process(key, value):
        if seen or value == mine[0]:  # before them are those of other pages
            seen.append(value)
            assert key == "customer-7"
            if error := failures.pop(value, None):
                raise error("not yet")
            if value == b"paid":
                raise EnoughError

    shown = program(f"coming-from/{page}.md", "After")
    text = shown.replace('"workers"', repr(page)).replace("delay_s=5", "delay_s=0.01")
    assert text != shown
    names = {
        "url": broker.url,
        "token": broker.tokens.admin,
        "process": process,
        "InvalidOrderError": InvalidOrderError,
        "TryAgainLaterError": TryAgainLaterError,
    }

    def run():
        with Producer(broker.url, queue="orders", token=broker.tokens.admin) as producer:
            for value in mine[:2]:
                producer.send_and_wait(value, key="customer-7")
        with pytest.raises(EnoughError):
            exec(text, names)

    await asyncio.wait_for(asyncio.to_thread(run), 60)
    assert seen == expected
