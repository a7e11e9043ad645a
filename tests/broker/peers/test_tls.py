"""A broker's certificate: read, renewed while connections live, refused when it cannot be used."""

import logging
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from partq.broker.api.app import open_tls
from partq.broker.peers.tls import MAX_FILE_BYTES, RELOAD_GAP_S, BrokerTls
from partq.errors import SettingsError
from partq.settings import BrokerSettings
from partq.wire.tls import trust
from tests.authority import Authority, Connection, mount


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Served:
    """The TLS of a folder, whose files change."""

    def __init__(self, folder, authority):
        self.folder = mount(folder, authority.issue())
        self.authority = authority
        self.clock = Clock()
        self.tls = BrokerTls(self.folder, clock=self.clock)

    def connect(self, version=ssl.TLSVersion.TLSv1_3, host="localhost"):
        """Open a connection, as a client does that trusts the CA."""
        context = trust(ca_pem=self.authority.pem.decode())
        context.maximum_version = version
        return Connection(self.tls.server, context, host)

    def mount(self, entries):
        """Change the files, and let the broker look again."""
        mount(self.folder, entries)
        self.clock.now += RELOAD_GAP_S


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def served(tmp_path, authority):
    return Served(tmp_path / "tls", authority)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # without and with a name in the hello
def test_a_renewed_certificate_is_shown_from_then_on(served, authority, version, host):
    first = served.connect(version, host).serial
    assert served.connect(version, host).serial == first
    served.mount(authority.issue())
    assert served.connect(version, host).serial != first


def test_files_are_not_read_at_every_connection(served, authority):
    first = served.connect().serial
    served.mount(authority.issue())
    served.clock.now -= 0.1
    assert served.connect().serial == first


def test_a_renewed_certificate_costs_no_connection(served, authority):
    before = served.connect()
    assert before.carry(b"one") == b"one"
    served.mount(authority.issue())
    assert served.connect().serial != before.serial
    assert before.carry(b"two") == b"two"


def test_another_ca_is_trusted_from_then_on_and_the_first_one_is_not(served):
    before = served.tls.trusted
    assert served.tls.trusted is before
    other = Authority()
    served.mount(other.issue())
    assert served.tls.trusted.get_ca_certs() == trust(ca_pem=other.pem.decode()).get_ca_certs()
    assert served.tls.trusted.get_ca_certs() != before.get_ca_certs()


def mixed(authority):
    """Return a certificate with the key of another one."""
    return {**authority.issue(), "tls.key": authority.issue()["tls.key"]}


def without(entry):
    return lambda authority: {k: v for k, v in authority.issue().items() if k != entry}


def replaced(entry, content):
    return lambda authority: {**authority.issue(), entry: content}


def locked(authority):
    """Return a certificate whose key has a password."""
    entries = authority.issue()
    key = serialization.load_pem_private_key(entries["tls.key"], None)
    password = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    return {**entries, "tls.key": key.private_bytes(serialization.Encoding.PEM, form, password)}


UNUSABLE = [
    pytest.param(without("tls.crt"), "tls.crt: it is not there", id="no certificate"),
    pytest.param(without("tls.key"), "tls.key: it is not there", id="no key"),
    pytest.param(mixed, "tls.crt and tls.key: got KEY_VALUES_MISMATCH", id="another's key"),
    pytest.param(replaced("tls.crt", b"soon"), "expected a certificate and its key", id="no PEM"),
    pytest.param(locked, "without a password", id="a key with a password"),
    pytest.param(replaced("ca.crt", b"soon"), "ca.crt: got", id="no CA"),
    pytest.param(
        replaced("ca.crt", b"x" * (MAX_FILE_BYTES + 1)), "bytes, expected fewer", id="big"
    ),
]


@pytest.mark.parametrize(("entries", "sentence"), UNUSABLE)
def test_a_broker_does_not_start_with_what_it_cannot_use(tmp_path, authority, entries, sentence):
    with pytest.raises(SettingsError) as caught:
        BrokerTls(mount(tmp_path, entries(authority)), clock=Clock())
    assert str(tmp_path) in caught.value.message
    assert sentence in caught.value.message


@pytest.mark.parametrize(("entries", "sentence"), UNUSABLE)
def test_what_cannot_be_used_leaves_the_old_one(served, authority, caplog, entries, sentence):
    first = served.connect().serial
    caplog.set_level(logging.ERROR)
    for _ in range(3):
        served.mount(entries(authority))
        assert served.connect().serial == first
        assert served.tls.is_refused
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, "told once, not at every look"
    assert said[0].startswith("certificate: ")
    assert sentence in said[0]

    served.mount(authority.issue())
    assert served.connect().serial != first
    assert not served.tls.is_refused


def test_what_is_older_than_1_2_is_not_spoken(tmp_path, authority):
    tls = BrokerTls(mount(tmp_path, authority.issue()), clock=Clock())
    assert tls.server.minimum_version == tls.trusted.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    "entries", [without("ca.crt"), replaced("ca.crt", b"\n")], ids=["no entry", "an empty one"]
)
def test_without_a_ca_the_systems_count(tmp_path, authority, entries):
    tls = BrokerTls(mount(tmp_path, entries(authority)), clock=Clock())
    assert tls.trusted.get_ca_certs() == trust().get_ca_certs()


def settings(**changes):
    return BrokerSettings(
        queue="orders",
        queue_uid="0f3a9c1e",
        redis_url="redis://redis",
        broker_id="b-0",
        tokens_file=Path("tokens.json"),
        **changes,
    )


def test_without_a_folder_there_is_no_tls():
    assert open_tls(settings(), clock=Clock()) is None


def test_callers_are_not_sent_to_plain_http(tmp_path, authority):
    folder = mount(tmp_path, authority.issue())
    with pytest.raises(SettingsError, match=r"^PARTQ_ADVERTISED_URL: got 'http://b-0:7411'"):
        open_tls(settings(tls_dir=folder, advertised_url="http://b-0:7411"), clock=Clock())
    url = "https://b-0:7411"
    assert open_tls(settings(tls_dir=folder, advertised_url=url), clock=Clock()) is not None
