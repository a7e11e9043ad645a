"""What somebody tries who can write to a store, or to the spec of a queue."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import redis

from tests.kube.api_server.processes import eventually


@pytest.fixture(scope="module", autouse=True)
def operator(stage):
    return stage.start_operator()


@contextmanager
def listening():
    """Listen as somebody who waits for the operator's calls; return what has come."""
    calls = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            calls.append((self.path, self.headers.get("Authorization")))
            self.send_error(404)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", calls
        finally:
            server.shutdown()
            thread.join()


def test_a_lease_of_somebody_else_leads_the_operator_nowhere(stage, operator):
    stage.apply_queue("bank")
    stage.serve("bank")
    with listening() as (url, calls), redis.Redis.from_url(stage.redis_url) as store:
        key = stage.keys("bank").brokers()
        lease = json.dumps({"incarnation": "i", "ttl_s": 3.0, "url": f"{url}/any/path?x="})

        def has_tried():
            for broker in ("evil", "bank-broker-7"):
                store.hset(key, f"lease:{broker}", lease)
                store.hincrby(key, f"counter:{broker}", 1)
            output = operator.process.output()
            return calls or all(f"state of broker {b}" in output for b in ("evil", "bank-broker-7"))

        eventually(has_tried, "the operator has tried to reach them")
        assert calls == [], "neither the call nor the token"


def test_a_queue_names_no_address_of_the_operators_own(stage):
    """The host of the tests is on the operator's list, and no other."""
    url = "redis://169.254.169.254:80/0"
    stage.kube.create(
        stage.resource("PartitionedQueue", "metadata", {"redis": {"url": url}, "partitions": 2})
    )
    condition = stage.wait_for("PartitionedQueue", "metadata", "Ready", "False", "AddressRefused")
    assert "169.254.169.254" in condition["message"]
    assert stage.condition("PartitionedQueue", "metadata", "Stalled")[0] == "True"
    assert stage.kube.get("StatefulSet", stage.namespace, "metadata-broker") is None


def test_what_answers_and_is_no_redis_is_not_shown(stage, operator):
    """Neither that it speaks HTTP nor what it says; the operator's log has it."""
    with listening() as (url, _):
        address = url.removeprefix("http://")
        spec = {"redis": {"url": f"redis://{address}/0"}, "partitions": 2}
        stage.kube.create(stage.resource("PartitionedQueue", "scan", spec))
        condition = stage.wait_for(
            "PartitionedQueue", "scan", "StoreReachable", "False", "StoreUnreachable"
        )
        assert condition["message"] == (
            f"Redis at {address}: no usable Redis answers there; the operator's log has the details"
        )
        assert "cannot connect to Redis" in operator.process.output()
