"""The status of a queue and its groups: whatever is wrong with one, the others' are true."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from partq.kube import names
from partq.kube.api import group_path, queue_path
from partq.kube.names import QueueKey
from partq.kube.reconcile.groups import Groups
from partq.kube.reconcile.reporter import Reporter
from partq.kube.reconcile.status_loop import (
    FIRST_PAUSE_S,
    MAX_PAUSE_S,
    WRITES_AT_ONCE,
    StatusLoop,
    bodies_of,
)
from partq.kube.watch.object_cache import ObjectCache
from partq.operator_metrics import OperatorMetrics
from partq.resources.status import MAX_MESSAGE_CHARS
from partq.testing import eventually
from tests.kube.bodies import group_body, queue_body
from tests.kube.facts import NOW, queue_facts
from tests.kube.fake_api import FakeApi
from tests.kube.played_clock import Clock

KEY = QueueKey("shop", "orders")
QUEUE = queue_path(*KEY, "/status")
GROUPS = [f"group-{number:02}" for number in range(2 * WRITES_AT_ONCE)]
PATHS = [group_path("shop", name, "/status") for name in GROUPS]


def facts_of(body, generation):
    return queue_facts(generation=generation)


class Stage:
    def __init__(self):
        self.api = FakeApi()
        self.clock = Clock()
        self.cache = ObjectCache(lambda key: None)
        self.groups = Groups(self.cache, KEY)
        self.facts_of = facts_of
        self.loop = self.new_loop()
        self.put(self.cache.put_queue, QUEUE, queue_body())
        for number, (name, path) in enumerate(zip(GROUPS, PATHS, strict=True)):
            body = group_body(name)
            body["metadata"]["uid"] = f"{number:08}-1111-4222-8333-123456789abc"
            self.put(self.cache.put_group, path, body)
        self.look()

    def new_loop(self):
        """Return the loop of an operator that has just begun."""
        context = SimpleNamespace(
            api=self.api,
            clock=self.clock,
            cache=self.cache,
            events=SimpleNamespace(emit=lambda *args, **kwargs: None),
            metrics=OperatorMetrics(),
            now=lambda: NOW,
        )
        return StatusLoop(
            context,
            KEY,
            reporter=Reporter(
                context,
                KEY,
                SimpleNamespace(pod_of=lambda member: None, unselected=lambda group, members: []),
            ),
            groups=self.groups,
            facts_of=lambda body, generation: self.facts_of(body, generation),
        )

    def look(self):
        self.loop.note_look(bodies_of(self.cache, KEY))

    def put(self, put, path, body):
        self.api.objects[path] = body
        put(body)

    def without_status(self):
        return [path for path in (QUEUE, *PATHS) if "status" not in self.api.objects[path]]


@pytest.fixture
def stage():
    return Stage()


@pytest.mark.parametrize("path", [QUEUE, PATHS[0], PATHS[-1]])
async def test_a_status_that_is_refused_holds_up_no_other(stage, path):
    stage.api.refused[path] = 422
    assert await stage.loop.write()
    assert stage.without_status() == [path]


async def test_a_mistake_of_ours_in_one_status_ends_nothing(stage):
    def problem(name, body):
        if name == GROUPS[3]:
            raise ZeroDivisionError

    stage.groups.problem = problem
    assert await stage.loop.write()
    assert stage.without_status() == [PATHS[3]]


async def test_what_is_refused_is_tried_again_after_a_growing_while(stage):
    stage.api.refused[PATHS[0]] = 422
    pauses_s = []
    for _ in range(8):
        await stage.loop.write()
        stage.api.calls.clear()
        waited_s = 0.0
        while not stage.api.calls:
            waited_s += FIRST_PAUSE_S
            stage.clock.now += FIRST_PAUSE_S
            await stage.loop.write()
        pauses_s.append(waited_s)
        assert stage.api.calls == [("MERGE", PATHS[0])]
    assert pauses_s[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses_s[-1] == MAX_PAUSE_S

    stage.api.refused.clear()
    stage.clock.now += MAX_PAUSE_S
    assert await stage.loop.write()
    assert stage.without_status() == []


async def test_without_an_answer_nobody_else_is_asked_in_vain(stage):
    stage.api.broken.add("*")
    assert not await stage.loop.write()
    assert len(stage.api.calls) == 1
    stage.api.broken.clear()
    assert await stage.loop.write(), "all of it at once, as soon as there is an answer"
    assert stage.without_status() == []


async def test_the_loop_goes_on_after_a_mistake_of_ours(stage, monkeypatch):
    monkeypatch.setattr("partq.kube.reconcile.status_loop.GAP_S", 0.001)
    monkeypatch.setattr("partq.kube.reconcile.status_loop.FIRST_PAUSE_S", 0.001)
    looked = asyncio.Event()

    def broken(body, generation):
        looked.set()
        raise ZeroDivisionError

    stage.facts_of = broken
    task = asyncio.create_task(stage.loop.run())
    stage.loop.wake()
    async with asyncio.timeout(60):
        await looked.wait()
        stage.facts_of = facts_of
        await eventually(lambda: not stage.without_status(), "every group has its status")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_long_annotation_fits_into_the_status(stage):
    body = group_body(GROUPS[0])
    body["metadata"] |= {
        "uid": "00000000-1111-4222-8333-123456789abc",
        "resourceVersion": "99",
        "annotations": {names.REBALANCE_NOW: "x" * (MAX_MESSAGE_CHARS + 1)},
    }
    stage.cache.put_group(body)
    carried_out = []
    for _ in range(2):
        stage.groups.hurry(lambda name: carried_out.append(name) or True)
    assert carried_out == [GROUPS[0]], "once"
    await stage.loop.write()
    status = stage.api.objects[PATHS[0]]["status"]
    assert status["rebalanceNow"] == "x" * MAX_MESSAGE_CHARS


def later(body, *, generation, **changes):
    """Return a body as the server has it after a change."""
    version = str(int(body["metadata"]["resourceVersion"]) + 100)
    metadata = {**body["metadata"], "generation": generation, "resourceVersion": version}
    return {**body, "metadata": metadata, **changes}


def observed(stage, path):
    """Return the generations that a status names."""
    status = stage.api.objects[path]["status"]
    return {status["observedGeneration"]} | {
        each["observedGeneration"] for each in status["conditions"]
    }


async def test_a_status_names_the_generation_that_was_looked_at(stage):
    await stage.loop.write()
    assert observed(stage, QUEUE) == observed(stage, PATHS[0]) == {1}

    stage.cache.put_queue(later(stage.cache.queue(KEY), generation=2))
    group = stage.cache.groups(KEY)[GROUPS[0]]
    broken = later(group, generation=5, spec={**group["spec"], "strategy": "?"})
    stage.cache.put_group(broken)
    await stage.loop.write()
    assert observed(stage, QUEUE) == observed(stage, PATHS[0]) == {1}
    assert condition(stage, PATHS[0], "SpecValid") == "True", "of the generation that it names"

    stage.look()
    await stage.loop.write()
    assert observed(stage, QUEUE) == {2}
    assert observed(stage, PATHS[0]) == {5}
    assert observed(stage, PATHS[1]) == {1}
    assert condition(stage, PATHS[0], "SpecValid") == "False"


async def test_nothing_is_written_before_the_first_look(stage):
    stage.loop = stage.new_loop()
    assert await stage.loop.write()
    assert stage.api.calls == []


async def test_a_queue_that_was_paused_when_the_operator_began(stage):
    """No look is about its spec, nor its groups'; that it is paused is told all the same."""
    stage.loop = stage.new_loop()
    queue = stage.cache.queue(KEY)
    queue["metadata"]["annotations"] = {names.PAUSE: "true"}
    stage.facts_of = lambda body, generation: queue_facts(generation=generation, is_paused=True)
    status = {"observedGeneration": 3, "conditions": []}
    stage.put(stage.cache.put_queue, QUEUE, later(queue, generation=4, status=status))
    group = stage.cache.groups(KEY)[GROUPS[0]]
    stage.put(stage.cache.put_group, PATHS[0], later(group, generation=4, status=status))
    stage.loop.note_look([])
    await stage.loop.write()
    assert observed(stage, QUEUE) == observed(stage, PATHS[0]) == {3}
    assert condition(stage, QUEUE, "Paused") == condition(stage, PATHS[0], "Paused") == "True"


def condition(stage, path, type_):
    conditions = stage.api.objects[path]["status"]["conditions"]
    return next(each["status"] for each in conditions if each["type"] == type_)
