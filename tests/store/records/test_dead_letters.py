"""The outbox of dead letters: moved, held, sent and taken out, whatever is repeated or lost."""

import pytest

from partq.core.dead_letters import DeadLetterReason, LetterNote, producer_of
from partq.core.model import BrokerId, MemberId, Offset
from partq.errors import (
    FencedError,
    InternalError,
    StoreUnavailableError,
    SupersededError,
    UnknownGroupError,
)
from partq.store.records.dead_letters import Outboxes
from partq.store.records.log import AppendBatch
from tests.store.record import BORN, GROUP, NOTHING, commit, write


@pytest.fixture
def outboxes(store, keys):
    return Outboxes(store, keys)


@pytest.fixture
def add(outboxes, partition, broker_epoch, ten_messages):
    async def add(*offsets):
        letters = [(offset, DeadLetterReason.MAX_REDELIVERIES, 3) for offset in offsets]
        return await outboxes.add(
            partition, GROUP, **write(), broker_epoch=broker_epoch, letters=letters
        )

    return add


@pytest.fixture
def mark(store, keys, partition):
    async def mark():
        return int(await store.read("HGET", keys.meta(partition), f"mark:{GROUP}"))

    return mark


async def flush(partitions, partition, broker_epoch, cursor):
    await partitions.flush(
        partition,
        GROUP,
        **write(),
        broker_epoch=broker_epoch,
        **{**NOTHING, "cursor": Offset(cursor)},
    )


async def test_a_repeat_keeps_the_numbers_and_new_ones_are_higher(add, partitions, partition):
    first = await add(4, 2)
    assert [each.offset for each in first] == [4, 2]
    assert first[0].number < first[1].number
    assert await add(4, 2) == first
    second = await add(2, 7)
    assert second[:2] == first
    assert second[2].number > first[1].number
    assert (await partitions.read_cursor(partition, GROUP)).outbox == second


async def test_a_reason_that_the_script_does_not_know_is_refused(
    outboxes, partitions, partition, broker_epoch, ten_messages
):
    with pytest.raises(StoreUnavailableError, match="reason 9, expected one of 1 to 5"):
        await outboxes.add(
            partition, GROUP, **write(), broker_epoch=broker_epoch, letters=[(4, 9, 0)]
        )
    assert (await partitions.read_cursor(partition, GROUP)).outbox == []


async def test_the_outbox_holds_the_log_until_it_is_empty(
    add, outboxes, partitions, partition, broker_epoch, mark
):
    waiting = await add(4, 2)
    await flush(partitions, partition, broker_epoch, 9)
    assert await mark() == 2
    for letter, expected in zip(reversed(waiting), (4, 9), strict=True):
        for _ in "twice":
            await outboxes.remove(
                partition,
                GROUP,
                **write(),
                broker_epoch=broker_epoch,
                letter=letter.number,
            )
            assert await mark() == expected
    await flush(partitions, partition, broker_epoch, 10)
    assert await mark() == 10


async def test_a_handoff_keeps_the_outbox_and_its_hold(
    add, partitions, partition, broker_epoch, mark
):
    waiting = await add(3)
    await commit(partitions, partition, broker_epoch, target="m-1", cursor=Offset(8))
    record = await partitions.read_cursor(partition, GROUP)
    assert (record.member, record.cursor, record.outbox) == (MemberId("m-1"), 8, waiting)
    assert await mark() == 3


async def test_a_reset_keeps_the_outbox_and_its_hold(
    add, partitions, partition, broker_epoch, mark
):
    waiting = await add(3)
    for offset, expected in ((9, 3), (1, 1)):
        epoch = (await partitions.read_cursor(partition, GROUP)).epoch
        await partitions.reset(
            partition,
            GROUP,
            **write(),
            broker_epoch=broker_epoch,
            epoch=epoch,
            offset=offset,
        )
        assert await mark() == expected
    assert (await partitions.read_cursor(partition, GROUP)).outbox == waiting


async def test_a_reset_whose_answer_was_lost_answers_again_which_letters_wait(
    add, partitions, partition, broker_epoch
):
    """Else its broker forgets them, and what it holds of the log for them."""
    waiting = await add(3)
    epoch = (await partitions.read_cursor(partition, GROUP)).epoch
    this = {**write(), "broker_epoch": broker_epoch, "epoch": epoch, "offset": 1}
    moved = await partitions.reset(partition, GROUP, **this)
    assert moved.outbox == waiting
    assert await partitions.reset(partition, GROUP, **this) == moved


async def test_a_number_is_not_used_again_when_redis_forgot_it(
    add, outboxes, store, keys, partition, broker_epoch, clock_passes
):
    (letter,) = await add(1)
    await outboxes.remove(
        partition, GROUP, **write(), broker_epoch=broker_epoch, letter=letter.number
    )
    await clock_passes(letter.number)
    fields = ("outbox", "outbox_number", "outbox_lowest")
    await store.run("write_fields", [keys.cursor(partition, GROUP)], [0, *fields])
    (again,) = await add(2)
    assert again.number > letter.number


async def test_who_may_not_change_an_outbox(add, outboxes, partitions, partition, broker_epoch):
    (letter,) = await add(1)
    with pytest.raises(FencedError):  # beyond the end of the log
        await add(10)
    await partitions.claim(partition, BrokerId("b-1"), "i-1", expected=broker_epoch)
    with pytest.raises(FencedError):
        await add(2)
    with pytest.raises(FencedError):
        await outboxes.remove(
            partition, GROUP, **write(), broker_epoch=broker_epoch, letter=letter.number
        )
    record = await partitions.read_cursor(partition, GROUP)
    assert record.outbox == [letter]
    await partitions.remove_group(partition, GROUP, born=BORN)
    now = (await partitions.read(partition)).broker_epoch
    with pytest.raises(UnknownGroupError):
        await outboxes.remove(partition, GROUP, **write(), broker_epoch=now, letter=letter.number)


async def test_a_letter_that_goes_leaves_the_hold_of_the_others(
    add, outboxes, partitions, partition, broker_epoch, mark
):
    """The log has their messages alone: a flush after it must not free them."""
    first, second = await add(1, 5)
    await outboxes.remove(
        partition, GROUP, **write(), broker_epoch=broker_epoch, letter=first.number
    )
    await flush(partitions, partition, broker_epoch, 9)
    assert await mark() == second.offset == 5


async def test_what_is_trimmed_becomes_no_dead_letter(add, store, keys, partition):
    """Its log does not have the message: the caller is of another history."""
    await store.run("write_fields", [keys.meta(partition)], [1, "trimmed", 5])
    with pytest.raises(FencedError):
        await add(4)
    assert [letter.offset for letter in await add(5)] == [5]


async def test_a_late_first_try_makes_no_message_a_dead_letter_twice(
    outboxes, partitions, store, keys, partition, broker_epoch, ten_messages, mark
):
    place = {"broker_epoch": broker_epoch}
    early, letters = write(), [(4, DeadLetterReason.EXPIRED, 0)]
    (letter,) = await outboxes.add(partition, GROUP, **write(), letters=letters, **place)
    await outboxes.remove(partition, GROUP, **write(), letter=letter.number, **place)
    with pytest.raises(SupersededError):
        await outboxes.add(partition, GROUP, **early, letters=letters, **place)
    record = await partitions.read_cursor(partition, GROUP)
    assert (record.outbox, await mark()) == ([], 0)


async def test_a_late_first_try_to_take_a_letter_out_takes_no_number_back(
    outboxes, partitions, partition, broker_epoch, ten_messages
):
    """It would find nothing to take out, and let other late writes of the book pass."""
    place = {"broker_epoch": broker_epoch}
    letters = [(4, DeadLetterReason.EXPIRED, 0)]
    (letter,) = await outboxes.add(partition, GROUP, **write(), letters=letters, **place)
    early, flush_between = write(), write()
    await outboxes.remove(partition, GROUP, **write(), letter=letter.number, **place)
    with pytest.raises(SupersededError):
        await outboxes.remove(partition, GROUP, **early, letter=letter.number, **place)
    with pytest.raises(SupersededError):
        await partitions.flush(partition, GROUP, **flush_between, **place, **NOTHING)


@pytest.mark.parametrize(("cursor", "acked"), [(5, []), (2, [(3, 4), (4, 7)])])
async def test_what_the_stored_book_has_done_with_is_no_dead_letter(
    outboxes, partitions, partition, broker_epoch, ten_messages, mark, cursor, acked
):
    book = {"cursor": cursor, "acked": acked, "redeliveries": {}}
    place = {"broker_epoch": broker_epoch}
    await partitions.flush(partition, GROUP, **write(), **place, **book)
    letters = [(4, DeadLetterReason.EXPIRED, 0), (8, DeadLetterReason.EXPIRED, 0)]
    (letter,) = await outboxes.add(partition, GROUP, **write(), letters=letters, **place)
    assert letter.offset == 8
    assert await mark() == cursor


@pytest.mark.parametrize(("cursor", "acked"), [(4, []), (2, [(3, 4), (5, 7)])])
async def test_what_lies_beside_that_is_one(
    outboxes, partitions, partition, broker_epoch, ten_messages, mark, cursor, acked
):
    book = {"cursor": cursor, "acked": acked, "redeliveries": {}}
    place = {"broker_epoch": broker_epoch}
    await partitions.flush(partition, GROUP, **write(), **place, **book)
    letters = [(4, DeadLetterReason.EXPIRED, 0)]
    (letter,) = await outboxes.add(partition, GROUP, **write(), letters=letters, **place)
    assert (letter.offset, await mark()) == (4, cursor)


@pytest.fixture
def send(log, partition, broker_epoch):
    """Append numbered messages, each in a call of its own; return the statuses."""
    state = {"end": 0, "call": 0}

    async def send(producer, *numbers):
        found = []
        for number in numbers:
            appended = await log.append(
                partition,
                broker_epoch=broker_epoch,
                number=state["call"],
                expected=Offset(state["end"]),
                batches=[AppendBatch(producer, number, 1, b"dead")],
                room_bytes=None,
            )
            state["end"], state["call"] = appended.next, state["call"] + 1
            found.append(appended.results[0].status)
        return found

    return send


async def test_dead_letters_are_numbered_with_gaps(send, partition):
    producer = producer_of("0f3a9c1e", partition, GROUP)
    assert await send(producer, 1000, 1000, 1004, 1002, 1004, 1005) == [
        *("stored", "duplicate", "stored"),
        *("duplicate", "duplicate", "stored"),
    ]
    assert await send("client", 0, 2, 1) == ["stored", "out_of_sequence", "stored"]


async def test_records_of_dead_letters_do_not_go_by_age(send, store, keys, partition):
    producer = producer_of("0f3a9c1e", partition, GROUP)
    await send(producer, 1000)
    await send("idle", 0)
    for name in (producer, "idle"):
        text = (await store.read("HGET", keys.producers(partition), name)).decode().split()
        aged = " ".join([text[0], "1", *text[2:]])
        await store.run("write_fields", [keys.producers(partition)], [1, name, aged])
    await send("new", 0)  # pays for the clean-up, and looks at all of so few
    assert await store.read("HGET", keys.producers(partition), "idle") is None
    assert await send(producer, 1000) == ["duplicate"]


async def test_a_note_stays_with_its_message_until_it_is_sent(
    outboxes, store, keys, partition, broker_epoch, ten_messages
):
    letters = [(4, DeadLetterReason.APPLICATION, 0), (5, DeadLetterReason.EXPIRED, 0)]
    said = LetterNote("bad_address", "no such city", is_asked_for=True)
    added = await outboxes.add(
        partition,
        GROUP,
        **write(),
        broker_epoch=broker_epoch,
        letters=letters,
        notes={4: said, 9: LetterNote("of a message that is not added")},
    )
    assert [each.reason for each in added] == [1, 2], "an older broker does not know the reason 4"
    first, second = added
    assert await outboxes.note(partition, GROUP, first.number) == said
    assert await outboxes.note(partition, GROUP, second.number) == LetterNote()
    await outboxes.remove(
        partition, GROUP, **write(), broker_epoch=broker_epoch, letter=first.number
    )
    assert await outboxes.note(partition, GROUP, first.number) == LetterNote()


async def test_a_note_that_an_older_broker_left_goes_with_the_next_message(
    outboxes, store, keys, partition, broker_epoch, ten_messages
):
    """It has sent the message, and knows nothing of the note."""
    key = keys.cursor(partition, GROUP)

    async def add(offset):
        return await outboxes.add(
            partition,
            GROUP,
            **write(),
            broker_epoch=broker_epoch,
            letters=[(offset, DeadLetterReason.APPLICATION, 0)],
            notes={offset: LetterNote("bad", is_asked_for=True)},
        )

    (old,) = await add(4)
    await store.run("write_fields", [key], [2, "outbox", "", "outbox_lowest", ""])
    (new,) = await add(5)
    fields = await store.read("HKEYS", key)
    notes = {name.decode() for name in fields if name.startswith(b"note:")}
    assert notes == {f"note:{new.number}"}
    assert await store.read("HGET", key, "notes") == str(new.number).encode()
    assert await outboxes.note(partition, GROUP, old.number) == LetterNote()


async def test_a_damaged_note_is_named(outboxes, store, keys, partition, ten_messages):
    await store.run("write_fields", [keys.cursor(partition, GROUP)], [1, "note:7", "{"])
    with pytest.raises(InternalError, match="note of a dead letter is damaged"):
        await outboxes.note(partition, GROUP, 7)
