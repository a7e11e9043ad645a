"""What a query finds out at its beginning, before it waits for anything."""

from dataclasses import replace

import pytest

from partq.errors import NotFoundError, UnauthorizedError, UnavailableError
from partq.spark.connectivity import find_brokers
from partq.spark.read.options import read_options
from partq.spark.write.sink_options import write_options
from tests.spark.live_queue import live_queue

HOW = {"url": "http://127.0.0.1:1", "queue": "orders"}


@pytest.fixture(scope="module")
def queue():
    with live_queue(partitions=1) as running:
        yield running


def connection(given, *, answer_s=0.1):
    return replace(read_options(given, is_stream=True).connection, answer_s=answer_s)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1: cannot connect: Connect"),
        ("http://partq.invalid:7411", "http://partq.invalid:7411: cannot connect: "),
        ("http://127.0.0.1:1,http://127.0.0.1:2", "no broker answers: .*:1: .*; .*:2: "),
    ],
)
def test_an_address_that_nobody_is_behind_is_refused(url, sentence):
    with pytest.raises(UnavailableError, match=sentence) as caught:
        find_brokers(connection(HOW | {"url": url}))
    assert type(caught.value) is UnavailableError, "of a kind that the pipeline knows"


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [({"token": "wrong"}, UnauthorizedError), ({"queue": "others"}, NotFoundError)],
)
def test_what_a_broker_refuses_is_not_tried_again(queue, wrong, kind):
    with pytest.raises(kind):
        find_brokers(connection(queue.options() | wrong, answer_s=3600.0))


def test_without_a_token_the_options_for_it_are_named(queue):
    given = {"url": queue.broker.url, "queue": queue.name}
    with pytest.raises(UnauthorizedError, match="set the option token or tokenFile"):
        find_brokers(connection(given))


def test_one_broker_of_several_is_enough(queue):
    find_brokers(connection(queue.options(url=f"http://127.0.0.1:1,{queue.broker.url}")))


def test_an_address_is_waited_for_shortly_and_by_micro_batches_as_long_as_they_are_told():
    assert read_options(HOW, is_stream=True).connection.answer_s == 5
    assert read_options(HOW | {"timeoutSeconds": "2"}, is_stream=False).connection.answer_s == 2
    assert write_options(HOW, is_stream=False).connection.answer_s == 5
    written = write_options(HOW, is_stream=True).connection
    assert (written.answer_s, written.timeout_s) == (10, 120)
    told = write_options(HOW | {"timeoutSeconds": "60"}, is_stream=True).connection
    assert (told.answer_s, told.timeout_s) == (60, 60)


def test_a_broker_without_its_store_is_left_to_who_waits_for_it(queue):
    redis = queue.broker.runtime.redis
    queue.run(redis.stop())
    try:
        find_brokers(connection(queue.options()))
    finally:
        queue.run(redis.start())
