"""Calls about partitions are repeated until their owners have answered, and no longer."""

import pytest

from partq import LogReader, PartitionId
from partq.client.transport.answers import read
from partq.client.transport.layout import QueueLayout
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.partition_router import PartitionRouter
from partq.client.transport.session import Session, UntrustedError
from partq.core.layout import Layout
from partq.core.rescale.layout_steps import commit, prepare
from partq.errors import (
    ConflictError,
    FencedError,
    InternalError,
    NotOwnerError,
    QuotaExceededError,
    UnauthorizedError,
    UnavailableError,
    UnknownPartitionError,
)
from partq.wire.calls import entries
from partq.wire.calls.answers import UNSET, BrokerUrl, LayoutAnswer, LayoutGeneration, Limits
from partq.wire.calls.positions import PositionResult
from partq.wire.layout_record import lineage_form, ranges_form, times_form

P0, P1, P2 = (PartitionId(1, index) for index in range(3))


def layout_of(*counts, owner="http://b0"):
    """Return the layout of a queue that had these partition counts, one after another."""
    layout = Layout.first(counts[0] if counts else 3)
    for count in counts[1:]:
        layout = commit(prepare(layout, count), 1_700_000_000_000)
    is_first = layout.generation == 1
    return QueueLayout.of(
        LayoutAnswer(
            queue="orders",
            namespace="default",
            uid="1",
            generations=[LayoutGeneration(1, layout.partition_count)] if is_first else [],
            brokers=[BrokerUrl("b0", owner)],
            owners=dict.fromkeys(map(str, layout.partitions()), "b0"),
            limits=Limits(max_message_bytes=1, max_unacked_per_flow=1),
            keyless_policy="Random",
            groups=[],
            generation=UNSET if is_first else layout.generation,
            table=UNSET if is_first else ranges_form(layout.table.slots),
            lineage=UNSET if is_first else lineage_form(layout.lineage),
            retired=UNSET if is_first else times_form(layout.retired),
        )
    )


def script(monkeypatch, session, *, layouts=(), asks=(), fetches=()):
    """Have a session answer what a test says, in turn; the last layout stays.

    Errors are raised.
    """
    said = {"layout": list(layouts or [layout_of()]), "ask": list(asks), "fetch": list(fetches)}
    calls = []

    def answer(name):
        async def answered(*args, **_):
            calls.append((name, *args))
            left = said[name]
            found = left[0] if name == "layout" and len(left) == 1 else left.pop(0)
            if isinstance(found, Exception):
                raise found
            if name == "ask":
                _, path, kind, *_ = args
                return read(path, found, kind)
            return found

        return answered

    for name in said:
        monkeypatch.setattr(session, name, answer(name))
    return calls


@pytest.fixture
def owners():
    session = Session(ConnectionOptions("http://seed", "orders"))
    return PartitionRouter(session, timeout_s=20.0)


def done(*partitions, **failed):
    answers = {str(partition): {"offset": 1} for partition in partitions}
    errors = {name: {"error": {"code": code, "message": "m"}} for name, code in failed.items()}
    return {"partitions": answers | errors}


def names(partitions):
    return {"partitions": [str(partition) for partition in partitions]}


async def ask(owners, *partitions):
    return await owners.ask_each("POST", "/x", partitions, names, PositionResult)


async def test_those_without_an_answer_are_asked_for_again_and_no_other(owners, monkeypatch):
    calls = script(
        monkeypatch,
        owners.session,
        asks=[
            done(P0, **{"1.1": "not_owner", "1.2": "fenced"}),
            UnavailableError("nobody"),
            done(P1, **{"1.2": "unavailable"}),
            done(P2),
        ],
    )
    assert await ask(owners, P0, P1, P2) == dict.fromkeys((P0, P1, P2), PositionResult(1))
    bodies = [call[4]["partitions"] for call in calls if call[0] == "ask"]
    assert bodies == [["1.0", "1.1", "1.2"], ["1.1", "1.2"], ["1.1", "1.2"], ["1.2"]]


@pytest.mark.parametrize(
    ("code", "error"), [("conflict", ConflictError), ("quota_exceeded", QuotaExceededError)]
)
async def test_a_refusal_is_told_once_all_others_are_done(owners, monkeypatch, code, error):
    """Even one that a caller may repeat: what a quota holds back does not go by itself."""
    calls = script(
        monkeypatch,
        owners.session,
        asks=[done(P2, **{"1.0": code, "1.1": "unavailable"}), done(P1)],
    )
    with pytest.raises(error):
        await ask(owners, P0, P1, P2)
    assert [call[0] for call in calls].count("ask") == 2


@pytest.mark.parametrize("answer", [{}, [], {"partitions": {}}, {"partitions": {"1.1": {}}}])
async def test_an_answer_that_is_none_is_not_asked_for_again(owners, monkeypatch, answer):
    script(monkeypatch, owners.session, asks=[answer])
    with pytest.raises(InternalError, match="unusable"):
        await ask(owners, P0)


async def test_a_moved_partition_is_looked_for(owners, monkeypatch):
    """By a new layout after each failure, whatever kind it is."""
    places = ["http://b0", "http://b1", "http://b2", "http://b3"]
    script(monkeypatch, owners.session, layouts=[layout_of(owner=url) for url in places])
    failures = [NotOwnerError("moved"), OSError("reset"), FencedError("lost meanwhile")]
    tried = []

    async def call(url):
        tried.append(url)
        if failures:
            raise failures.pop(0)
        return "here"

    assert await owners.at_owner(P0, call) == "here"
    assert tried == places


async def test_what_nobody_repeats_is_told_at_once(owners, monkeypatch):
    script(monkeypatch, owners.session)

    async def refuse(_):
        raise ConflictError("no")

    with pytest.raises(ConflictError):
        await owners.at_owner(P0, refuse)
    for error in (UntrustedError("another CA"), UnauthorizedError("who?")):
        owners._queue_layout = None
        script(monkeypatch, owners.session, layouts=[error, layout_of()])
        with pytest.raises(type(error)):
            await owners.queue_layout()


async def test_the_last_failure_is_told_when_the_time_is_over(monkeypatch):
    session = Session(ConnectionOptions("http://seed", "orders"))
    owners = PartitionRouter(session, timeout_s=0.0)
    script(monkeypatch, session, layouts=[UnavailableError("no broker answers: seed")])
    with pytest.raises(UnavailableError, match="seed"):
        await owners.queue_layout()
    script(monkeypatch, session, asks=[done(P0, **{"1.1": "unavailable"})])
    with pytest.raises(UnavailableError, match="m"):
        await ask(owners, P0, P1)

    async def reset(_):
        raise OSError("connection reset")

    with pytest.raises(UnavailableError, match="http://b0: connection reset"):
        await owners.at_owner(P0, reset)


async def test_all_partitions_are_those_of_now(owners, monkeypatch):
    layouts = [layout_of(1), layout_of(1, 2)]
    script(monkeypatch, owners.session, layouts=layouts)
    assert await owners.checked(None) == [P0]
    assert await owners.checked(None) == [P0, PartitionId(2, 1)]


async def test_a_generation_that_has_come_since_is_found(owners, monkeypatch):
    grown = layout_of(2, 3)
    script(monkeypatch, owners.session, layouts=[layout_of(2), grown])
    assert await owners.checked([P0]) == [P0]
    assert await owners.checked([PartitionId(2, 2)]) == [PartitionId(2, 2)]
    with pytest.raises(UnknownPartitionError, match=r"partition 3\.0: not in the queue's layout"):
        await owners.checked([PartitionId(3, 0)])


# ---- a reader's answers -------------------------------------------------------------------------


@pytest.fixture
async def reader():
    async with LogReader("http://seed", queue="orders", fetch_bytes=1000) as reader:
        yield reader


def shown(*spans, end=9):
    data = bytes(entries.HEADER_SIZE)
    batches = [entries.StoredBatch(first, count, 5, 1, 0, data) for first, count in spans]
    return entries.encode(0, end, batches)


async def test_every_generation_is_read_the_oldest_first(reader, monkeypatch):
    script(monkeypatch, reader._router.session, layouts=[layout_of(2, 3, 1)])
    assert list(map(str, await reader.partitions())) == ["1.0", "1.1", "2.2", "3.0"]


async def test_each_answer_is_held_against_the_one_before(reader, monkeypatch):
    """The broker is told who appended what was read last: it refuses to read on in another log."""
    fetches = [shown((0, 3)), shown((3, 1), (4, 1)), shown((5, 4))]
    calls = script(monkeypatch, reader._router.session, fetches=fetches)
    found = [each.first async for each in reader.entries(P0, 0, 9)]
    assert found == [0, 3, 4, 5]
    queries = [call[3] for call in calls if call[0] == "fetch"]
    assert [(each["from"], each["append_broker_epoch"]) for each in queries] == [
        (0, 0), (3, 5), (5, 5),
    ]  # fmt: skip
    assert {each["max_bytes"] for each in queries} == {1000}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(shown((1, 3))[:-1], id="cut off"),
        pytest.param(shown(), id="no batch"),
        pytest.param(shown((0, 1)), id="what was shown before"),
        pytest.param(shown((2, 1)), id="a batch is passed over"),
    ],
)
async def test_a_broker_that_makes_no_sense_is_not_believed(reader, monkeypatch, answer):
    """Nor asked for ever, as one would be that shows nothing more."""
    script(monkeypatch, reader._router.session, fetches=[shown((0, 1)), answer])
    with pytest.raises(InternalError):
        async for _ in reader.entries(P0, 0, 9):
            pass


async def test_a_position_that_is_no_number_is_not_believed(reader, monkeypatch):
    for answer in ({"offset": "1"}, {}, {"offset": 1, "append_broker_epoch": None}):
        script(monkeypatch, reader._router.session, asks=[{"partitions": {"1.0": answer}}])
        with pytest.raises(InternalError, match="unusable"):
            await reader.bounds([P0])
