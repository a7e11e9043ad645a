"""What a client does about certificates, and the sentence when it refuses one."""

from contextlib import ExitStack
from itertools import count

import pytest

from partq import Consumer, Producer
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session, UntrustedError
from partq.errors import SettingsError, UnavailableError
from tests.authority import Authority, mount, serve


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def start(tmp_path):
    """Return a function that serves with a certificate (None: plain HTTP), and the port."""
    with ExitStack() as stack:
        numbers = count()

        def start(entries):
            name = f"server-{next(numbers)}"
            folder = mount(tmp_path / name, entries) if entries is not None else None
            return stack.enter_context(serve(folder))

        yield start


@pytest.fixture
def ca_file(tmp_path, authority):
    path = tmp_path / "ca.crt"
    path.write_bytes(authority.pem)
    return path


async def refusal(url, ca_file, kind=UnavailableError):
    """Return the sentence with which a producer gives up."""
    producer = Producer(url, queue="orders", ca_file=ca_file, connect_timeout_s=0.1)
    with pytest.raises(kind) as caught:
        async with producer:
            raise AssertionError
    return caught.value.message


async def test_a_certificate_of_somebody_else_is_refused_at_once(start, ca_file):
    url = f"https://127.0.0.1:{start(Authority().issue())}"
    assert await refusal(url, ca_file, UntrustedError) == (
        f"no broker answers: {url}: its certificate is refused: unable to get local issuer "
        "certificate; name the CA that signed it (ca_file, --ca-file, PARTQ_CA_FILE)"
    )


async def test_a_ca_that_is_not_named_is_not_trusted(start, authority):
    url = f"https://127.0.0.1:{start(authority.issue())}"
    assert "; name the CA that signed it" in await refusal(url, None, UntrustedError)


async def test_a_certificate_for_another_name_is_refused(start, authority, ca_file):
    url = f"https://127.0.0.1:{start(authority.issue('orders-partq.shop.svc'))}"
    sentence = await refusal(url, ca_file, UntrustedError)
    assert sentence.startswith(f"no broker answers: {url}: its certificate is refused: IP address")
    assert "ca_file" not in sentence


async def test_a_broker_that_does_not_answer_may_still_come(start, ca_file):
    """Only when each of them was refused there is nothing to wait for."""
    url = f"https://127.0.0.1:{start(Authority().issue())}"
    session = Session(ConnectionOptions(f"{url},http://127.0.0.1:9", "orders", token="t"))
    async with session:
        with pytest.raises(UnavailableError) as caught:
            await session.layout(session.seeds)
    assert type(caught.value) is UnavailableError


async def test_https_where_there_is_http(start, ca_file):
    url = f"https://127.0.0.1:{start(None)}"
    assert (
        await refusal(url, ca_file)
        == f"no broker answers: {url}: it does not speak TLS: its URL begins with http://"
    )


async def test_http_where_there_is_https(start, authority):
    url = f"http://127.0.0.1:{start(authority.issue())}"
    assert await refusal(url, None) == (
        f"no broker answers: {url}: closed without an answer; a broker with TLS has a URL that "
        "begins with https://"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "got No such file or directory"), (b"", "got "), (b"no PEM", "got ")],
)
def test_a_ca_file_that_is_none(tmp_path, content, expected):
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        Consumer("https://127.0.0.1:9", queue="orders", group="workers", ca_file=path)
    assert caught.value.message.startswith(f"CA file {path}: {expected}")
    assert caught.value.message.endswith("expected certificates as PEM")
