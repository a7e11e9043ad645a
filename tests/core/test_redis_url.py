"""One rule for URLs of Redis: whoever reads one takes and refuses the same."""

import re

import pytest

from partq.core.redis_url import PLAIN_PATTERN, check
from partq.errors import SettingsError
from partq.kube.objects import broker_pods
from partq.kube.watch import parse
from partq.settings import OperatorSettings
from partq.store.connection import Store
from tests.kube.bodies import queue_body

TAKEN = [
    "redis://redis",
    "redis://redis/",
    "rediss://redis.shop.svc:6380/15",
    "redis://redis/0/",
    "redis://redis:",
    "redis://redis:06379",
    "redis://redis:65535",
    "redis://" + ",".join(f"r{number}:7000" for number in range(16)),
    "redis://redis?ssl_check_hostname=true&db=1&ssl_cert_reqs=optional",
    "redis://a:7000,b:7001",
    "redis://[fd00::7]:7000/1",
    "redis://redis?db=1",
    "redis://redis/1?db=0",
    "rediss://redis/?ssl_cert_reqs=none&ssl_check_hostname=false",
]
REFUSED_BY_SCHEMA = [
    "http://redis",
    "redis://",
    "redis:///0",
    "redis://redis/zero",
    "redis://redis/123456",
    "redis://redis/0/1",
    "redis://redis#0",
    "redis://redis#",
    "redis://redis?",
    "redis://redis?db",
    "redis://redis?db=",
    "redis://redis?db=one",
    "redis://redis?db=123456",
    "redis://redis?d%62=1",
    "redis://redis?db=1&",
    "redis://redis?ssl_cert_reqs=maybe",
    "redis://redis?ssl_check_hostname=1",
    "redis://redis?max_connections=1",
    "redis://redis?ssl_ca_certs=/etc/passwd",
    "redis://re dis",
    "redis://redis?db=1\n",
    "redis://redis?db=1&db=2",
    "redis://redis?db=1&ssl_cert_reqs=none&db=1",
    "redis://redis:0",
    "redis://redis:65536",
    "redis://redis:99999",
    "redis://redis:x",
    "redis://redis:6379:1",
    "redis://:6379",
    "redis://fd00::7",
    "redis://[fd00::7",
    "redis://[fd00::7]7000",
    "redis://x[fd00::7]:7000",
    "redis://a,,b",
    "redis://a,",
    "redis://,a",
    "redis://a:1,b:0",
    "redis://" + ",".join(f"r{number}" for number in range(17)),
]
REFUSED_BY_US = ["redis://[redis]:7000"]
"""What the schema of a resource cannot say."""


def of_resource(url):
    parse.queue(queue_body(redis={"url": url}))


def of_setting(url):
    needed = {
        "PARTQ_BROKER_IMAGE": "partq:1",
        "PARTQ_POD_NAME": "operator-0",
        "PARTQ_POD_NAMESPACE": "partq",
    }
    OperatorSettings.from_env({**needed, "PARTQ_REDIS_URL": url})


def of_secret(url):
    broker_pods.checked_redis_url(url)


def of_connection(url):
    """Make the store's connections, of which none is opened."""
    store = Store(url, prefix="partq", timeout_s=1.0, fail_point=None)
    for each in store._urls:
        store._connections(each)


ROADS = [of_resource, of_setting, of_secret, of_connection]


@pytest.mark.parametrize("read", ROADS)
@pytest.mark.parametrize("url", TAKEN)
def test_it_is_taken(url, read):
    read(url)


@pytest.mark.parametrize("read", ROADS)
@pytest.mark.parametrize("url", [*REFUSED_BY_SCHEMA, *REFUSED_BY_US])
def test_it_is_refused(url, read):
    if read is of_secret and url != url.strip():
        return  # the line end of a Secret is no part of its URL
    with pytest.raises(SettingsError, match="expected "):
        read(url)


@pytest.mark.parametrize(
    "end", ["/0?password=hunter2", "?db=hunter2", "?hunter2=1", "/hunter2", "#hunter2"]
)
def test_what_is_refused_is_not_repeated(end):
    with pytest.raises(ValueError, match=r"number|parameters|behind|as db") as caught:
        check("redis://:hunter2@redis" + end)
    assert "hunter2" not in str(caught.value)


def is_taken(url):
    try:
        check(url)
    except ValueError:
        return False
    return True


def test_the_schema_says_the_same():
    """But for addresses, which a pattern cannot read, and users, which a resource must not say."""
    urls = [*TAKEN, *REFUSED_BY_SCHEMA]
    told = {url: re.fullmatch(PLAIN_PATTERN, url) is not None for url in urls}
    assert told == {url: is_taken(url) for url in urls}
    assert all(re.fullmatch(PLAIN_PATTERN, url) for url in REFUSED_BY_US)
    assert not re.fullmatch(PLAIN_PATTERN, "redis://:secret@redis")
