"""One namespace with operators, queues, groups and consumers, and what a test asks of them."""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from partq.resources import API_VERSION
from partq.store.keys import Keys
from partq.testing.tcp_ports import HOST, free_port
from tests.kube.api_server.api_server import ApiServer
from tests.kube.api_server.client import Body
from tests.kube.api_server.pods import LEASE_S, PARTQ, Brokers, Owner, PlayedPod
from tests.kube.api_server.processes import WAIT_S, Process, eventually

KOPF_AT_ITS_END = re.compile(
    r"^.*closing of asynchronous generator <async_generator object infinite_watch.*?"
    r"^RuntimeError: generator didn't stop after athrow\(\)$"
    r"|^\S+ ERROR +asyncio: Task exception was never retrieved\n"
    r"^future: <Task finished [^\n]* coro=<_read_new_apis\(\) .*?"
    r"^aiohttp\.client_exceptions\.ClientConnectionError: Connection closed$",
    re.MULTILINE | re.DOTALL,
)
"""What a process that ends may log of a watch that kopf leaves to the interpreter, or of its look
at the server's resources, when that is under way: not our mistake, and of no consequence."""
FAST_REBALANCE = {"delaySeconds": 2, "maxHandoffSeconds": 2}
LOOKS = 5
"""After so many looks in which an operator has changed nothing it has no reason to."""


TRACE_CONTEXT = 5
"""How many lines before and behind a trace are shown."""
MAX_TRACES = 5
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT")


def traces(log: str) -> list[str]:
    """Return each trace of a log, with the lines around it."""
    lines = log.splitlines()
    found: list[str] = []
    end = 0
    for at, line in enumerate(lines):
        if at < end or not line.startswith("Traceback"):
            continue
        end = at + 1
        while end < len(lines) and not _LOG_LINE.match(lines[end]):
            end += 1
        found.append("\n".join(lines[max(0, at - TRACE_CONTEXT) : end + TRACE_CONTEXT]))
    return found


class Operator:
    """One replica of the operator."""

    def __init__(self, name: str, process: Process, url: str) -> None:
        self.name = name
        self.process = process
        self.url = url

    def answers(self, path: str) -> bool:
        """Say whether a probe succeeds; the process has to live."""
        self.process.require()
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def looks(self) -> int:
        """Return how often it has looked at one of its queues since it was started."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        counts = [line for line in lines if line.startswith("partq_reconcile_total{")]
        return sum(int(float(line.split()[-1])) for line in counts)


class Stage:
    """Everything of one namespace; processes that still run at the end are killed."""

    def __init__(
        self, server: ApiServer, namespace: str, *, redis_url: str, prefix: str, folder: Path
    ) -> None:
        self.kube = server.client()
        self.namespace = namespace
        self.operators: list[Operator] = []
        self.folder = folder
        self.redis_url = redis_url
        self._server = server
        self._prefix = prefix
        self._consumers: list[Process] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.kube.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        self._stack.callback(self.kube.close)
        self._stack.enter_context(self.consumers())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def node(self, name: str, **spec: Any) -> Iterator[str]:
        """Have a node, which is removed with the block; return its name."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        self.kube.call("POST", "/api/v1/nodes", body)
        try:
            yield name
        finally:
            self.kube.call("DELETE", f"/api/v1/nodes/{name}")

    # ---- processes ------------------------------------------------------------------------------

    def start_operator(
        self, name: str = "operator-0", *, kubeconfig: Path | None = None, **env: str
    ) -> Operator:
        """Start a replica of the operator, and wait until it serves its probes."""
        port = free_port()
        settings = {
            "KUBECONFIG": str(kubeconfig or self._server.kubeconfig("admin")),
            "PARTQ_NAMESPACES": self.namespace,
            "PARTQ_REDIS_URL": self.redis_url,
            "PARTQ_REDIS_HOSTS": HOST,  # queues may name it, though it is a loopback address
            "PARTQ_KEY_PREFIX": self._prefix,
            "PARTQ_BROKER_IMAGE": "partq:test",
            "PARTQ_POD_NAME": name,
            "PARTQ_POD_NAMESPACE": self.namespace,
            "PARTQ_LISTEN_HOST": HOST,
            "PARTQ_LISTEN_PORT": str(port),
            **env,
        }
        log = self.folder / f"{self.namespace}-{name}.log"
        process = Process([PARTQ, "operator"], log=log, env=settings)
        operator = Operator(name, process, f"http://{HOST}:{port}")
        self.operators.append(operator)
        self._stack.callback(process.kill)
        process.start()
        eventually(partial(operator.answers, "/healthz"), f"{name} lives")
        return operator

    def serve(self, queue: str, *, lease_s: int = LEASE_S) -> Brokers:
        """Run the brokers of a queue, and wait until it is Ready."""
        brokers = Brokers(self.kube, self.namespace, queue, self.folder, lease_s=lease_s)
        self._stack.callback(brokers.stop)
        brokers.start()
        self.wait_for("PartitionedQueue", queue, "Ready", "True")
        return brokers

    def start_consumer(
        self, pod: PlayedPod, queue: str, group: str, brokers: Brokers, *options: str
    ) -> PlayedPod:
        """Let `partq consume` play a pod; its member id is the pod's uid."""
        env = {"PARTQ_MEMBER": pod.uid}
        self.start_consumer_as(pod, queue, group, brokers, env, *options)
        return pod

    def start_pod(
        self, brokers: Brokers, owner: Owner, group: str, *, is_ready: bool = True
    ) -> PlayedPod:
        """Start one more pod of an owner, with its consumer."""
        pod = self.start_consumer(owner.make_pod(), brokers.queue, group, brokers)
        pod.report(is_ready=is_ready)
        return pod

    def start_consumer_as(
        self,
        pod: PlayedPod,
        queue: str,
        group: str,
        brokers: Brokers,
        env: Mapping[str, str],
        *options: str,
    ) -> None:
        """Let `partq consume` play a pod, under a member id in `env`."""
        log = self.folder / f"{self.namespace}-{pod.name}.log"
        argv = ["consume", "--json", "--group", group, *options]
        process = Process(
            [PARTQ, *argv], log=log, env={**self._at(queue, brokers, "consume"), **env}
        )
        self._consumers.append(process)
        pod.start(process)

    def publish(self, queue: str, brokers: Brokers, values: Sequence[str]) -> None:
        """Store messages that may go to any partition."""
        log = self.folder / f"{self.namespace}-publish.log"
        env = self._at(queue, brokers, "produce")
        process = Process([PARTQ, "publish", *values], log=log, env=env)
        process.start()
        assert process.wait() == 0, process.output()

    def explain(self, queue: str, group: str, brokers: Brokers, *options: str) -> str:
        """Return what `partq explain` says of the first partition."""
        log = self.folder / f"{self.namespace}-explain.log"
        log.unlink(missing_ok=True)
        env = self._at(queue, brokers, "admin")
        process = Process([PARTQ, "explain", "0", "--group", group, *options], log=log, env=env)
        process.start()
        assert process.wait() == 0, process.output()
        return process.output()

    def _at(self, queue: str, brokers: Brokers, role: str) -> dict[str, str]:
        """Return the environment by which a command finds a queue."""
        return {
            "PARTQ_URL": ",".join(brokers.urls),
            "PARTQ_QUEUE": queue,
            "PARTQ_NAMESPACE": self.namespace,
            "PARTQ_TOKEN": brokers.tokens[role],
        }

    @contextmanager
    def consumers(self) -> Iterator[None]:
        """Kill the consumers that are started in the block and still run at its end."""
        try:
            yield
        finally:
            for process in self._consumers:
                process.kill()
            self._consumers.clear()

    # ---- resources ------------------------------------------------------------------------------

    def apply_queue(self, name: str, **spec: Any) -> Body:
        """Make a PartitionedQueue of 8 partitions and one broker, unless `spec` says otherwise."""
        small = {"partitions": 8, "brokers": {"replicas": 1}, "rebalance": FAST_REBALANCE}
        return self.kube.create(self.resource("PartitionedQueue", name, {**small, **spec}))

    def apply_group(self, name: str, queue: str, **spec: Any) -> Body:
        """Make a ConsumerGroup whose members are the pods labelled `group: NAME`.

        Returns once the brokers serve it and have no member yet.
        """
        selector = {"matchLabels": {"group": name}}
        body = {"queue": queue, "selector": selector, **spec}
        made = self.kube.create(self.resource("ConsumerGroup", name, body))
        self.wait_for("ConsumerGroup", name, "Ready", "True", "NoMember")
        return made

    def delete_queue(self, name: str, brokers: Brokers) -> None:
        """Delete a queue, and play what the controllers do with the pods of its StatefulSet."""
        self.kube.delete("PartitionedQueue", self.namespace, name)
        eventually(
            lambda: self.kube.get("StatefulSet", self.namespace, f"{name}-broker") is None,
            "the StatefulSet is removed",
        )
        for pod in brokers.pods:
            pod.delete()
        for pod in brokers.pods:
            pod.end()
        eventually(
            lambda: self.kube.get("PartitionedQueue", self.namespace, name) is None,
            "the finalizer is taken off",
        )

    def resource(self, kind: str, name: str, spec: Mapping[str, Any]) -> Body:
        """Return the body of one of our resources."""
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": dict(spec)}

    def owner(self, name: str, group: str, *, kind: str = "Deployment") -> Owner:
        """Make the owner of consumer pods of a group."""
        return Owner(self.kube, self.namespace, name, kind=kind, labels={"group": group})

    def annotate(self, kind: str, name: str, **annotations: str | None) -> None:
        """Set annotations `partq.dev/...` of a resource; None removes one."""
        named = {f"partq.dev/{key.replace('_', '-')}": v for key, v in annotations.items()}
        self.kube.patch(kind, self.namespace, name, {"metadata": {"annotations": named}})

    # ---- what is seen ---------------------------------------------------------------------------

    def status(self, kind: str, name: str) -> Body:
        """Return the status of a resource; empty: it has none yet."""
        body = self.kube.get(kind, self.namespace, name)
        assert body is not None, f"{kind} {name} is gone"
        found: Body = body.get("status", {})
        return found

    def condition(self, kind: str, name: str, type_: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        found = {each["type"]: each for each in self.status(kind, name).get("conditions", ())}
        condition = found.get(type_, {})
        return condition.get("status", ""), condition.get("reason", "")

    def wait_for(
        self, kind: str, name: str, type_: str, status: str, reason: str | None = None
    ) -> Body:
        """Wait until a condition says this of the spec as it is now, and return it."""

        def look() -> Body | None:
            body = self.kube.get(kind, self.namespace, name)
            assert body is not None, f"{kind} {name} is gone"
            for each in body.get("status", {}).get("conditions", ()):
                if (
                    each["type"] == type_
                    and each["status"] == status
                    and reason in (None, each["reason"])
                    and each["observedGeneration"] == body["metadata"]["generation"]
                ):
                    found: Body = each
                    return found
            return None

        try:
            return eventually(look, f"{kind} {name}: {type_}={status} {reason or ''}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nstatus: {self._status_text(kind, name)}") from None

    def assignment(self, queue: str, group: str) -> dict[int, str | None]:
        """Return partition → member, as Redis has it."""
        return {index: value[0] for index, value in self.assigned(queue, group).items()}

    def assigned(self, queue: str, group: str) -> dict[int, tuple[str | None, int, str]]:
        """Return partition → (member, epoch, state), as Redis has it."""
        key = self.keys(queue).assignment(group)
        with redis.Redis.from_url(self.redis_url) as connection:
            flat = connection.hgetall(key)
        found = {field.decode(): json.loads(value) for field, value in flat.items()}
        return {
            int(field.rpartition(".")[2]): (member or None, epoch, state)
            for field, (member, epoch, state) in found.items()
        }

    def keys(self, queue: str) -> Keys:
        """Return the names of a queue's keys."""
        uid = self.status("PartitionedQueue", queue)["storeUid"]
        return Keys(self._prefix, self.namespace, queue, uid)

    def wait_for_shares(self, queue: str, group: str, *pods: PlayedPod) -> dict[int, str | None]:
        """Wait until the partitions are Ready with just these pods, as evenly as can be."""

        def look() -> dict[int, str | None] | None:
            found = self.assigned(queue, group)
            members = [member for member, _, _ in found.values()]
            counts = [members.count(pod.uid) for pod in pods]
            is_even = sum(counts) == len(found) > 0 and max(counts) - min(counts) <= 1
            is_ready = all(state == "Ready" for _, _, state in found.values())
            return {p: each[0] for p, each in found.items()} if is_even and is_ready else None

        try:
            return eventually(look, f"{group}: shares of {[pod.name for pod in pods]}")
        except AssertionError as error:
            raise AssertionError(
                f"{error}\nassigned: {self.assigned(queue, group)}\n"
                f"status: {self._status_text('ConsumerGroup', group)}"
            ) from None

    def stays(self, queue: str, look: Callable[[], object], what: str) -> None:
        """See that `look` finds something however often the operators look at a queue again.

        A note at the queue has its worker look, and the coordinator beside it.

        Raises:
            AssertionError: it did not, or no operator looks.
        """
        for _ in range(LOOKS):
            self._have_looked(queue)
            found = look()
            assert found, f"{what}: got {found!r}"

    def _have_looked(self, queue: str) -> None:
        before = self._looks()
        body = {"metadata": {"annotations": {"tests/look": str(before)}}}
        self.kube.patch("PartitionedQueue", self.namespace, queue, body)
        eventually(lambda: self._looks() > before, "an operator looks")

    def _looks(self) -> int:
        return sum(each.looks() for each in self.operators if each.process.is_running)

    def wait_for_active(self, group: str, count: int) -> None:
        """Wait until status has so many active members: who comes and goes before is no news."""
        eventually(
            lambda: self.status("ConsumerGroup", group).get("members", {}).get("active") == count,
            f"{group}: {count} active members in status",
        )

    def events(self, kind: str, name: str) -> list[str]:
        """Return the reasons of the Events about a resource."""
        return [
            event["reason"]
            for event in self.kube.list("Event", self.namespace)
            if (event["regarding"]["kind"], event["regarding"]["name"]) == (kind, name)
        ]

    def wait_for_event(self, kind: str, name: str, reason: str) -> None:
        """Wait for an Event about a resource."""
        eventually(lambda: reason in self.events(kind, name), f"Event {reason} of {kind} {name}")

    def check_operators(self) -> None:
        """See that no operator has met a mistake of ours; the message is its traces alone."""
        found = {
            operator.name: traces(KOPF_AT_ITS_END.sub("", operator.process.output()))
            for operator in self.operators
        }
        told = [f"{name}:\n{trace}" for name, each in found.items() for trace in each]
        if told:
            pytest.fail("\n\n".join(told[:MAX_TRACES]), pytrace=False)

    def _status_text(self, kind: str, name: str) -> str:
        return json.dumps(self.status(kind, name), indent=1)
