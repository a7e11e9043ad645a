"""Dead letters that come back by way of other queues are told in the conditions of their groups."""

import pytest

from partq.kube.names import ConditionReason, ConditionType, QueueKey
from partq.kube.reconcile.dead_letter_circles import find_circle
from partq.kube.status import event_diff
from partq.kube.status.group_conditions import group_findings
from partq.kube.watch.object_cache import ObjectCache
from tests.kube.bodies import group_body, queue_body
from tests.kube.facts import group_facts

ORDERS = QueueKey("shop", "orders")
CIRCLE = ("orders", "letters", "orders")


@pytest.fixture
def cache():
    """The group of `orders` has its dead letters in `letters`, whose group has them in `orders`."""
    cache = ObjectCache(lambda _: None)
    for name in ("orders", "letters", "third"):
        cache.put_queue(queue_body(name))
    cache.put_group(group_body("workers", "orders", deadLetter={"queue": "letters"}))
    cache.put_group(group_body("menders", "letters", deadLetter={"queue": "orders"}))
    return cache


def test_a_circle_is_found_from_each_of_its_groups(cache):
    assert find_circle(cache, ORDERS, "workers") == CIRCLE
    found = find_circle(cache, QueueKey("shop", "letters"), "menders")
    assert found == ("letters", "orders", "letters")


@pytest.mark.parametrize(
    ("target", "circle"),
    [("third", ()), ("gone", ()), (None, ()), ("letters", ()), ("orders", CIRCLE)],
)
def test_letters_that_rest_are_no_circle(cache, target, circle):
    """Nor is one of other queues that they come to: it is told where it is."""
    cache.drop_group(("shop", "menders"))
    spec = {"deadLetter": {"queue": target}} if target else {}
    cache.put_group(group_body("others", "letters", **spec))
    assert find_circle(cache, ORDERS, "workers") == circle


def test_a_longer_way_back_is_found(cache):
    cache.drop_group(("shop", "menders"))
    cache.put_group(group_body("others", "letters", deadLetter={"queue": "third"}))
    cache.put_group(group_body("last", "third", deadLetter={"queue": "orders"}))
    assert find_circle(cache, ORDERS, "workers") == ("orders", "letters", "third", "orders")
    assert find_circle(cache, ORDERS, "nobody") == ()


def test_it_is_a_condition_and_an_event_and_nobody_is_less_ready():
    calm = group_findings(group_facts())
    findings = group_findings(group_facts(circle=CIRCLE))
    by_type = {each.type: each for each in findings}
    stored = by_type[ConditionType.DEAD_LETTERS_STORED]
    assert (stored.is_true, stored.reason) == (False, ConditionReason.DEAD_LETTERS_RETURN)
    assert "orders to letters to orders" in stored.message
    assert by_type[ConditionType.READY].is_true is True
    (note,) = event_diff.of_conditions(calm, findings)
    assert (note.reason, note.is_warning) == ("DeadLettersReturn", True)
