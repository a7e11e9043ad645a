"""What a deterministic producer left behind by a change: whether the store still has it."""

import pytest

from partq.client.produce.deterministic.ended_series import CHECKED_S, EndedSeries
from partq.client.producer_state import ProducerState
from partq.client.transport.layout import QueueLayout
from partq.client.transport.session import EarlierNumbers
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.numbering.fixed_series import FixedSeries, StoredSeries
from partq.core.rescale.layout_steps import commit, prepare
from partq.errors import ConflictError, UnavailableError

OLD = PartitionId(1, 0)
AFTER = commit(prepare(Layout.first(2), 3), 1)
BEFORE_IT, BEHIND_IT = EarlierNumbers(1, {}), EarlierNumbers(2, {(OLD, 1): 7})


class Brokers:
    """Answer by their URLs; each call takes some time."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []
        self.now = 0.0

    async def earlier_numbers(self, url, producer):
        self.asked.append(url)
        self.now += 20.0
        return self.answers[url]


def ended(brokers):
    """Return the series of a producer that has stored seven messages before a change."""
    series = EndedSeries(brokers, "job", lambda: brokers.now)
    stored = StoredSeries(FixedSeries(OLD, 1, (range(9),)), 7)
    layout = QueueLayout("default", "orders", "uid", AFTER, {}, {}, 0, 0, "Random", frozenset())
    series.note(ProducerState(layout, {}, (stored,)))
    return series


async def test_a_broker_that_is_behind_is_not_believed():
    brokers = Brokers({"a": None, "b": BEFORE_IT, "c": BEHIND_IT, "d": None})
    await ended(brokers).check(brokers.answers)
    assert brokers.asked == ["a", "b", "c"]


async def test_without_an_answer_nothing_is_said():
    brokers = Brokers({"b": BEFORE_IT})
    with pytest.raises(UnavailableError, match="still stored; check the queue's brokers"):
        await ended(brokers).check(brokers.answers)


async def test_what_is_missing_is_named():
    brokers = Brokers({"a": EarlierNumbers(2, {(OLD, 1): 6})})
    with pytest.raises(ConflictError, match=r"partition 1\.0 had 7 messages .* has 6 of them"):
        await ended(brokers).check(brokers.answers)


async def test_after_a_while_nobody_is_asked():
    """A partition forgets a producer that has left it."""
    brokers = Brokers({"a": EarlierNumbers(2, {})})
    series = ended(brokers)
    brokers.now = CHECKED_S
    await series.check(brokers.answers)
    assert brokers.asked == []
