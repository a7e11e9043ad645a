"""Broker asks broker, in one way: whom it trusts, how long it waits, how much it reads."""

from collections.abc import Mapping
from typing import Self, TypeVar

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    TCPConnector,
)

from partq.broker.peers.tls import BrokerTls
from partq.errors import OverloadedError
from partq.server.body import JSON_WEIGHT
from partq.server.memory import Hold
from partq.wire.calls.replies import convert, parse_object, read_error

FORWARDED = "Partq-Forwarded"
"""The header of a call that a broker makes for a caller: its id. It is not forwarded again."""
FORWARD_TOKEN = "Partq-Forward-Token"  # noqa: S105  the name of a header
"""The header that proves it: the token of the queue's brokers."""
FORWARDED_ADDRESS = "Partq-Forwarded-Address"
"""The header that says where the caller is, whose member may be bound from there alone. It counts
with that token."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The most that an answer about many partitions may have."""
_ENVELOPE_BYTES = 64 * 1024
_RESULT_BYTES = 2048
"""More than an error of one message has."""
_CONNECT_TIMEOUT_S = 2.0

T = TypeVar("T")


class UnansweredError(Exception):
    """Another broker gave no usable answer; each caller says what that means for its own."""

    def __init__(self, reason: str, *, is_sent: bool) -> None:
        super().__init__(reason)
        self.is_sent = is_sent
        """False: the broker was not reached, so it has done nothing."""


class UnreadAnswerError(OverloadedError):
    """This process has no memory for an answer; what was asked for may have been done."""


def max_bytes(count: int) -> int:
    """Return how long an answer about `count` messages may be."""
    return _ENVELOPE_BYTES + count * _RESULT_BYTES


class PeerClient:
    """Calls other brokers, of any queue; use it in `async with`, or close it.

    Args:
        tls: says whose certificates are trusted; None: those that the system trusts.
        max_connections: open at a time; further calls wait for one, within their time.
    """

    def __init__(self, tls: BrokerTls | None = None, *, max_connections: int = 100) -> None:
        self.tls = tls
        self._session = ClientSession(
            connector=TCPConnector(limit=max_connections),
            auto_decompress=False,  # nothing that they answer is inflated
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def call(
        self,
        method: str,
        url: str,
        kind: type[T],
        *,
        authorization: str,
        timeout_s: float,
        where: str = "",
        headers: Mapping[str, str] | None = None,
        json: object = None,
        data: bytes | None = None,
        limit_bytes: int = MAX_ANSWER_BYTES,
        hold: Hold | None = None,
    ) -> T:
        """Return another broker's answer.

        Args:
            method: of HTTP.
            url: of the call. No redirect is followed: it would take the token elsewhere.
            kind: what is answered.
            authorization: the header, with a token that the other broker knows.
            timeout_s: for the whole call, in seconds.
            where: is put before the message of a refusal.
            headers: of the call, beside its token.
            json: its body; None: it has none, or `data`.
            data: its body, as it is.
            limit_bytes: how long the answer may be; of a longer one the rest is not read.
            hold: of the call that it is made for; the answer counts there.

        Raises:
            UnansweredError: there is no usable answer in time.
            UnreadAnswerError: the requests of this process hold too much to read the answer.
            PartqError: the other broker's refusal.
        """
        try:
            async with self._session.request(
                method,
                url,
                json=json,
                data=data,
                headers={"Authorization": authorization, **(headers or {})},
                ssl=self.tls.trusted if self.tls is not None else True,
                timeout=ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
                allow_redirects=False,
            ) as response:
                answer = await _read(response, limit_bytes, hold)
            refusal = read_error(answer, where)
            if refusal is None:
                return convert(answer, kind)
        except (ClientError, TimeoutError, ValueError) as error:
            is_sent = not isinstance(error, ClientConnectorError)
            raise UnansweredError(_reason(error), is_sent=is_sent) from error
        raise refusal


def _reason(error: Exception) -> str:
    if type(error) is ClientConnectorError:
        # Its own text has settings of TLS, also for a peer without it.
        return f"cannot connect to {error.host}:{error.port}: {error.os_error.strerror}"
    return str(error) or type(error).__name__


async def _read(response: ClientResponse, limit_bytes: int, hold: Hold | None) -> dict[str, object]:
    text = bytearray()
    async for chunk in response.content.iter_any():
        if len(text) + len(chunk) > limit_bytes:
            raise ClientPayloadError(f"the answer has more than {limit_bytes} bytes")
        if hold is not None:
            _hold(hold, JSON_WEIGHT * len(chunk))
        text += chunk
    try:
        return parse_object(text)
    except ValueError as error:
        raise ValueError(f"status {response.status}: {error}") from error


def _hold(hold: Hold, size_bytes: int) -> None:
    try:
        hold.take(size_bytes)
    except OverloadedError as error:
        raise UnreadAnswerError(error.message, retry_after_s=error.retry_after_s) from error
