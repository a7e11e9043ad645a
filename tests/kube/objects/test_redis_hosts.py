"""Which hosts a queue may name as its Redis. Nothing is connected to here."""

import pytest

from partq.errors import StoreUnavailableError, UnavailableError
from partq.kube.errors import AddressRefusedError
from partq.kube.names import QueueKey
from partq.kube.objects import redis_hosts
from partq.kube.objects.credentials import QueueCredentials
from partq.kube.objects.redis_hosts import check, is_local
from partq.kube.reconcile.troubles import trouble

LOCAL = [
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "169.254.169.254",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "224.0.0.1",
]
OTHERS = ["10.0.0.9", "192.168.1.4", "203.0.113.7", "2001:db8::7", "fd00::7", "::ffff:10.0.0.9"]


@pytest.mark.parametrize("address", LOCAL)
def test_local_addresses(address):
    assert is_local(address)


@pytest.mark.parametrize("address", OTHERS)
def test_other_addresses(address):
    assert not is_local(address)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:7f00:1]"],
)
async def test_every_way_to_write_an_address_is_read_as_a_connection_reads_it(host):
    with pytest.raises(AddressRefusedError, match="loopback or link-local"):
        await check(f"redis://{host}:6379/0", ())


async def found(host):
    return {"one": ["10.0.0.9"], "sly": ["10.0.0.9", "169.254.169.254"]}.get(host, [])


async def test_a_name_is_judged_by_what_it_leads_to():
    await check("redis://one:6379", (), found)
    await check("redis://nobody-knows-it:6379", (), found)
    for url in ("redis://sly:6379", "redis://one:6379,sly:6380"):
        with pytest.raises(AddressRefusedError, match="sly"):
            await check(url, (), found)


async def test_where_hosts_are_listed_no_other_may_be_named():
    allowed = ("sly", "*.example.org")
    await check("redis://sly:6379", allowed, found)
    await check("redis://a.example.org:6379", allowed, found)
    for host in ("one", "example.org", "a.example.org.evil.net"):
        with pytest.raises(AddressRefusedError, match="expected one that the operator allows"):
            await check(f"redis://{host}:6379", allowed, found)


async def test_no_answer_in_time_is_no_permission(monkeypatch):
    monkeypatch.setattr(redis_hosts, "RESOLVE_S", 0.0)
    with pytest.raises(UnavailableError, match=r"redis\.shop\.svc"):
        await check("redis://redis.shop.svc:6379", ())


@pytest.mark.parametrize(
    "answer", ['InvalidResponse got "S"', "ResponseError secret-banner", "ConnectionRefusedError"]
)
def test_what_answers_and_is_no_redis_is_not_shown(answer):
    error = StoreUnavailableError(f"store: cannot connect to Redis: {answer}")
    url = "redis://:hidden@intranet:22/0"
    own = QueueCredentials(redis_url=url, admin_token="t", tokens_secret="s", is_own_redis=True)
    finding = trouble(QueueKey("shop", "orders"), "store", error, own)
    assert finding.message == (
        "Redis at intranet:22: no usable Redis answers there; the operator's log has the details"
    )
    ours = QueueCredentials(redis_url=url, admin_token="t", tokens_secret="s")
    finding = trouble(QueueKey("shop", "orders"), "store", error, ours)
    assert answer in finding.message
    assert "hidden" not in finding.message
