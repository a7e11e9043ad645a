"""The book of sessions: lanes, which session comes next, what a lock sends and gives back."""

from partq.core.lanes.span import HELD
from partq.core.model import Cause, PartitionId
from partq.core.sessions.interned_sessions import (
    InternedSessions,
    keyless,
    partition_of_keyless,
)
from partq.core.sessions.session_book import SessionBook
from partq.core.sessions.session_locks import (
    MAX_LOCK_S,
    SessionLock,
    SessionLocks,
    StoredLock,
    restored_locks,
)
from tests.core.batches import Batch


def read(book, *sessions, slot=7):
    """Read a batch of one message of each session, all of one slot."""
    first = book.read_end
    book.read(Batch(first, len(sessions), [slot] * len(sessions)), sessions)


def lock(book, session):
    number, share = book.open_share()
    book.claim(session, number)
    return number, share


def sent(share, credit=100):
    """The offsets that a share is sent now."""
    found = []
    while (start := share.next_again) is not None:
        window = share.take_again(start + 100, credit)
        mask = window.mask
        places = range(window.start, window.stop)
        found += [o for i, o in enumerate(places) if mask is None or mask[i // 8] >> i % 8 & 1]
    return found


def test_sessions_of_one_slot_are_apart():
    book = SessionBook(0)
    read(book, "a", "b", "a", "c")
    assert (book.next_free([]), book.next_free(["a"]), book.next_free(["a", "b"])) == (
        "a",
        "b",
        "c",
    )
    _, a = lock(book, "a")
    _, b = lock(book, "b")
    assert (sent(a), sent(b)) == ([0, 2], [1])
    read(book, "b", "a")
    assert (sent(a), sent(b)) == ([5], [4])


def test_a_session_that_is_locked_without_messages_gets_them_as_they_come():
    book = SessionBook(0)
    _, a = lock(book, "a")
    read(book, "b", "a")
    assert sent(a) == [1]
    assert book.next_free(["a"]) == "b"


def test_what_is_given_back_is_the_next_ones_in_order_without_a_count():
    book = SessionBook(0)
    read(book, "a", "a", "a")
    number, a = lock(book, "a")
    assert sent(a) == [0, 1, 2]
    book.unclaim("a")
    assert a.returned(a.not_begun([(1, 2)]), 0) == 2
    assert a.in_flight == 1
    assert a.ack(-1, [(1, 2)], a.number) == 1
    book.close_share(number, Cause.NONE)
    assert book.redeliveries == {}
    _, again = lock(book, "a")
    assert sent(again) == [0, 2]


def test_the_lowest_of_a_lock_that_ends_by_force_counts():
    book = SessionBook(0)
    read(book, "b", "a", "a")
    number, a = lock(book, "a")
    sent(a)
    book.unclaim("a")
    book.close_share(number, Cause.FORCED_COMMIT)
    assert book.redeliveries == {1: 1}
    assert book.next_free(["b"]) is None, "its count is not stored"
    book.counts_stored(book.counts_made)
    assert book.next_free(["b"]) == "a"


def test_a_parked_session_waits_and_others_of_its_slot_do_not():
    book = SessionBook(0)
    read(book, "a", "b")
    number, a = lock(book, "a")
    sent(a)
    a.nack([(0, 1)], a.number, now=0.0, delay_s=lambda _: 60.0)
    book.counts_stored(book.counts_made)
    book.unclaim("a")
    book.close_share(number, Cause.NONE)
    assert book.next_free([]) == "b"
    assert book.parked == {7: 60.0}
    book.end_waits(61.0)
    assert book.next_free([]) == "a"


def test_a_session_waits_in_the_record_by_its_slot_also_in_another_lane():
    book = SessionBook(0)
    read(book, "a", "b")
    number, b = lock(book, "b")
    sent(b)
    b.nack([(1, 2)], b.number, now=0.0, delay_s=lambda _: 60.0)
    assert book.parked == {7: 60.0}
    assert [(each.lane, each.offset) for each in book.list_parked()] == [(7, 1)]
    assert book.unpark(7)
    assert sent(b) == [], "its count is not stored"
    book.counts_stored(book.counts_made)
    assert (sent(b), number) == ([1], 1)


def test_the_slots_of_a_record_wait_with_all_their_sessions():
    book = SessionBook(0, parked={7: 60.0})
    read(book, "a", "b")
    read(book, "c", slot=8)
    assert book.next_free([]) == "c"
    assert book.parked == {7: 60.0}
    assert [each.lane for each in book.list_parked()] == [7, 7]
    assert book.unpark(7)
    assert book.next_free([]) == "a"


def test_sessions_without_open_messages_are_forgotten_in_time():
    book = SessionBook(0, max_span=20_000)
    for at in range(0, 9000, 1000):
        read(book, *(f"s{at + i}" for i in range(1000)))
        book.discard([(0, at + 900)])
    assert book.open_count == 100
    assert len(book._sessions) < 6000
    assert book.next_free([]) == "s8900"


def test_no_more_is_read_than_the_span_takes():
    book = SessionBook(0, max_span=2)
    assert book.may_read
    read(book, "a", "b", "c")
    assert not book.may_read
    book.discard([(0, 2)])
    assert book.may_read
    assert [each.session for each in book.open_sessions()] == ["c"]


def test_a_moved_book_begins_anew():
    book = SessionBook(0)
    read(book, "a", "b")
    moved = book.moved_to(1)
    assert (moved.read_end, moved.next_free([])) == (1, None)


def test_interned_sessions_avoid_lanes_that_others_wait_for():
    sessions = InternedSessions()
    assert sessions.intern("a", 7, ()) == 7
    assert sessions.intern("b", 7, {8}) == 9
    assert (sessions.slot(9), sessions.of_slot(7)) == (7, [9, 7])
    assert sessions.intern("c", 9, ()) == 10
    sessions.keep([9])
    assert (sessions.lane("a"), sessions.name(9), len(sessions)) == (None, "b", 1)


def test_names_of_messages_without_keys():
    name = keyless(PartitionId(2, 3), 17)
    assert (name, partition_of_keyless(name)) == ("@2.3:17", PartitionId(2, 3))
    for other in ("", "@", "@2.3", "@2.3:x", "2.3:17", "@2:3", "@-1.3:4", "@2.3:1٣"):
        assert partition_of_keyless(other) is None


def test_locks_of_a_record_end_at_their_time_and_none_lasts_for_ever():
    stored = {
        "over": StoredLock("m", "i", 1, 1000),
        "left": StoredLock("m", "i", 2, 31_000),
        "ahead": StoredLock("n", "j", 3, 10**15),
    }
    locks = SessionLocks(restored_locks(stored, store_ms=1000, now=50.0))
    assert {lock.session: lock.until for lock in locks} == {
        "left": 80.0,
        "ahead": 50.0 + MAX_LOCK_S,
    }
    assert [lock.session for lock in locks.over(80.0)] == ["left"]
    assert isinstance(locks.remove("left"), SessionLock)
    assert (len(locks), locks.find("left"), HELD) == (1, None, 1)


def test_a_lane_of_a_locked_session_is_no_other_sessions_though_it_has_no_messages(monkeypatch):
    monkeypatch.setattr("partq.core.sessions.session_book._FEW_SESSIONS", 0)
    book = SessionBook(0)
    read(book, "a")
    _, a = lock(book, "a")
    assert sent(a) == [0]
    assert a.ack(-1, [(0, 1)], a.number) == 1
    read(book, "b", "a")
    assert sent(a) == [2], "b has the slot of a, and another lane"
    assert book.next_free(["a"]) == "b"


def test_no_further_session_is_free_while_too_many_wait():
    book = SessionBook(0, max_parked=1)
    read(book, "a", "b", "c")
    for session, offset in (("a", 0), ("b", 1)):
        assert book.next_free([]) == session
        number, share = lock(book, session)
        sent(share)
        share.nack([(offset, offset + 1)], share.number, now=0.0, delay_s=lambda _: 60.0)
        book.counts_stored(book.counts_made)
        book.unclaim(session)
        book.close_share(number, Cause.NONE)
    assert book.is_crowded
    assert book.next_free([]) is None
    book.end_waits(61.0)
    assert book.next_free([]) == "a"
