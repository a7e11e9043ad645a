"""Frozen settings of each process, read once from a mapping of environment variables.

A field `lease_ttl_s` is read from `PARTQ_LEASE_TTL_S`. A field without a default must be given; a
variable that is empty counts as not given. What a field takes stands in its annotation, and one
reader serves all: it names the variable, what it got and what it expected.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Protocol, Self, get_args, get_type_hints
from urllib.parse import urlsplit

from partq.core import redis_url
from partq.core.model import DNS_LABEL, NAME_RULE
from partq.errors import SettingsError

PREFIX = "PARTQ_"
MAX_VALUE_CHARS = 4096
"""The most characters of one variable; paths and URLs are shorter."""
RETIRE_AFTER_S = 600.0
LEASE_TTL_S = 3.0
"""How long the lease of a broker lasts after its last renewal, where nothing else is set."""


class ValueReader(Protocol):
    """How the text of a variable becomes the value of a field."""

    @property
    def is_secret(self) -> bool:
        """Whether an error must not repeat the value."""

    def read(self, text: str) -> object:
        """Return the value.

        Raises:
            ValueError: what was expected, as it follows the word "expected".
        """


@dataclass(frozen=True, slots=True)
class Text:
    """A text that a pattern matches as a whole."""

    pattern: str
    expected: str
    is_secret: bool = False

    def read(self, text: str) -> str:
        """Return the text as it is."""
        if not re.fullmatch(self.pattern, text):
            raise ValueError(self.expected)
        return text


@dataclass(frozen=True, slots=True)
class Number:
    """A number between two bounds, both included."""

    low: float
    high: float
    is_secret: bool = False

    def read(self, text: str) -> float:
        """Return the number; "nan" and "inf" are outside every range."""
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not self.low <= number <= self.high:
            raise ValueError(f"a number from {self.low:g} to {self.high:g}")
        return number


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds, both included."""

    low: int
    high: int
    is_secret: bool = False

    def read(self, text: str) -> int:
        """Return the number."""
        is_number = re.fullmatch(r"-?[0-9]{1,18}", text)
        if not is_number or not self.low <= int(text) <= self.high:
            raise ValueError(f"a whole number from {self.low} to {self.high}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]
    is_secret: bool = False

    def read(self, text: str) -> str:
        """Return the word."""
        if text not in self.words:
            raise ValueError("one of " + ", ".join(self.words))
        return text


@dataclass(frozen=True, slots=True)
class Url:
    """A URL with one of these schemes and a host. It may carry a password."""

    schemes: tuple[str, ...]
    is_secret: bool = False

    def read(self, text: str) -> str:
        """Return the URL without a slash at its end."""
        expected = f"a URL such as {self.schemes[0]}://127.0.0.1:1234"
        try:
            parts = urlsplit(text)
            is_url = parts.scheme in self.schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_url = False
        if not is_url:
            raise ValueError(expected)
        return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A URL of Redis, of any node of a Redis Cluster, or of several: `redis://a:6379,b:6379`."""

    is_secret: bool = True
    """It may carry a password."""

    def read(self, text: str) -> str:
        """Return the URL without a slash at its end."""
        redis_url.check(text)
        return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class File:
    """A path of a file; whether it can be read shows when it is opened."""

    is_secret: bool = False

    def read(self, text: str) -> Path:
        """Return the path."""
        if "\0" in text:
            raise ValueError("a path")
        return Path(text)


NAME = Text(DNS_LABEL, NAME_RULE)
MIB = 1024 * 1024
BUFFER = Whole(MIB, 1024 * 1024 * MIB)
NETWORK_POLICIES = ("full", "ingress", "none")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSettings:
    """Log settings of a process."""

    log_level: Annotated[str, Choice(LOG_LEVELS)] = "info"
    """The least important lines that are written: debug, info, warning or error."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read every field from `env`.

        Raises:
            SettingsError: a variable is missing or wrong; names the variable.
        """
        return cls(**_read_fields(cls, env))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(LoggingSettings):
    """Settings that every process of one queue needs."""

    namespace: Annotated[str, NAME] = "default"
    """The queue's namespace, a DNS label."""

    queue: Annotated[str, NAME]
    """The queue's name, a DNS label."""

    queue_uid: Annotated[str, Text(r"[0-9a-f]{8}", "8 of 0-9 and a-f")]
    """The first 8 characters of the resource's uid: tells this life of the queue from others."""

    redis_url: Annotated[str, RedisUrl()] = field(repr=False)
    """Where the queue is stored; may hold a password, so it is never logged."""

    key_prefix: Annotated[str, Text(r"[a-z0-9-]{1,32}", "1 to 32 of a-z, 0-9 and '-'")] = "partq"
    """Prefix of the names of all Redis keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(QueueSettings):
    """One broker process, which serves one queue."""

    broker_id: Annotated[str, NAME]
    """This broker's name, unique in the queue and the same after a restart; a DNS label."""

    listen_host: Annotated[str, Text(r"[0-9A-Za-z.:-]{1,253}", "a host name or an address")] = (
        "127.0.0.1"
    )
    """The address that the server listens on."""

    listen_port: Annotated[int, Whole(0, 65_535)] = 7411
    """The TCP port that the server listens on; 0: one that is free."""

    advertised_url: Annotated[str | None, Url(("http", "https"))] = None
    """Where clients and other brokers reach this one.

    None: `http://LISTEN_HOST:PORT`, or `https://` with TLS.
    """

    tls_dir: Annotated[Path | None, File()] = None
    """A folder with `tls.crt`, `tls.key` and, unless the system's CAs signed it, `ca.crt`.

    The broker serves HTTPS with it, reads it again when it changes, and checks the other brokers
    with `ca.crt`. None: plain HTTP.
    """

    tokens_file: Annotated[Path, File()]
    """JSON list of `{"token", "queue", "role", "groups"?}`: who may call, and for what."""

    lease_ttl_s: Annotated[float, Number(1, 60)] = LEASE_TTL_S
    """How long the broker's lease lasts after its last renewal, in seconds, from 1 to 60.

    Too short: a slow disk or a busy node costs a takeover. Too long: the partitions of a dead
    broker wait.
    """

    pending_bytes: Annotated[int, BUFFER] = 64 * MIB
    """What may wait to be stored, of all partitions; above it publishes are refused for a moment.

    One batch at a time passes above it, of a partition for which nothing waits.
    """

    tail_bytes: Annotated[int, BUFFER] = 64 * MIB
    """Memory for the newest batches of all partitions; what is older is read from Redis again."""

    read_ahead_bytes: Annotated[int, BUFFER] = 64 * MIB
    """What may be in memory of older batches, read for consumers that are behind.

    One batch that is larger is read when nothing else is.
    """

    max_connections: Annotated[int, Whole(16, 100_000)] = 4096
    """The most open connections; half of them at most for callers without a token."""
    max_connections_per_token: Annotated[int, Whole(1, 100_000)] = 2048
    """The most open connections whose last call came with one token; calls beyond it get 429."""
    max_connections_per_address: Annotated[int, Whole(1, 100_000)] = 256
    """The most of one address without a token; beyond it the oldest is cut."""
    headers_timeout_s: Annotated[float, Number(0.1, 600)] = 10.0
    """How long the headers of a request may take, in seconds; then the connection is cut."""
    body_timeout_s: Annotated[float, Number(0.1, 600)] = 30.0
    """How long the body of a request may take, in seconds; then the call gets 408."""
    answer_timeout_s: Annotated[float, Number(0.1, 600)] = 30.0
    """How long a caller may take to read its answer, in seconds; then the connection is cut."""

    idle_timeout_s: Annotated[float, Number(1, 3600)] = 75.0
    """How long a connection stays open between two calls, in seconds."""

    request_memory_bytes: Annotated[int, BUFFER] = 128 * MIB
    """The bytes that bodies and answers of all calls, and frames on their way, may hold together.

    Calls beyond it get 503; a WebSocket in the middle of a large frame is cut.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings(QueueSettings):
    """One coordinator process, which decides the assignments of one queue's groups."""

    token_file: Annotated[Path, File()]
    """A file with one line: the token with the role `admin` that the brokers take."""

    ca_file: Annotated[Path | None, File()] = None
    """Certificates of those who may sign the brokers' certificates. None: the system's."""

    retire_after_s: Annotated[float, Number(0, 86_400)] = RETIRE_AFTER_S
    """How long a partition that a change of the partition count has left without keys stays at
    least, in seconds.

    Too short: producers that repeat what they sent there get an error instead of the answer.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings(LoggingSettings):
    """The operator, which serves many queues on Kubernetes."""

    namespaces: Annotated[
        str, Text(rf"{DNS_LABEL}(,{DNS_LABEL})*", "names of namespaces with commas between them")
    ] = ""
    """The namespaces whose queues are served; empty: those of every namespace."""

    redis_url: Annotated[str | None, RedisUrl()] = field(default=None, repr=False)
    """Where queues are stored that name no Redis. None: each must name one."""

    redis_hosts: Annotated[
        str,
        Text(r"[A-Za-z0-9.*:_-]{1,4096}(,[A-Za-z0-9.*:_-]+)*", "hosts with commas between them"),
    ] = ""
    """The hosts that queues may name as their Redis, `*.example.org` for all of a domain.

    Empty: every host whose addresses are neither loopback nor link-local.
    """

    redis_storage: Annotated[str, Choice(("persistent", "ephemeral"))] = "persistent"
    """What that Redis keeps its files on; `ephemeral`: they are lost with its pod."""

    key_prefix: Annotated[str, Text(r"[a-z0-9-]{1,32}", "1 to 32 of a-z, 0-9 and '-'")] = "partq"
    """Prefix of the names of all Redis keys."""

    retire_after_s: Annotated[float, Number(0, 86_400)] = RETIRE_AFTER_S
    """As `CoordinatorSettings.retire_after_s`, for the coordinators of all queues."""

    broker_image: Annotated[str, Text(r"[^\s]{1,512}", "the name of an image")]
    """The image of the broker pods: the operator's own."""

    broker_image_pull_policy: Annotated[str, Choice(("Always", "IfNotPresent", "Never"))] = (
        "IfNotPresent"
    )
    """When nodes pull that image."""

    broker_log_level: Annotated[str, Choice(LOG_LEVELS)] = "info"
    """The brokers' log level: apart from the operator's, as a change restarts every broker."""

    broker_user: Annotated[str, Choice(("fixed", "assigned"))] = "fixed"
    """User of broker pods: `fixed`: 65532, the image's user; `assigned`: the cluster chooses."""

    broker_network_policy: Annotated[str, Choice(NETWORK_POLICIES)] = "full"
    """What a NetworkPolicy restricts of the brokers: what comes in and goes out, or one, or none.

    `full`: both; `ingress`: only what comes in, for a Redis whose pods have another port than its
    URL; `none`: there is no policy, and one that was made before is removed.
    """

    pod_deletion_cost: Annotated[str, Choice(("written", "off"))] = "written"
    """Whether consumer pods are told apart by what their removal costs: an annotation at each."""

    pod_name: Annotated[str, Text(r"[0-9A-Za-z.-]{1,253}", "the name of a pod")]
    """Name of this replica of the operator."""

    pod_namespace: Annotated[str, NAME]
    """Where the operator runs: its lease is there."""

    lease_name: Annotated[str, NAME] = "partq-operator"
    """The Lease by which one replica leads; operators of other namespaces' queues need another."""

    listen_host: Annotated[str, Text(r"[0-9A-Za-z.:-]{1,253}", "a host name or an address")] = (
        "0.0.0.0"  # noqa: S104 - probes and scrapes come from outside of the pod
    )
    """The address for probes and metrics."""

    listen_port: Annotated[int, Whole(0, 65_535)] = 8080
    """The TCP port for probes and metrics; 0: one that is free."""

    metrics_token: Annotated[
        str | None, Text(r"[!-~]{16,512}", "16 to 512 characters without blanks", is_secret=True)
    ] = field(default=None, repr=False)
    """The bearer token that `/metrics` asks for, which names queues and groups. None: none."""

    @property
    def redis_host_list(self) -> tuple[str, ...]:
        """The hosts that queues may name; empty: every one that is not local."""
        return tuple(dict.fromkeys(filter(None, self.redis_hosts.lower().split(","))))

    @property
    def namespace_list(self) -> tuple[str, ...]:
        """The namespaces served; empty: every one."""
        return tuple(dict.fromkeys(self.namespaces.split(","))) if self.namespaces else ()


def _read_fields(settings: type[LoggingSettings], env: Mapping[str, str]) -> dict[str, Any]:
    hints = get_type_hints(settings, include_extras=True)
    values: dict[str, Any] = {}
    for each in fields(settings):
        variable = PREFIX + each.name.upper()
        text = env.get(variable, "")
        if text:
            values[each.name] = _read(variable, text, get_args(hints[each.name])[1])
        elif each.default is MISSING:
            raise SettingsError(f"{variable} is not set; {settings.__name__} needs it")
    return values


def _read(variable: str, text: str, reader: ValueReader) -> object:
    if len(text) > MAX_VALUE_CHARS:
        raise SettingsError(
            f"{variable}: got {len(text)} characters, expected at most {MAX_VALUE_CHARS}"
        )
    try:
        return reader.read(text)
    except ValueError as error:
        got = "a value that is not shown" if reader.is_secret else repr(text)
        raise SettingsError(f"{variable}: got {got}, expected {error}") from None
