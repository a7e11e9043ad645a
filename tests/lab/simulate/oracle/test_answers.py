"""The oracle of pulls: in which order a token's messages may be answered."""

from types import SimpleNamespace

import pytest

from partq.lab.simulate.oracle.answers import Answers
from partq.lab.simulate.oracle.facts import GROUP, GroupPartitionFacts, LogFacts
from partq.lab.simulate.oracle.keys.keyed_deliveries import KeyedDeliveries

TOKEN = {"broker_epoch": 7, "epoch": 20, "delivery": 0}


@pytest.fixture
def failed():
    return []


@pytest.fixture
def facts():
    log = LogFacts("1.0", b"meta", b"log", broker_epoch=7, ids=[100, 101, 102, 103])
    return GroupPartitionFacts("1.0", log, GROUP, b"cursor", set(), is_there=True)


@pytest.fixture
def answer(failed, facts):
    """Return what is told of an answer: offsets, each with its cause."""

    def fail(_, text):
        failed.append(text)

    answers = Answers(fail, KeyedDeliveries(fail, lambda: 0.0))
    answers.is_free = True
    records = SimpleNamespace(
        group_partitions={"1.0": facts},
        was_rolled_back=False,
        needs_no_more=lambda facts, offset: facts.is_done(offset),
        rescales=SimpleNamespace(sent=lambda facts, offsets: None),
    )
    numbers = iter(range(1, 100))

    def tell(*messages, is_free=True):
        answers.is_free = is_free
        told = [
            {
                **TOKEN,
                "partition": "1.0",
                "offset": offset,
                "value": f"{100 + offset}",
                "cause": why,
            }
            for offset, why in messages
        ]
        answers.judge(records, GROUP, ("life", 1), {"answer": next(numbers), "messages": told})

    return tell


def test_what_waits_to_come_again_may_be_passed_by(answer, facts, failed):
    facts.sent[1] += 1  # to the member before this one, which gave it back
    answer((0, ""), (2, ""))
    answer((1, "nack"), (3, ""))
    assert failed == []


def test_what_nobody_was_sent_may_not(answer, failed):
    answer((0, ""), (2, ""))
    assert failed == ["1.0: offset 1 is skipped, and nobody has done it"]


def test_in_order_it_is_waited_for(answer, facts, failed):
    facts.sent[1] += 1
    answer((0, ""), (2, ""), is_free=False)
    assert failed == ["1.0: offset 1 is skipped, and nobody has done it"]


def test_out_of_its_turn_comes_only_what_was_taken_back(answer, failed):
    answer((0, ""), (1, ""), (2, ""))
    answer((1, "ack_timeout"))
    assert failed == []
    answer((1, ""))
    assert failed == ["1.0: answers 1 again without a cause"]
