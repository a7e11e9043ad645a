"""What a scrape shows of the clients of a process."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from partq import Consumer, Message, Producer, QueuesConsumer, SettingsError, sync
from partq.client.transport import tasks
from partq.client.transport.options import ConnectionOptions
from partq.telemetry.prometheus import ClientCollector
from partq.testing.local_broker import LocalBroker
from tests.client.member import WAIT_S
from tests.sync.programs import output_of, start_program

COUNT = 4
LABELS = '{group="workers",queue="orders"}'


@pytest.fixture
async def local():
    async with LocalBroker(partitions=2, groups=["workers", "several", "blocking"]) as broker:
        yield broker


def producer(local):
    return Producer(local.url, queue="orders", token=local.tokens.produce)


def consumer(local, **options):
    options = {"queue": "orders", "group": "workers", "token": local.tokens.consume, **options}
    return Consumer(local.url, **options, handle_signals=False)


def scrape(registry):
    lines = generate_latest(registry).decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }


async def test_a_scrape_from_another_thread_shows_all_clients(local):
    registry = CollectorRegistry()
    collector = ClientCollector()
    registry.register(collector)
    assert scrape(registry) == {}
    options = ConnectionOptions(local.url, "orders", token=local.tokens.consume)
    async with (
        asyncio.timeout(WAIT_S), producer(local) as first, producer(local) as second,
        consumer(local) as taking,
        QueuesConsumer(
            queues=["orders"], group="several", find=lambda: [options], handle_signals=False
        ) as several,
    ):  # fmt: skip
        for client in (first, second, taking, taking, several):
            collector.add(client)
        await first.send_and_wait(b"v", key="k")
        await (await second.send_many([Message(f"k{n}", b"v") for n in range(COUNT - 1)]))
        message = await anext(taking)
        shown = await asyncio.to_thread(scrape, registry)
        assert shown[f"partq_consumer_messages_in_hand{LABELS}"] == 1
        await taking.nack(message, delay_s=0)
        acked = 0
        while acked < COUNT - 1:
            await taking.ack(await anext(taking), confirmed=True)
            acked += 1
        await anext(several)
        shown = await asyncio.to_thread(scrape, registry)
        assert shown['partq_producer_messages_sent_total{queue="orders"}'] == COUNT
        assert shown['partq_producer_messages_stored_total{queue="orders"}'] == COUNT
        assert shown['partq_producer_messages_in_flight{queue="orders"}'] == 0
        assert shown['partq_producer_ack_seconds{quantile="0.99",queue="orders"}'] > 0
        assert shown[f"partq_consumer_messages_acked_total{LABELS}"] == COUNT - 1
        assert shown[f"partq_consumer_messages_nacked_total{LABELS}"] == 1
        names = ("handed_out_total", "returned_total", "undecodable_total", "buffered")
        taken = sum(shown[f"partq_consumer_messages_{name}{LABELS}"] for name in names)
        assert shown[f"partq_consumer_messages_received_total{LABELS}"] == taken
        nacked = (
            'partq_consumer_messages_redelivered_total{cause="nack",group="workers",queue="orders"}'
        )
        assert shown[nacked] >= 1
        several = 'partq_consumer_messages_handed_out_total{group="several",queue="orders"}'
        assert shown[several] == 1
        collector.remove(second)
        assert scrape(registry)['partq_producer_messages_sent_total{queue="orders"}'] == 1


async def test_a_client_whose_loop_stands_still_holds_up_no_scrape(local, monkeypatch, caplog):
    monkeypatch.setattr(tasks, "MAKE_TIMEOUT_S", 0.01)
    registry = CollectorRegistry()
    async with producer(local) as opened:
        registry.register(ClientCollector(opened))
        shown = []
        scraping = threading.Thread(target=lambda: shown.append(scrape(registry)))
        scraping.start()
        scraping.join()  # the loop stands still
        assert shown == [{}]
        assert "its event loop has stood still" in caplog.text
        assert await asyncio.to_thread(scrape, registry)


async def test_a_child_of_a_fork_leaves_out_what_its_parent_has_opened(local):
    program = start_program(
        local,
        """
from prometheus_client import CollectorRegistry, generate_latest
from partq.telemetry.prometheus import ClientCollector

registry = CollectorRegistry()
with Producer(url, queue="orders", token=produce) as producer:
    registry.register(ClientCollector(producer))
    shown = bool(generate_latest(registry))
    child = os.fork()
    if not child:
        print("child:", bool(generate_latest(registry)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent:", shown)
""",
    )
    told, *shown = (await asyncio.to_thread(output_of, program)).splitlines()
    assert "forked from it" in told
    assert shown == ["child: False", "parent: True"]


async def test_blocking_and_closed_clients_are_shown(local):
    registry = CollectorRegistry()

    def work():
        options = {"queue": "orders", "token": local.tokens.produce}
        with sync.Producer(local.url, **options) as opened:
            registry.register(ClientCollector(opened))
            opened.send_and_wait(b"v", key="k")
        return opened

    opened = await asyncio.to_thread(work)
    assert (opened.stats().stored, opened.queue) == (1, "orders")
    assert scrape(registry)['partq_producer_messages_stored_total{queue="orders"}'] == 1


async def test_what_is_sent_is_stored_failed_or_in_flight(local):
    async with producer(local) as opened:
        sent = await opened.send(b"v", key="k")
        stats = opened.stats()
        assert (stats.sent, stats.stored, stats.in_flight) == (1, 0, 1)
        assert stats.in_flight_bytes > 0
        assert stats.ack_p50_s is None
        await sent
        stats = opened.stats()
        assert (stats.sent, stats.stored, stats.failed, stats.resent) == (1, 1, 0, 0)
        assert stats.ack_p50_s <= stats.ack_p99_s


@pytest.mark.parametrize("given", [object(), None, [], ConnectionOptions("http://b:1", "orders")])
def test_something_else_is_refused_when_it_is_added(given):
    collector = ClientCollector()
    with pytest.raises(SettingsError, match=f"got {type(given).__name__}, expected a Producer"):
        collector.add(given)
    assert list(collector.collect()) == []
