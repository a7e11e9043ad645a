import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.handoff import (
    Attempt,
    AwaitDrain,
    Cancel,
    Commit,
    Committed,
    Committing,
    Drained,
    Draining,
    Owned,
    Pause,
    Refused,
    Seen,
    SourceLost,
    SourcePaused,
    Targeted,
    TargetLost,
    Tick,
    Vacant,
    is_over,
    pending,
    resumed,
    step,
)
from partq.core.group.moves import Forced
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId

NOW = 1_000_000
A, B = MemberId("a"), MemberId("b")


def make_attempt(number=4, source=A, target=B):
    return Attempt(
        number=number,
        broker=BrokerId("b-0"),
        broker_epoch=BrokerEpoch(7),
        source=source,
        epoch=Epoch(3),
        target=target,
    )


A4 = make_attempt()
A5 = make_attempt(5)
FROM_NOBODY = make_attempt(source=None)
TO_NOBODY = make_attempt(target=None)
OWNED = Owned(A, Epoch(3))
DRAINING = Draining(A4, 3_000, NOW + 5_000)
PAUSED = Draining(A4, 3_000, NOW + 3_000, is_paused=True)
COMMITTING = Committing(A4, None)
FORCING = Committing(A4, Forced.DRAIN_TIMEOUT)
HANDED_OVER = Owned(B, Epoch(9))
PAUSE, AWAIT, COMMIT = Pause(A4, 3_000), AwaitDrain(A4), Commit(A4, None)
FORCE = Commit(A4, Forced.DRAIN_TIMEOUT)
TO_B = Targeted(A4, 3_000, NOW + 5_000)


def seen(member=A, epoch=3, broker_epoch=7, closed=3):
    return Seen(BrokerEpoch(broker_epoch), member, Epoch(epoch), closed)


@pytest.mark.req("HND-16")
@pytest.mark.parametrize(
    ("state", "event", "later_ms", "after", "effects"),
    [
        pytest.param(OWNED, TO_B, 0, DRAINING, [PAUSE], id="owned: the owner is paused first"),
        pytest.param(
            Vacant(Epoch(3)),
            Targeted(FROM_NOBODY, 3_000, NOW + 5_000),
            0,
            Committing(FROM_NOBODY, Forced.UNASSIGNED),
            [Commit(FROM_NOBODY, Forced.UNASSIGNED)],
            id="vacant: nobody to pause",
        ),
        pytest.param(
            OWNED,
            Targeted(A4, 3_000, NOW + 5_000, Forced.SOURCE_LOST),
            0,
            Committing(A4, Forced.SOURCE_LOST),
            [Commit(A4, Forced.SOURCE_LOST)],
            id="the owner is lost: no pause",
        ),
        pytest.param(
            DRAINING, SourcePaused(4), 10, Draining(A4, 3_000, NOW + 3_010, is_paused=True),
            [PAUSE, AWAIT], id="paused: the drain is counted from here",
        ),
        pytest.param(PAUSED, SourcePaused(4), 900, PAUSED, [], id="renewed: the deadline stays"),
        pytest.param(DRAINING, SourcePaused(3), 10, DRAINING, [], id="word from an older attempt"),
        pytest.param(PAUSED, Drained(4), 5, COMMITTING, [COMMIT], id="drained: commit"),
        pytest.param(PAUSED, Drained(3), 5, PAUSED, [], id="drained in an older attempt"),
        pytest.param(PAUSED, Tick(), 2_999, PAUSED, [], id="time is not over"),
        pytest.param(PAUSED, Tick(), 3_000, FORCING, [FORCE], id="too late, force the commit"),
        pytest.param(
            PAUSED, SourceLost(Forced.SOURCE_UNBOUND), 5,
            Committing(A4, Forced.SOURCE_UNBOUND), [Commit(A4, Forced.SOURCE_UNBOUND)],
            id="the source is lost: nobody to wait for",
        ),
        pytest.param(
            PAUSED, TargetLost(), 5, OWNED, [Cancel(A4)], id="the target is lost: cancel"
        ),
        pytest.param(COMMITTING, TargetLost(), 5, COMMITTING, [], id="too late to cancel"),
        pytest.param(PAUSED, Refused(4), 5, OWNED, [], id="the pause has lapsed: plan again"),
        pytest.param(COMMITTING, Refused(4), 5, OWNED, [], id="refused: plan again"),
        pytest.param(COMMITTING, Refused(3), 5, COMMITTING, [], id="an older attempt is refused"),
        pytest.param(COMMITTING, Committed(4, Epoch(9)), 6, HANDED_OVER, [], id="committed"),
        pytest.param(
            Committing(TO_NOBODY, None), Committed(4, Epoch(9)), 6, Vacant(Epoch(9)), [],
            id="committed to nobody",
        ),
        pytest.param(COMMITTING, Committed(3, Epoch(9)), 6, COMMITTING, [], id="older commit"),
        pytest.param(HANDED_OVER, Committed(4, Epoch(9)), 6, HANDED_OVER, [], id="told twice"),
        pytest.param(HANDED_OVER, Tick(), 9_999, HANDED_OVER, [], id="at rest"),
        pytest.param(PAUSED, seen(), 5, PAUSED, [], id="the record is as it was"),
        pytest.param(
            COMMITTING, seen(B, 9, closed=4), 5, HANDED_OVER, [],
            id="the record shows the commit whose answer was lost",
        ),
        pytest.param(
            COMMITTING, seen(B, 9, broker_epoch=8, closed=4), 5, HANDED_OVER, [],
            id="a new broker has read the commit",
        ),
        pytest.param(
            PAUSED, seen(A, 5), 5, Owned(A, Epoch(5)), [], id="the source bound again: new attempt"
        ),
        pytest.param(
            PAUSED, seen(A, 3, broker_epoch=8), 5, OWNED, [], id="a new broker knows of no pause"
        ),
        pytest.param(PAUSED, seen(A, 3, closed=4), 5, OWNED, [], id="the pause is over, on record"),
        pytest.param(
            PAUSED, seen(MemberId("c"), 8), 5, Owned(MemberId("c"), Epoch(8)), [],
            id="somebody else was faster",
        ),
        pytest.param(PAUSED, seen(B, 2), 5, PAUSED, [], id="a record from before the attempt"),
    ],
)  # fmt: skip
def test_step(state, event, later_ms, after, effects):
    assert step(state, event, NOW + later_ms) == (after, tuple(effects))


def test_no_time_to_drain_still_pauses_first():
    state, effects = step(OWNED, Targeted(A4, 0, NOW + 2_000), NOW)
    assert effects == (Pause(A4, 0),)
    state, _ = step(state, SourcePaused(4), NOW + 1)
    state, effects = step(state, Tick(), NOW + 1)
    assert effects == (FORCE,)


@pytest.mark.req("FAIL-13")
def test_a_resumed_drain_goes_on_and_never_longer_than_configured():
    assert resumed(A4, drain_ms=3_000, left_ms=900, now_ms=NOW).drain_by_ms == NOW + 900
    late = resumed(A4, drain_ms=3_000, left_ms=99_000, now_ms=NOW)
    assert late.drain_by_ms == NOW + 3_000
    assert pending(late) == (PAUSE,)
    over = resumed(A4, drain_ms=3_000, left_ms=-99_000, now_ms=NOW)
    assert step(over, Tick(), NOW) == (FORCING, (FORCE,)), "the broker knows whether that is so"


events = st.one_of(
    st.builds(SourcePaused, st.integers(3, 6)),
    st.builds(Drained, st.integers(3, 6)),
    st.builds(Refused, st.integers(3, 6)),
    st.builds(Committed, st.integers(3, 6), st.integers(4, 12).map(Epoch)),
    st.sampled_from([Tick(), TargetLost(), SourceLost(Forced.SOURCE_LOST), TO_B,
                     Targeted(A5, 3_000, NOW + 5_000)]),
    st.builds(
        seen,
        st.sampled_from([A, B, None]),
        st.integers(2, 12),
        st.integers(6, 9),
        st.integers(2, 6),
    ),
)  # fmt: skip


@given(st.lists(st.tuples(events, st.integers(0, 10_000)), max_size=30))
def test_any_events_in_any_order_twice(history):
    """A state never guesses: an owner comes from an answer or a record, and calls name one try."""
    state = OWNED
    told = {(A, Epoch(3))}
    for event, later_ms in history:
        if isinstance(event, Committed):
            told.add((B, event.epoch))
        if isinstance(event, Seen):
            told.add((event.member, event.epoch))
        once, effects = step(state, event, NOW + later_ms)
        twice, _ = step(once, event, NOW + later_ms)
        if not isinstance(event, Targeted):
            assert twice == once or is_over(once) is is_over(twice)
        for effect in effects:
            attempt = getattr(state, "attempt", None) or getattr(once, "attempt", None)
            assert effect.attempt == attempt
        state = once
        if isinstance(state, Owned):
            assert (state.member, state.epoch) in told
        elif isinstance(state, Vacant):
            assert (None, state.epoch) in told
        assert (not pending(state)) == is_over(state)


class Record:
    """A broker's record of one partition, with the checks that the protocol asks of it."""

    def __init__(self):
        self.member, self.epoch, self.closed = A, 3, 3
        self.pause = None
        self.owners = [(A, 3)]

    def ask(self, effect):
        """Carry a call out; return the event that is its answer."""
        attempt = effect.attempt
        fits = attempt.epoch == self.epoch and attempt.number > self.closed
        match effect:
            case Commit() if self.done == (attempt.number, attempt.target):
                return Committed(attempt.number, Epoch(self.epoch))
            case Pause() if fits and (self.pause or 0) <= attempt.number:
                self.pause = attempt.number
                return SourcePaused(attempt.number)
            case AwaitDrain() if fits and self.pause == attempt.number:
                return Drained(attempt.number)
            case Commit() if fits and self.pause == attempt.number:
                self.member, self.epoch, self.closed = (
                    attempt.target,
                    self.epoch + 1,
                    attempt.number,
                )
                self.done = attempt.number, attempt.target
                self.pause = None
                self.owners.append((self.member, self.epoch))
                return Committed(attempt.number, Epoch(self.epoch))
        return Refused(attempt.number)

    done = None

    def lapse(self):
        if self.pause is not None:
            self.closed, self.pause = self.pause, None

    def bind(self):
        self.epoch += 1
        self.owners.append((self.member, self.epoch))

    def seen(self):
        return Seen(BrokerEpoch(7), self.member, Epoch(self.epoch), self.closed)


@pytest.mark.req("SOL-05", "HND-16")
@given(st.lists(st.integers(0, 7), max_size=60), st.randoms(use_true_random=False))
def test_never_two_owners_whatever_is_lost_delayed_or_repeated(choices, random):
    record, state, drawn = Record(), OWNED, 3
    calls, answers = [], []
    for choice in choices:
        event = None
        match choice:
            case 0 if is_over(state) and state == Owned(record.member, Epoch(record.epoch)):
                drawn += 1
                other = B if record.member == A else A
                attempt = Attempt(
                    number=drawn,
                    broker=BrokerId("b-0"),
                    broker_epoch=BrokerEpoch(7),
                    source=record.member,
                    epoch=Epoch(record.epoch),
                    target=other,
                )
                event = Targeted(attempt, 3_000, NOW + 5_000)
            case 1 | 2 if calls:
                answers.append(record.ask(random.choice(calls)))  # any, again, or never
            case 3 | 4 if answers:
                event = random.choice(answers)
            case 5:
                record.lapse()
            case 6:
                record.bind()
            case 7:
                event = record.seen()
        if event is not None:
            state, effects = step(state, event, NOW)
            calls += effects
        calls += pending(state)
        if isinstance(state, Owned):
            assert (state.member, state.epoch) in record.owners
    epochs = [epoch for _, epoch in record.owners]
    assert epochs == sorted(set(epochs)), "every epoch has one owner"
    if not is_over(state):
        # A quiet end: the calls that the state asks for get their answers.
        for _ in range(4):
            for effect in pending(state):
                state, _ = step(state, record.ask(effect), NOW)
        assert is_over(state)
    state, _ = step(state, record.seen(), NOW)
    assert state.member in (A, B)
