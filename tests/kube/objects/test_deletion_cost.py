"""What a pod's removal costs: ranks, and when they are written."""

import pytest

from partq.kube.api import pod_path
from partq.kube.names import DELETION_COST, OUR_DELETION_COST, QueueKey
from partq.kube.objects.deletion_cost import MAX_WRITES, REFUSED_S, DeletionCosts, ranks
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache
from tests.kube.bodies import pod_body
from tests.kube.fake_api import FakeApi
from tests.kube.played_clock import Clock

KEY, OTHER = QueueKey("shop", "orders"), QueueKey("shop", "invoices")


def body(uid, *, owner="ReplicaSet", cost=None, our_cost=None, **more):
    found = pod_body(uid, uid=uid, owner=owner, **more)
    given = {DELETION_COST: cost, OUR_DELETION_COST: our_cost}
    found["metadata"]["annotations"] = {k: v for k, v in given.items() if v is not None}
    return found


def pod(uid, **more):
    return parse.pod(body(uid, **more))


THEIRS = pod("a", cost="5")


@pytest.mark.parametrize(
    ("pods", "held_counts", "expected"),
    [
        pytest.param(
            [pod("a"), pod("b"), pod("c")], {"a": 7, "b": 3}, {"a": 2, "b": 1, "c": 0}, id="by rank"
        ),
        pytest.param([pod("a"), pod("b")], {"a": 4, "b": 4}, {"a": 0, "b": 0}, id="equals"),
        pytest.param([pod("a", owner="StatefulSet")], {"a": 4}, {}, id="nobody chooses"),
        pytest.param([pod("a", deletion_grace=9), pod("b")], {"a": 4}, {"b": 0}, id="it ends"),
        pytest.param(
            [THEIRS, pod("b", cost="5", our_cost="1"), pod("c", cost="1", our_cost="1")],
            {"a": 4, "b": 3},
            {"c": 0},
            id="somebody else's cost stays",
        ),
        pytest.param(
            [pod("a"), pod("b", labels={"pod-template-hash": "5d7f9c"}, namespace="x")],
            {"a": 1, "b": 2},
            {"a": 0, "b": 0},
            id="each Deployment by itself",
        ),
    ],
)  # fmt: skip
def test_ranks(pods, held_counts, expected):
    assert ranks(held_counts, pods) == expected


class Costs:
    """The costs of a cluster in memory."""

    def __init__(self):
        self.clock, self.api = Clock(), FakeApi()
        self.cache = ObjectCache(lambda key: None, self.clock)
        self.is_leading = True
        self.costs = DeletionCosts(
            self.api, self.cache, is_leading=lambda: self.is_leading, clock=self.clock
        )

    def put(self, uid, **more):
        found = body(uid, **more)
        self.cache.put_pod(parse.pod(found))
        self.api.objects[pod_path("shop", uid)] = {
            **found, "metadata": {**found["metadata"], "resourceVersion": "1"},
        }  # fmt: skip

    async def rounds(self, count=2):
        """Compare a few times, and hear of what was written, as the watch tells it."""
        self.api.calls.clear()
        for _ in range(count):
            await self.costs.compare()
            for each in list(self.api.objects.values()):
                self.cache.put_pod(parse.pod(each))
        return [path.rpartition("/")[2] for _, path in self.api.calls]

    def written(self):
        found = {}
        for path, each in self.api.objects.items():
            annotations = each["metadata"].get("annotations", {})
            if DELETION_COST in annotations:
                assert annotations[OUR_DELETION_COST] == annotations[DELETION_COST]
                found[path.rpartition("/")[2]] = annotations[DELETION_COST]
        return found


@pytest.fixture
def costs():
    found = Costs()
    for uid in "abc":
        found.put(uid)
    return found


@pytest.mark.req("MEM-14")
async def test_a_rank_is_written_once_it_has_stayed(costs):
    costs.costs.note(KEY, {"a": 4, "b": 2, "c": 0})
    assert await costs.rounds(1) == []
    assert await costs.rounds(1) == ["a", "b"]
    assert costs.written() == {"a": "2", "b": "1"}, "no word is a cost of 0"
    assert await costs.rounds(3) == []
    costs.costs.note(KEY, {"a": 3, "b": 1, "c": 0})
    assert await costs.rounds(3) == [], "the rank is the same"
    costs.costs.note(KEY, {"a": 0, "b": 4, "c": 0})
    await costs.rounds(1)
    costs.costs.note(KEY, {"a": 3, "b": 1, "c": 0})
    assert await costs.rounds(1) == [], "it has not stayed"
    costs.costs.note(KEY, {"a": 0, "b": 4, "c": 4})
    assert await costs.rounds() == ["a", "c"]
    assert costs.written() == {"a": "0", "b": "1", "c": "1"}


async def test_queues_count_together(costs):
    costs.costs.note(KEY, {"a": 1, "b": 2})
    costs.costs.note(OTHER, {"a": 2})
    await costs.rounds()
    assert costs.written() == {"a": "1"}
    costs.costs.forget(OTHER)
    await costs.rounds()
    assert costs.written() == {"a": "0", "b": "1"}


async def test_a_refusal_is_told_once_and_tried_again_later(costs, caplog):
    costs.api.refused = {pod_path("shop", uid): 403 for uid in "abc"}
    costs.costs.note(KEY, {"a": 4, "b": 2, "c": 0})
    assert await costs.rounds() == ["a", "b"]
    assert await costs.rounds(3) == []
    assert len([line for line in caplog.messages if "no deletion cost" in line]) == 1
    costs.api.refused.clear()
    costs.clock.now += REFUSED_S
    await costs.rounds()
    assert costs.written() == {"a": "2", "b": "1"}


async def test_no_answer_is_tried_again_at_once(costs):
    costs.api.broken.add(pod_path("shop", "a"))
    costs.costs.note(KEY, {"a": 4, "b": 0})
    assert await costs.rounds(3) == ["a", "a"]


async def test_who_does_not_lead_writes_nothing(costs):
    costs.costs.note(KEY, {"a": 4, "b": 0})
    costs.is_leading = False
    assert await costs.rounds(3) == []
    costs.is_leading = True
    assert await costs.rounds(3) == [], "what was known then is over"


async def test_writes_are_few_at_a_time():
    costs = Costs()
    names = [f"pod-{number:03}" for number in range(2 * MAX_WRITES)]
    for name in names:
        costs.put(name)
    costs.costs.note(KEY, {name: number for number, name in enumerate(names)})
    await costs.rounds(1)
    assert len(await costs.rounds(1)) == MAX_WRITES
    await costs.rounds(1)
    assert len(costs.written()) == len(names) - 1
