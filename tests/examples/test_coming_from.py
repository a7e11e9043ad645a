"""The programs of docs/coming-from/ that use partq run as they stand there, on a real queue."""

import os
import re
import signal
from contextlib import nullcontext
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
ENDING = {"kafka": signal.SIGINT, "rabbitmq": signal.SIGTERM}
"""The signal that ends the program, of pages whose program handles signals."""


@pytest.fixture
def own_handlers():
    """The handlers of the signals are those of before when the test has ended."""
    signums = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(signum) for signum in signums]
    yield
    for signum, handler in zip(signums, before, strict=True):
        signal.signal(signum, handler)


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


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("page", PAGES)
def test_the_program_publishes_and_consumes(broker, page):
    """Two orders of the same customer wait for it; its own is behind them."""
    shown = program(f"coming-from/{page}.md", "After")
    ends_by_signals = "signal.signal(" in shown
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
                if not ends_by_signals:
                    raise EnoughError
                os.kill(os.getpid(), ENDING[page])  # a run calls this in another thread

    text = shown.replace('"workers"', repr(page)).replace("delay_s=5", "delay_s=0.01")
    assert text != shown
    names = {
        "url": broker.url,
        "token": broker.tokens.admin,
        "process": process,
        "InvalidOrderError": InvalidOrderError,
        "TryAgainLaterError": TryAgainLaterError,
    }

    with Producer(broker.url, queue="orders", token=broker.tokens.admin) as producer:
        for value in mine[:2]:
            producer.send_and_wait(value, key="customer-7")
    with nullcontext() if ends_by_signals else pytest.raises(EnoughError):
        exec(text, names)
    assert seen == expected
