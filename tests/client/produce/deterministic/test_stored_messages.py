"""Which messages of a deterministic producer are stored: by their slots, in their order."""

import pytest

from partq.client.produce.deterministic.stored_messages import StoredMessages
from partq.client.producer_state import ProducerState
from partq.client.transport.layout import QueueLayout
from partq.client.transport.session import ProducerProgress
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.numbering.fixed_series import StoredSeries, earlier_series, last_series, series_of
from partq.core.rescale.layout_steps import commit, prepare
from partq.errors import ConflictError


def changed(layout, count):
    return commit(prepare(layout, count), 1_700_000_000_000)


ONE = Layout.first(1)
TWO = changed(ONE, 2)
THREE = changed(TWO, 3)
P, Q, R = PartitionId(1, 0), PartitionId(2, 1), PartitionId(3, 2)
STAYS = next(s for s in range(2**16) if THREE.partition_of(s) == P)
TO_Q = next(s for s in range(2**16) if THREE.partition_of(s) == Q)
P_TO_R = next(s for s in range(2**16) if (TWO.partition_of(s), THREE.partition_of(s)) == (P, R))


def state_of(layout, **due):
    """Return a state; `due`: of series, such as `p1` for that of P which generation 1 began."""
    numbers = {({"p": P, "q": Q, "r": R}[name[0]], int(name[1])): n for name, n in due.items()}
    series = series_of(layout)
    last = last_series(series)
    return ProducerState(
        QueueLayout("default", "orders", "uid", layout, {}, {}, 0, 0, "Random", frozenset()),
        {
            p: ProducerProgress(numbers.get((p, last[p].generation), 0), None, last[p].generation)
            for p in layout.table.slots
        },
        tuple(
            StoredSeries(each, numbers[each.partition, each.generation])
            for each in earlier_series(series)
            if (each.partition, each.generation) in numbers
        ),
    )


def skipped(stored, *slots):
    return [stored.skip(slot) for slot in slots]


def test_each_series_has_the_first_messages_of_its_slots_that_no_earlier_one_has():
    stored = StoredMessages("job", state_of(THREE, p1=2, p2=1, q2=1, p3=1, r3=1))
    assert skipped(stored, STAYS, TO_Q) == [True, True], "by p1, whatever their slots"
    assert skipped(stored, P_TO_R, P_TO_R, P_TO_R) == [True, True, False], "by p2, and r3"
    assert skipped(stored, TO_Q, TO_Q) == [True, False]
    assert skipped(stored, STAYS, STAYS) == [True, False]


def test_an_application_that_counts_by_due_numbers_is_told_nothing():
    stored = StoredMessages("job", state_of(ONE, p1=2))
    stored.check_due()
    stored.check_sent([STAYS])
    assert stored.find_stored(STAYS) is None
    with pytest.raises(ConflictError, match="behind due"):
        stored.skip(STAYS)


def test_what_was_stored_before_a_change_has_to_be_left_out():
    stored = StoredMessages("job", state_of(TWO, p1=2))
    with pytest.raises(ConflictError, match="do not tell"):
        stored.check_due()
    with pytest.raises(ConflictError, match="has to be left out"):
        stored.check_sent([STAYS])
    assert stored.skip(STAYS)
    with pytest.raises(ConflictError, match="a message is sent that is stored"):
        stored.check_sent([TO_Q])
    assert skipped(stored, TO_Q, TO_Q) == [True, False]
    stored.check_sent([TO_Q])


def test_what_another_process_has_stored_meanwhile_is_not_sent_again():
    stored = StoredMessages("job", state_of(ONE, p1=3))
    assert stored.skip(STAYS)
    # It has sent two since, without an answer to the second. The other process has stored seven.
    stored.cross(state_of(TWO, p1=7, q2=1), {(P, 1): 4})
    assert skipped(stored, STAYS, TO_Q) == [True, True], "of the first three"
    assert [stored.find_stored(TO_Q) for _ in range(4)] == [P, P, P, None]


def test_an_application_that_counts_itself_gets_over_a_change_while_it_counts():
    stored = StoredMessages("job", state_of(ONE, p1=3))
    stored.cross(state_of(TWO, p1=5), {(P, 1): 3})
    stored.check_sent([STAYS])  # the fourth
    assert [stored.find_stored(STAYS) for _ in range(3)] == [P, P, None]


def test_a_second_change_takes_what_is_left_of_the_first():
    stored = StoredMessages("job", state_of(ONE))
    stored.cross(state_of(TWO, p1=2), {(P, 1): 0})
    stored.cross(state_of(THREE, p1=2, p2=1, q2=1), {(P, 2): 0, (Q, 2): 0})
    assert [stored.find_stored(P_TO_R) for _ in range(4)] == [P, P, P, None]
    assert [stored.find_stored(TO_Q) for _ in range(2)] == [Q, None]


def test_a_series_that_ends_with_an_error_has_nothing_more():
    stored = StoredMessages("job", state_of(ONE))
    stored.cross(state_of(TWO, p1=5), {(P, 1): None})
    assert stored.find_stored(STAYS) is None


@pytest.mark.parametrize("due", [{}, {"p1": 1}])
def test_messages_that_are_not_known_any_more_end_the_producer(due):
    stored = StoredMessages("job", state_of(ONE))
    with pytest.raises(ConflictError, match=r"1\.0 has confirmed 2 messages, and knows"):
        stored.cross(state_of(TWO, **due), {(P, 1): 2})


def test_what_the_store_has_lost_from_before_a_change_is_not_told_to_a_later_process():
    """Numbers do not tell: the process that knows has to ask before it ends (`flush`)."""
    whole = StoredMessages("job", state_of(TWO, p1=2, q2=1))
    assert skipped(whole, TO_Q, TO_Q, TO_Q, TO_Q) == [True, True, True, False]
    less = StoredMessages("job", state_of(TWO, p1=1, q2=1))
    assert skipped(less, TO_Q, TO_Q, TO_Q) == [True, True, False], "the second is taken for q2's"
