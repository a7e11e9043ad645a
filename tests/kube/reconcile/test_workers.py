"""Who works for which queue: while this replica leads, for every queue that is fully known."""

import asyncio
from types import SimpleNamespace

import pytest

from partq.kube.names import QueueKey
from partq.kube.reconcile import workers
from partq.kube.reconcile.workers import Workers
from partq.kube.watch.object_cache import ObjectCache
from partq.testing import eventually
from tests.kube.bodies import queue_body

KEY = QueueKey("shop", "orders")


class System:
    """Workers of a replica whose leadership a test decides."""

    def __init__(self):
        self.working = []
        self.made = []
        self.fails = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.leads = False
        self.changed = asyncio.Event()
        self.workers = Workers()
        self.cache = ObjectCache(self.workers.notice)
        self.cache.put_queue(queue_body())

    def lead(self, leads):
        self.leads = leads
        self.changed.set()

    async def follow(self):
        metrics = SimpleNamespace(forget=lambda *key: None)
        context = SimpleNamespace(cache=self.cache, metrics=metrics)
        await self.workers.follow(context, lambda: self.leads, self.changed)


@pytest.fixture
async def system(monkeypatch):
    system = System()

    class Worker:
        def __init__(self, context, key):
            system.made.append(key)
            self.key = key

        def notice(self):
            pass

        async def run(self):
            system.working.append(self.key)
            try:
                await system.fails.wait()
                raise RuntimeError("a mistake of ours")
            finally:
                system.working.remove(self.key)
                await system.may_end.wait()

    monkeypatch.setattr(workers, "QueueWorker", Worker)
    monkeypatch.setattr(workers, "RESTART_S", 0.01)
    following = asyncio.create_task(system.follow())
    yield system
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert system.working == []


async def test_only_the_leader_works(system):
    system.cache.complete("")
    await asyncio.sleep(0)
    assert system.made == []
    system.lead(True)
    await eventually(lambda: system.working == [KEY])
    system.lead(False)
    await eventually(lambda: system.working == [])


async def test_leadership_that_comes_back_while_the_workers_end(system):
    system.cache.complete("")
    system.lead(True)
    await eventually(lambda: system.working == [KEY])
    system.may_end.clear()
    system.lead(False)
    await eventually(lambda: system.working == [])
    system.lead(True)
    system.may_end.set()
    await eventually(lambda: system.working == [KEY])


async def test_a_worker_that_fails_is_followed_by_another(system):
    system.cache.complete("")
    system.lead(True)
    await eventually(lambda: system.working == [KEY])
    system.fails.set()
    await eventually(lambda: len(system.made) >= 2)
    system.fails.clear()
    await eventually(lambda: system.working == [KEY])


async def test_half_a_picture_is_not_worked_on(system):
    system.lead(True)
    system.cache.complete("another")
    system.cache.put_queue(queue_body("more"))
    await asyncio.sleep(0)
    assert system.made == []
    system.cache.complete("shop")
    await eventually(lambda: set(system.working) == {KEY, QueueKey("shop", "more")})
