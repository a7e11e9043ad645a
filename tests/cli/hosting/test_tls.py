"""A queue over TLS as processes: brokers, coordinator and commands."""

import asyncio
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest

from partq.embedded.provision import provision
from partq.resources import group_document, queue_document, resources_of
from partq.store.connection import Store
from partq.testing.tcp_ports import free_port
from partq.wire.tls import trust
from tests.authority import Authority, mount
from tests.kube.api_server.pods import PARTQ
from tests.kube.api_server.processes import Process, eventually

UID = "0f3a9c1e"
TOKENS = {role: f"{role}-token-of-the-test" for role in ("produce", "consume", "admin")}


class Queue:
    """Two brokers and a coordinator; every address that they tell is `https://`."""

    def __init__(self, folder, redis_url, prefix):
        self.folder = folder
        self.authority = Authority()
        self.tls_dir = mount(folder / "tls", self.authority.issue())
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(self.authority.pem)
        self.context = trust(ca_file=self.ca_file)
        self.urls = [f"https://127.0.0.1:{free_port()}" for _ in range(2)]
        self._redis_url = redis_url
        self._prefix = prefix
        self._processes = []

    def start(self, stack):
        asyncio.run(self._provision())
        grants = [{"token": TOKENS[r], "queue": "orders", "role": r} for r in TOKENS]
        tokens_file, token_file = self.folder / "tokens.json", self.folder / "admin.token"
        tokens_file.write_text(json.dumps(grants))
        token_file.write_text(TOKENS["admin"])
        for number, url in enumerate(self.urls):
            self._start(
                stack,
                "broker",
                PARTQ_BROKER_ID=f"orders-{number}",
                PARTQ_LISTEN_PORT=url.rpartition(":")[2],
                PARTQ_TOKENS_FILE=str(tokens_file),
                PARTQ_TLS_DIR=str(self.tls_dir),
            )
        self._start(
            stack, "coordinator", PARTQ_TOKEN_FILE=str(token_file), PARTQ_CA_FILE=str(self.ca_file)
        )
        eventually(lambda: len(set(self.layout()["owners"].values())) == 2, "both own partitions")

    def _start(self, stack, command, **env):
        settings = {
            "PARTQ_QUEUE": "orders",
            "PARTQ_QUEUE_UID": UID,
            "PARTQ_REDIS_URL": self._redis_url,
            "PARTQ_KEY_PREFIX": self._prefix,
            **env,
        }
        log = self.folder / f"{command}-{len(self._processes)}.log"
        process = Process([PARTQ, command], log=log, env=settings)
        self._processes.append(process)
        stack.callback(process.kill)
        process.start()

    async def _provision(self):
        store = await Store.open(self._redis_url, prefix=self._prefix, timeout_s=60.0)
        resources = resources_of(
            queue_document("orders", partitions=4), group_document("workers", "orders")
        )
        await provision(store, resources.queues[0], resources, uid=UID)
        await store.close()

    def call(self, url, path, body=None):
        """Make a call with the token of the role `produce`, and return the JSON."""
        headers = {"Authorization": f"Bearer {TOKENS['produce']}"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url + path, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:
            return json.load(answer)

    def layout(self):
        """Return the layout as a broker tells it; without owners while none answers."""
        for process in self._processes:
            process.require()
        try:
            return self.call(self.urls[0], "/v1/queues/orders/layout")
        except (urllib.error.URLError, ConnectionError):
            return {"owners": {}}

    def partq(self, command, *arguments, role="admin", url=None, ca_file=None):
        """Run a command as a user does."""
        env = {
            "PARTQ_URL": url or self.urls[0],
            "PARTQ_QUEUE": "orders",
            "PARTQ_TOKEN": TOKENS[role],
            **({"PARTQ_CA_FILE": str(ca_file)} if ca_file else {}),
        }
        return subprocess.run(
            [PARTQ, command, *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture(scope="module")
def queue(tmp_path_factory, redis_server):
    with ExitStack() as stack:
        queue = Queue(tmp_path_factory.mktemp("tls"), redis_server.url, "over-tls")
        queue.start(stack)
        yield queue


def test_the_addresses_that_brokers_tell_are_https(queue):
    assert sorted(each["url"] for each in queue.layout()["brokers"]) == sorted(queue.urls)


def test_messages_go_through_brokers_that_the_client_was_not_told_of(queue, tmp_path):
    lines = [json.dumps({"key": f"k-{number}", "value": str(number)}) for number in range(40)]
    file = tmp_path / "messages"
    file.write_text("\n".join(lines))
    done = queue.partq("publish", "--input", str(file), role="produce", ca_file=queue.ca_file)
    assert (done.returncode, done.stdout) == (0, "published 40\n"), done.stderr
    arguments = ("--group", "workers", "--count", "40", "--json")
    done = queue.partq("consume", *arguments, role="consume", ca_file=queue.ca_file)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(int(each["value"]) for each in found) == list(range(40))
    assert {each["partition"] for each in found} == set(queue.layout()["owners"])


def test_a_broker_lets_the_owner_store_what_comes_by_plain_https(queue):
    messages = [{"key": f"k-{number}", "value": "x"} for number in range(20)]
    for url in queue.urls:
        answer = queue.call(url, "/v1/queues/orders/messages", messages)
        assert [each for each in answer["results"] if "error" in each] == []


def test_status_is_shown(queue):
    done = queue.partq("status", "--json", ca_file=queue.ca_file)
    assert json.loads(done.stdout)["queue"] == "orders"


def test_a_command_says_in_one_sentence_that_it_does_not_trust_a_broker(queue):
    done = queue.partq("status")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"partq: no broker answers: {queue.urls[0]}: its certificate is refused")
    assert "--ca-file" in line


def test_a_command_that_calls_by_http_is_told_of_https(queue):
    url = queue.urls[0].replace("https:", "http:")
    done = queue.partq("status", url=url)
    (line,) = done.stderr.splitlines()
    assert line.endswith("a broker with TLS has a URL that begins with https://")


def test_metrics_say_whether_the_certificate_could_be_used(queue):
    url = f"{queue.urls[0]}/metrics"
    with urllib.request.urlopen(url, timeout=60, context=queue.context) as answer:
        text = answer.read().decode()
    assert 'partq_certificate_refused{namespace="default",queue="orders"} 0.0' in text


def test_a_broker_without_its_key_ends_with_a_sentence(queue, tmp_path):
    folder = tmp_path / "tls"
    shutil.copytree(queue.tls_dir, folder)
    (folder / "tls.key").unlink()
    env = {
        "PARTQ_QUEUE": "orders",
        "PARTQ_QUEUE_UID": UID,
        "PARTQ_REDIS_URL": "redis://127.0.0.1:9",
        "PARTQ_BROKER_ID": "orders-9",
        "PARTQ_TOKENS_FILE": str(queue.folder / "tokens.json"),
        "PARTQ_TLS_DIR": str(folder),
    }
    done = subprocess.run(
        [PARTQ, "broker"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert (
        done.stderr
        == f"partq: {folder / 'tls.key'}: it is not there, expected it in PARTQ_TLS_DIR\n"
    )
