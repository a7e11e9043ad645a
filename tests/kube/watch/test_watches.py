"""kopf ends at an answer that it cannot use: it is started again, and the log says why."""

import asyncio
import logging
import time

import pytest
import yaml
from aiohttp import web

from partq.aio import cancel_and_wait
from partq.kube.health import ProcessHealth
from partq.kube.watch import watches
from partq.kube.watch.object_cache import ObjectCache
from partq.testing import eventually
from tests.kube.bodies import queue_body
from tests.kube.fake_api import FakeApi

GROUP = "/apis/partq.dev/v1alpha1"
KINDS = {
    "partitionedqueues": "PartitionedQueue",
    "consumergroups": "ConsumerGroup",
    "namespaces": "Namespace",
    "nodes": "Node",
    "pods": "Pod",
}


def resources(*plurals):
    """Return what an API says of its kinds."""
    verbs = ["get", "list", "watch"]
    return {
        "resources": [
            {
                "name": plural,
                "singularName": plural[:-1],
                "kind": KINDS[plural],
                "namespaced": plural not in ("namespaces", "nodes"),
                "verbs": verbs,
            }
            for plural in plurals
        ]
    }


class RestartedApi:
    """Lists everything; the first watches of queues are answered 404, as by a server that starts.

    The state that it plays lasts for milliseconds in a real one.
    """

    def __init__(self):
        self.refused = 0
        self.watches = 0
        """Those that are under way, without those that nobody reads any more."""

    async def answer(self, request):
        path = request.path
        if "watch" in request.query:
            if path.endswith("/partitionedqueues") and self.refused < 2:
                self.refused += 1
                return web.Response(status=404, text="404 page not found")
            self.watches += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.watches -= 1
        found = {
            "/version": {"major": "1", "minor": "30"},
            "/api": {"versions": ["v1"]},
            "/api/v1": resources("namespaces", "nodes", "pods"),
            "/apis": {
                "groups": [
                    {
                        "name": "partq.dev",
                        "versions": [{"version": "v1alpha1"}],
                        "preferredVersion": {"version": "v1alpha1"},
                    }
                ]
            },
            GROUP: resources("partitionedqueues", "consumergroups"),
        }.get(path)
        if found is None:
            items = [queue_body()] if path.endswith("/partitionedqueues") else []
            found = {"items": items, "metadata": {"resourceVersion": "1"}}
        return web.json_response(found)


@pytest.fixture
async def restarted(tmp_path, monkeypatch):
    api = RestartedApi()
    app = web.Application()
    app.router.add_get("/{path:.*}", api.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    config = {
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user"}}],
        "clusters": [{"name": "tests", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "user", "user": {"token": "secret"}}],
        "current-context": "tests",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr(watches, "FIRST_BACKOFF_S", 0.01)
    yield api
    await runner.cleanup()


async def test_an_api_server_that_does_not_know_our_kinds_yet_is_no_mistake(restarted, caplog):
    cache = ObjectCache(lambda key: None)
    health = ProcessHealth(time.monotonic)
    nodes = FakeApi()
    watching = watches.Watches(nodes, cache, ["shop"], health, lambda: None)
    task = asyncio.create_task(watching.run())
    await eventually(lambda: restarted.watches == 4, "it goes on")
    ours = {each for each in asyncio.all_tasks() if each.get_name().startswith("watcher for ")}
    assert len(ours) == 4, "what an earlier kopf left would wait for ever, and hold up the end"
    await cancel_and_wait(task)
    assert all(each.done() for each in ours)
    told = [each for each in caplog.records if "404" in each.getMessage()]
    assert [each.name for each in told].count(watches.__name__) == 2, "what became of it is told"
    assert {each.name.partition(".")[0] for each in told} == {"kopf", "partq"}
    assert not [each for each in caplog.records if each.exc_info], "no trace: it is no mistake"


def test_a_mistake_keeps_its_trace(caplog):
    with watches.without_traces(watches.is_of_kopf):
        try:
            raise ValueError
        except ValueError:
            logging.getLogger("kopf.reactor").exception("a handler has failed")
    assert caplog.records[-1].exc_info
