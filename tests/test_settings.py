"""Settings are read from a mapping; a wrong one is named."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from partq.errors import SettingsError
from partq.settings import (
    BrokerSettings,
    CoordinatorSettings,
    LoggingSettings,
    OperatorSettings,
)

NEEDED = {
    "PARTQ_QUEUE": "orders",
    "PARTQ_QUEUE_UID": "0f3a9c1e",
    "PARTQ_REDIS_URL": "redis://:secret@127.0.0.1:6379/0",
    "PARTQ_BROKER_ID": "orders-broker-0",
    "PARTQ_TOKENS_FILE": "/run/partq/tokens.json",
}


def test_defaults():
    assert BrokerSettings.from_env(NEEDED) == BrokerSettings(
        namespace="default",
        queue="orders",
        queue_uid="0f3a9c1e",
        redis_url="redis://:secret@127.0.0.1:6379/0",
        key_prefix="partq",
        broker_id="orders-broker-0",
        listen_host="127.0.0.1",
        listen_port=7411,
        advertised_url=None,
        tokens_file=Path("/run/partq/tokens.json"),
        lease_ttl_s=3.0,
        log_level="info",
    )


def test_every_field_is_read_from_its_variable():
    env = {
        **NEEDED,
        "PARTQ_NAMESPACE": "shop",
        "PARTQ_KEY_PREFIX": "mine",
        "PARTQ_LISTEN_HOST": "::1",
        "PARTQ_LISTEN_PORT": "0",
        "PARTQ_ADVERTISED_URL": "http://broker-0.orders:7411/",
        "PARTQ_LEASE_TTL_S": "1.5",
        "PARTQ_LOG_LEVEL": "debug",
        "PATH": "/usr/bin",
    }

    settings = BrokerSettings.from_env(env)

    assert (settings.namespace, settings.key_prefix) == ("shop", "mine")
    assert (settings.listen_host, settings.listen_port) == ("::1", 0)
    assert settings.advertised_url == "http://broker-0.orders:7411"
    assert settings.lease_ttl_s == 1.5
    assert settings.log_level == "debug"


def test_empty_variable_counts_as_not_given():
    assert LoggingSettings.from_env({"PARTQ_LOG_LEVEL": ""}).log_level == "info"


def test_password_is_not_shown():
    assert "secret" not in repr(BrokerSettings.from_env(NEEDED))
    with pytest.raises(SettingsError) as caught:
        BrokerSettings.from_env(NEEDED | {"PARTQ_REDIS_URL": "http://:secret@host"})
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("variable", sorted(NEEDED))
def test_missing(variable):
    with pytest.raises(SettingsError, match=f"^{variable} is not set"):
        BrokerSettings.from_env({**NEEDED, variable: ""})


def test_coordinator_needs_its_token():
    with pytest.raises(SettingsError, match=r"^PARTQ_TOKEN_FILE is not set"):
        CoordinatorSettings.from_env(NEEDED)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("QUEUE", "Orders", "expected a DNS label"),
        ("QUEUE", "o" * 64, "expected a DNS label"),
        ("QUEUE", "o" * 5000, "got 5000 characters, expected at most 4096"),
        ("QUEUE_UID", "0f3a9c1e-1", "expected 8 of 0-9 and a-f"),
        ("REDIS_URL", "redis://", "expected a URL such as redis://"),
        ("REDIS_URL", "redis://host:99999", "expected a URL such as redis://"),
        ("KEY_PREFIX", "a:b", "expected 1 to 32 of"),
        ("LISTEN_HOST", "a b", "expected a host name or an address"),
        ("LISTEN_PORT", "65536", "expected a whole number from 0 to 65535"),
        ("LISTEN_PORT", "7411.0", "expected a whole number from 0 to 65535"),
        ("LISTEN_PORT", "٣", "expected a whole number from 0 to 65535"),
        ("ADVERTISED_URL", "redis://host", "expected a URL such as http://"),
        ("TOKENS_FILE", "a\0b", "expected a path"),
        ("LEASE_TTL_S", "0.9", "got '0.9', expected a number from 1 to 60"),
        ("LEASE_TTL_S", "nan", "expected a number from 1 to 60"),
        ("LEASE_TTL_S", "three", "expected a number from 1 to 60"),
        ("LOG_LEVEL", "INFO", "expected one of debug, info, warning, error"),
    ],
)
def test_refused(name, value, expected):
    with pytest.raises(SettingsError) as caught:
        BrokerSettings.from_env({**NEEDED, f"PARTQ_{name}": value})

    assert caught.value.message.startswith(f"PARTQ_{name}: ")
    assert expected in caught.value.message


def test_every_variable_is_documented():
    text = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(PARTQ_[A-Z_]+)`", text, re.MULTILINE))

    kinds = (BrokerSettings, CoordinatorSettings, OperatorSettings)
    names = {each.name for kind in kinds for each in fields(kind)}
    assert documented == {f"PARTQ_{name.upper()}" for name in names}
