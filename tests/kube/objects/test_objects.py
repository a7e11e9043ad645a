"""Secrets that are read, objects that are applied, Events that are written."""

import json
from datetime import UTC, datetime

import pytest

from partq.kube.errors import KubernetesError, NameTakenError, SecretMissingError
from partq.kube.events import SERIES_S, UPDATE_GAP_S, EventRecorder, Subject
from partq.kube.objects.apply import REPAIR_S, Applier
from partq.kube.objects.broker_pods import KubeObject, encoded, secret_entries
from partq.kube.objects.credentials import read_access
from partq.kube.watch import parse
from tests.authority import Authority
from tests.kube.bodies import UID, queue_body

SECRETS = "/api/v1/namespaces/shop/secrets"
EVENTS = "/apis/events.k8s.io/v1/namespaces/shop/events"
OWNED = {"ownerReferences": [{"uid": UID}]}
TOKENS = '[{"token": "the-admin-token", "queue": "orders", "role": "admin"}]'


def secret(api, name, entries, metadata=None):
    metadata = {"name": name, "uid": name, "resourceVersion": "1", **(metadata or {})}
    api.objects[f"{SECRETS}/{name}"] = {"metadata": metadata, "data": encoded(entries)}


def read(api, default="redis://default", **spec):
    return read_access(api, parse.queue(queue_body(**spec)), UID, default)


async def test_tokens_are_made_once(api):
    first = await read(api)
    second = await read(api)
    assert first == second
    assert first.tokens_secret == "orders-tokens"
    assert first.redis_url == "redis://default"
    assert [call for call in api.calls if call[0] == "POST"] == [("POST", SECRETS)]


async def test_groups_get_their_tokens_in_a_secret_of_the_operators_own(api):
    """One that somebody else has written is left alone, and so is one that changes meanwhile."""
    queue = parse.queue(queue_body())
    await read_access(api, queue, UID, "redis://default", ["workers"])
    path = f"{SECRETS}/orders-tokens"
    entries = secret_entries(api.objects[path])
    assert "consume-workers" in entries
    grants = json.loads(entries["tokens.json"])
    token = entries["consume-workers"]
    row = {"token": token, "queue": "orders", "role": "consume", "groups": ["workers"]}
    assert grants[-1] == row
    calls = len(api.calls)
    await read_access(api, queue, UID, "redis://default", ["workers"])
    assert [method for method, _ in api.calls[calls:]] == ["GET"]
    secret(api, "mine", {"tokens.json": TOKENS})
    mine = parse.queue(queue_body(auth={"secretName": "mine"}))
    await read_access(api, mine, UID, "redis://default", ["workers"])
    assert secret_entries(api.objects[f"{SECRETS}/mine"]) == {"tokens.json": TOKENS}


async def test_tokens_and_url_of_ones_own(api):
    secret(api, "mine", {"tokens.json": TOKENS})
    secret(api, "redis", {"uri": "rediss://other:1/2\n"})
    found = await read(
        api,
        auth={"secretName": "mine"},
        redis={"secretRef": {"name": "redis", "key": "uri"}},
    )
    assert (found.admin_token, found.tokens_secret) == ("the-admin-token", "mine")
    assert found.redis_url == "rediss://other:1/2"
    assert (await read(api, redis={"url": "redis://a"})).redis_url == "redis://a"


@pytest.mark.parametrize(
    ("spec", "error", "sentence"),
    [
        ({"auth": {"secretName": "mine"}}, SecretMissingError, "shop/mine: it is not there"),
        ({"auth": {"secretName": "empty"}}, SecretMissingError, "it has no entry tokens.json"),
        ({"auth": {"secretName": "other"}}, SecretMissingError, "no token of the role admin"),
        ({"redis": {"secretRef": {"name": "empty"}}}, SecretMissingError, "it has no entry url"),
        (
            {"redis": {"secretRef": {"name": "odd"}}},
            SecretMissingError,
            "not shown, it may hold a password",
        ),
        ({"tls": {"secretName": "mine"}}, SecretMissingError, "shop/mine: it is not there"),
        ({"tls": {"secretName": "pending"}}, SecretMissingError, "it has no entry tls.crt"),
        ({"tls": {"secretName": "keyless"}}, SecretMissingError, "it has no entry tls.key"),
        ({"tls": {"secretName": "garbled"}}, SecretMissingError, "garbled, entry ca.crt: CA cert"),
    ],
)
async def test_secrets_that_are_not_there(api, spec, error, sentence):
    secret(api, "empty", {})
    secret(api, "other", {"tokens.json": "[]"})
    secret(api, "odd", {"url": "http://:hunter2@redis"})
    secret(api, "pending", {"tls.crt": "", "tls.key": ""})
    secret(api, "keyless", {"tls.crt": "c"})
    secret(api, "garbled", {"tls.crt": "c", "tls.key": "k", "ca.crt": "hunter2"})
    with pytest.raises(error) as caught:
        await read(api, **spec)
    assert sentence in caught.value.message
    assert "hunter2" not in caught.value.message


async def test_who_may_sign_the_brokers_certificates(api):
    pem = Authority().pem.decode()
    secret(api, "private", {"tls.crt": "c", "tls.key": "k", "ca.crt": pem})
    secret(api, "public", {"tls.crt": "c", "tls.key": "k"})
    secret(api, "empty", {"tls.crt": "c", "tls.key": "k", "ca.crt": "\n"})
    assert (await read(api, tls={"secretName": "private"})).ca_pem == pem.strip()
    for name in ("public", "empty"):
        assert (await read(api, tls={"secretName": name})).ca_pem == ""
    assert (await read(api)).ca_pem == ""


async def test_no_redis_at_all(api):
    with pytest.raises(SecretMissingError, match=r"spec\.redis: got nothing"):
        await read(api, default=None)


async def test_somebody_elses_secret_of_that_name(api):
    secret(api, "orders-tokens", {"tokens.json": TOKENS})
    with pytest.raises(NameTakenError, match=r"spec\.auth\.secretName"):
        await read(api)


def an_object(name, **body):
    return KubeObject(f"/x/{name}", {"kind": "X", "metadata": {"name": name}, **body})


async def test_objects_are_applied_when_they_are_new_and_now_and_then(api, clock):
    applier = Applier(api, clock)
    objects = [an_object("a"), an_object("b")]
    assert await applier.apply(objects, UID)
    api.calls.clear()
    assert not await applier.apply(objects, UID)
    assert api.calls == []

    assert await applier.apply([an_object("a", spec=1), an_object("b")], UID)
    assert [call[0] for call in api.calls] == ["APPLY", "APPLY"]

    api.calls.clear()
    clock.now += REPAIR_S
    assert not await applier.apply([an_object("a", spec=1), an_object("b")], UID)
    assert len(api.calls) == 2, "what others have changed is repaired"


def owned_object(name, **body):
    return KubeObject(f"/x/{name}", {"kind": "X", "metadata": {"name": name, **OWNED}, **body})


async def test_an_operator_that_begins_tells_only_what_it_has_changed(api, clock):
    before = [owned_object("a", spec=1), owned_object("b")]
    assert await Applier(api, clock).apply(before, UID)
    assert not await Applier(api, clock).apply(before, UID)
    after = [owned_object("a", spec=2), owned_object("b")]
    assert await Applier(api, clock).apply(after, UID)


async def test_what_was_changed_before_a_failure_is_told_after_it(api, clock):
    await Applier(api, clock).apply([owned_object("b")], UID)
    applier = Applier(api, clock)
    api.broken.add("/x/b")
    with pytest.raises(KubernetesError):
        await applier.apply([owned_object("a"), owned_object("b")], UID)
    api.broken.clear()
    assert await applier.apply([owned_object("a"), owned_object("b")], UID)


async def test_what_belongs_to_somebody_else_is_not_touched(api, clock):
    theirs = {"metadata": {"name": "b", "namespace": "shop", "uid": "u", "resourceVersion": "1"}}
    api.objects["/x/b"] = theirs
    applier = Applier(api, clock)
    with pytest.raises(NameTakenError, match="X shop/b"):
        await applier.apply([an_object("a"), an_object("b")], UID)
    assert api.objects["/x/b"] == theirs

    api.objects["/x/b"] = {"metadata": {**theirs["metadata"], **OWNED}}
    assert await applier.apply([an_object("a"), an_object("b")], UID)


async def test_what_was_not_applied_is_tried_again(api, clock):
    applier = Applier(api, clock)
    api.broken.add("/x/b")
    with pytest.raises(KubernetesError):
        await applier.apply([an_object("a"), an_object("b")], UID)
    api.broken.clear()
    assert await applier.apply([an_object("a"), an_object("b")], UID)
    assert "/x/b" in api.objects


SUBJECT = Subject.of(queue_body(), "PartitionedQueue")


async def emit(api, recorder, *events):
    """Emit Events, and return the calls that they take."""
    calls = len(api.calls)
    for reason, note in events:
        recorder.emit(SUBJECT, reason, note)
        await recorder.write_next()
    return [method for method, _ in api.calls[calls:]]


@pytest.fixture
def recorder(api, clock):
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    return EventRecorder(api, instance="operator-0", clock=clock, now=lambda: now)


async def test_an_event(api, recorder):
    assert await emit(api, recorder, ("StoreUnreachable", "no answer")) == ["POST"]
    (event,) = api.objects.values()
    assert event["regarding"]["name"] == "orders"
    assert (event["reason"], event["note"], event["type"]) == (
        "StoreUnreachable",
        "no answer",
        "Normal",
    )
    assert event["eventTime"] == "2026-11-20T12:00:00.000000Z"


async def test_repeats_are_counted_not_written(api, clock, recorder):
    assert await emit(api, recorder, *[("A", "x")] * 5, ("A", "y")) == ["POST", "POST"]
    clock.now += UPDATE_GAP_S
    assert await emit(api, recorder, ("A", "x")) == ["MERGE"]
    counts = [event.get("series", {}).get("count") for event in api.objects.values()]
    assert counts == [6, None]
    clock.now += SERIES_S + 1
    assert await emit(api, recorder, ("A", "x")) == ["POST"], "another time, another Event"


async def test_an_event_that_cannot_be_written_is_dropped(api, recorder):
    api.broken.add(EVENTS)
    await emit(api, recorder, ("A", "x"))
    api.broken.clear()
    assert await emit(api, recorder, ("B", "x")) == ["POST"]


async def test_what_is_unwanted_goes_if_it_is_ours(api, clock):
    place = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies"
    api.objects[f"{place}/mine"] = {"metadata": {"uid": "1", "resourceVersion": "1", **OWNED}}
    api.objects[f"{place}/theirs"] = {"metadata": {"uid": "2", "resourceVersion": "1"}}
    unwanted = [f"{place}/{name}" for name in ("mine", "theirs", "gone")]
    await Applier(api, clock).apply([], UID, unwanted=unwanted)
    assert list(api.objects) == [f"{place}/theirs"]
