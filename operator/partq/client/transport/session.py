"""HTTP and WebSocket connections to the brokers of one queue, and the errors that they answer."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, Self, TypeVar

import aiohttp

from partq.client.arguments import broker_urls
from partq.client.transport.answers import unusable
from partq.client.transport.layout import QueueLayout
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.retries import retry_backoff
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    ForbiddenError,
    InternalError,
    NotFoundError,
    PartqError,
    UnauthorizedError,
    UnavailableError,
    UnknownGroupError,
    UnknownPartitionError,
)
from partq.excerpts import excerpt, some_of
from partq.path_names import quoted
from partq.wire.calls import replies
from partq.wire.calls.answers import LayoutAnswer, ProducerDue, ProducerOutline
from partq.wire.tls import explain, trust

log = logging.getLogger("partq.client")

T = TypeVar("T")

CALL_TIMEOUT_S = 5.0
VIEW_TIMEOUT_S = 2.0
CLOSE_TIMEOUT_S = 1.0
FETCH_TIMEOUT = aiohttp.ClientTimeout(total=60.0, sock_connect=VIEW_TIMEOUT_S, sock_read=5.0)
"""Of an answer of many bytes: as long as some of them keep coming."""
FIRST_VIEW_BACKOFF_S = 2.0
"""The longest pause between two tries to find a queue."""
TELL_S = 15.0
"""How often the log says that something is still waited for."""
MAX_FRAME_BYTES = 32 * 1024 * 1024
"""The largest WebSocket message that is taken: a batch of the largest size, its header and more."""
MAX_ANSWER_BYTES = 32 * 1024 * 1024

NOT_REACHED = (aiohttp.ClientError, TimeoutError, OSError)
"""What a call raises when no broker has judged it."""


class LastBatch(NamedTuple):
    """What the last batch of a producer looks like."""

    first: int
    """The number of its first message."""
    size: int
    """How many it has."""
    crc32c: int
    """As `wire.batch.outline`, of all its messages."""


class ProducerProgress(NamedTuple):
    """What a partition knows of a producer."""

    due: int
    """The number of its next message."""
    outline: LastBatch | None
    """None: not asked for, or its last batch is not stored any more."""
    layout: int = 1
    """The last change of the partition count that took slots away from the partition, or made it;
    1: none has."""


class EarlierNumbers(NamedTuple):
    """What partitions have stored of a producer with fixed numbers under earlier layouts."""

    generation: int
    """Of the layout by which they were looked up."""
    due: Mapping[tuple[PartitionId, int], int]
    """Partition and layout → the number that was due; where nothing was stored it is left out."""


class UntrustedError(UnavailableError):
    """Brokers were reached, and none has a certificate that this client trusts."""


class UnreachedError(UnavailableError):
    """Nobody has answered: no connection, or no answer in time."""


class Session:
    """Connections to the brokers of one queue, with the caller's token.

    Raises:
        SettingsError: `ca_file` holds no certificate.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        token, namespace, ca_file = options.token, options.namespace, options.ca_file
        self.seeds = broker_urls(options.url)
        self._queue = options.queue
        self._trust = trust(ca_file=ca_file) if ca_file is not None else True
        self._path = f"/v1/queues/{quoted(options.queue, 'queue')}"
        self._query = {"namespace": namespace} if namespace else {}
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http: aiohttp.ClientSession | None = None
        self._silent: set[str] = set()

    def twin(self, token: str | None = None) -> Self:
        """Return another session to the same brokers, not open: for a separate event loop.

        `token`: another one that it calls with; None: the same.
        """
        twin = copy.copy(self)
        twin._http, twin._silent = None, set()
        if token is not None:
            twin._headers = {"Authorization": f"Bearer {token}"}
        return twin

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=self._trust),
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    @asynccontextmanager
    async def opening(self) -> AsyncIterator[None]:
        """Open it for what continues behind the block; when the block raises, it is closed."""
        await self.__aenter__()
        try:
            yield
        except BaseException:
            await self.__aexit__()
            raise

    async def get(self, url: str, path: str, kind: type[T]) -> T:
        """Return what the broker at `url` answers under the queue's `path`, as a type.

        `kind`: what the call answers, of `wire.calls`; `object` for JSON of any kind.

        Raises:
            PartqError: the error that the broker names.
            InternalError: the answer is something else than `kind`.
            aiohttp.ClientError, TimeoutError, OSError: no answer.
        """
        return await self.call("GET", url, path, kind)

    async def post(self, url: str, path: str, kind: type[T]) -> T:
        """Ask the broker at `url` to do what `path` says; returns and raises as `get`."""
        return await self.call("POST", url, path, kind)

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: object = None,
        *,
        urls: Sequence[str] = (),
        prefix: str = "",
    ) -> T:
        """Return the answer of the first broker that gives one; any of them will do.

        `kind`: as of `get`. `body`: what the call takes, of `wire.calls`. `urls`: which are asked;
        none: those that the session was made with. `prefix`: `/admin` for calls of the admin API.
        One that does not answer may have done what was asked: ask for what can be repeated.

        Raises:
            UnavailableError: none does.
            PartqError: one refuses, and so would the others.
        """
        reasons = []
        for url in urls or self.seeds:
            try:
                return await self.call(method, url + prefix, path, kind, body)
            except NOT_REACHED as error:
                reasons.append(f"{url}: {why(url, error)}")
            except PartqError as error:
                if not error.is_retryable:
                    raise
                reasons.append(f"{url}: {error.message}")
        raise UnavailableError("no broker answers: " + "; ".join(reasons))

    async def call(
        self,
        method: str,
        url: str,
        path: str,
        kind: type[T],
        body: object = None,
    ) -> T:
        """Return what the broker at `url` answers to `body`, of `wire.calls`; raises as `get`."""
        where, sent = url + self._path + path, None if body is None else replies.plain(body)
        async with self._open().request(method, where, params=self._query, json=sent) as response:
            answer = await _read(response)
            if response.status == 200:
                try:
                    return replies.decode(answer, kind)
                except replies.NotJsonError as error:
                    raise InternalError(
                        f"{url}: the answer is not JSON: {error}; is it the URL of a broker?"
                    ) from error
                except ValueError as error:
                    raise unusable(where, error) from error
            raise _error_of(response.status, answer, where)

    async def fetch(self, url: str, path: str, query: Mapping[str, int]) -> bytes:
        """Return the bytes that the broker at `url` answers under the queue's `path`.

        Raises as `get`.
        """
        where = url + self._path + path
        params: dict[str, str | int] = {**self._query, **query}
        async with self._open().get(where, params=params, timeout=FETCH_TIMEOUT) as response:
            answer = await _read(response)
            if response.status == 200:
                return answer
            raise _error_of(response.status, answer, where)

    async def connect(self, url: str, path: str) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to the broker at `url` under the queue's `path`; raises as `get`."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await self._open().ws_connect(
                    url + self._path + path,
                    params=self._query,
                    compress=0,
                    max_msg_size=MAX_FRAME_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
                )
        except aiohttp.WSServerHandshakeError as error:
            body = await self._refusal(url, path, error.status)
            raise _error_of(error.status, body, f"{url}{self._path}{path}") from error

    async def _refusal(self, url: str, path: str, status: int) -> bytes:
        """Return what the broker says when it refuses a handshake, whose answer is not read."""
        try:
            async with self._open().get(url + self._path + path, params=self._query) as response:
                body = await _read(response)
                return body if response.status == status else b""
        except (*NOT_REACHED, PartqError):
            return b""

    async def check_rights(self, url: str, path: str) -> bool:
        """Ask for something that only the right token may have, to hear of a wrong one early.

        Returns whether the broker has answered at all.

        Raises:
            UnauthorizedError, ForbiddenError: in the broker's words. Any other answer, or none, is
                no reason not to continue.
        """
        try:
            await self.get(url, path, object)
        except (UnauthorizedError, ForbiddenError):
            raise
        except UnknownPartitionError:
            pass  # the answer to a right token where a partition is asked for that no queue has
        except NOT_REACHED as error:
            log.info("%s%s: %s", url, path, why(url, error))
            return False
        except PartqError as error:
            log.info("%s%s: %s", url, path, error)
        return True

    async def check_rights_anywhere(self, urls: Sequence[str], path: str) -> None:
        """Ask the first broker that answers for something that only the right token may have.

        Raises:
            UnauthorizedError, ForbiddenError: in the broker's words.
        """
        for url in urls:
            with suppress(TimeoutError):
                async with asyncio.timeout(VIEW_TIMEOUT_S):
                    if await self.check_rights(url, path):
                        return

    async def layout(self, urls: Sequence[str]) -> QueueLayout:
        """Return the layout from the first of `urls` that answers.

        Raises:
            PartqError: a broker refuses the call for good, such as `unauthorized`.
            UntrustedError: none answers, and each has a certificate that is refused.
            UnreachedError: each is as if nobody were there.
            UnavailableError: none answers, for one of these reasons or another.
        """
        reasons = []
        kinds: set[type[UnavailableError]] = set()
        # A broker that did not answer last time is asked last: it costs its time-out once.
        for url in sorted(urls, key=self._silent.__contains__):
            try:
                async with asyncio.timeout(VIEW_TIMEOUT_S):
                    queue_layout = QueueLayout.of(await self.get(url, "/layout", LayoutAnswer))
                self._silent.discard(url)
                return queue_layout
            except NOT_REACHED as error:
                self._silent.add(url)
                reasons.append(f"{url}: {why(url, error)}")
                is_untrusted = isinstance(error, aiohttp.ClientConnectorCertificateError)
                kinds.add(UntrustedError if is_untrusted else UnreachedError)
            except PartqError as error:
                if is_final(error):
                    raise
                reasons.append(f"{url}: {error}")
                kinds.add(UnavailableError)
        kind = kinds.pop() if len(kinds) == 1 else UnavailableError
        raise kind("no broker answers: " + "; ".join(reasons))

    async def first_layout(self, timeout_s: float, group: str | None = None) -> QueueLayout:
        """Return the layout, once a broker serves the queue and has the group, if one is named.

        A client may well be started before its queue: what is not there is looked for again, for
        at most `timeout_s`, and the log says now and then what that is.

        Raises:
            PartqError: a broker refuses the call for good, such as `unauthorized`: at once.
            UntrustedError: the brokers' certificates are refused: at once, waiting changes none.
            UnavailableError, UnknownQueueError, UnknownGroupError: what was missing to the end.
        """
        backoff = retry_backoff(most_s=FIRST_VIEW_BACKOFF_S)
        clock = asyncio.get_running_loop().time
        end, told, tell_at = clock() + timeout_s, "", 0.0
        while True:
            try:
                queue_layout = await self.layout(self.seeds)
                if group is None or group in queue_layout.groups:
                    return queue_layout
                raise UnknownGroupError(
                    f"queue {self._queue!r} has no consumer group {excerpt(group)!r}; it has "
                    f"{some_of(queue_layout.groups)}"
                )
            except UntrustedError:
                raise
            except (UnavailableError, NotFoundError) as error:
                now = clock()
                if now >= end:
                    raise
                wait_s = min(backoff.next_s(error.retry_after_s), end - now)  # then once more
                if error.code != told or now >= tell_at:
                    told, tell_at = error.code, now + TELL_S
                    log.warning("waiting for at most %.0f s: %s", end - now, error)
                await asyncio.sleep(wait_s)

    async def progress(
        self, url: str, producer: str, *, with_outlines: bool = False
    ) -> dict[PartitionId, ProducerProgress]:
        """Return how far a producer is in each partition of a broker.

        Empty when the broker does not answer. Raises: PartqError: it refuses the call for good.
        """
        path = f"/producers/{quoted(producer, 'producer')}"
        try:
            query = "?outlines=true" if with_outlines else ""
            answer = await self.get(url, path + query, ProducerDue)
        except (*NOT_REACHED, UnavailableError) as error:
            log.info("%s: %s", url, why(url, error))
            return {}
        try:
            return {
                PartitionId.parse(name): ProducerProgress(
                    due, _outline(answer.outlines.get(name)), answer.layouts.get(name, 1)
                )
                for name, due in answer.due.items()
            }
        except ValueError as error:
            raise unusable(f"{url}{self._path}{path}", error) from error

    async def earlier_numbers(self, url: str, producer: str) -> EarlierNumbers | None:
        """Return what is stored under earlier layouts; None: the broker does not answer.

        Raises: PartqError: it refuses the call for good.
        """
        path = f"/producers/{quoted(producer, 'producer')}?earlier=true"
        try:
            answer = await self.get(url, path, ProducerDue)
        except (*NOT_REACHED, UnavailableError) as error:
            log.info("%s: %s", url, why(url, error))
            return None
        try:
            found = {
                (PartitionId.parse(name), layout): due
                for name, numbers in answer.earlier.items()
                for layout, due in numbers.items()
            }
        except ValueError as error:
            raise unusable(f"{url}{self._path}{path}", error) from error
        return EarlierNumbers(answer.generation, found)

    def _open(self) -> aiohttp.ClientSession:
        if self._http is None or self._http.closed:
            raise RuntimeError("the client is not open; use it inside `async with`")
        return self._http


def _outline(told: ProducerOutline | None) -> LastBatch | None:
    return None if told is None else LastBatch(told.first, told.count, told.crc32c)


def why(url: str, error: BaseException) -> str:
    """Say why the broker at `url` has not judged a call."""
    if isinstance(error, aiohttp.ClientConnectorError):
        # Its own text names the host, which the caller has, and how it was to be checked.
        reason = error.os_error.strerror or str(error.os_error) or type(error.os_error).__name__
        return explain(error) or f"cannot connect: {reason}"
    if isinstance(error, aiohttp.ServerDisconnectedError) and url.startswith("http://"):
        return "closed without an answer; a broker with TLS has a URL that begins with https://"
    if type(error) is aiohttp.ClientResponseError:  # its text is that of a parser
        return "what answers there does not speak HTTP; expected the port of a broker"
    return str(error) or type(error).__name__


def is_final(error: PartqError) -> bool:
    """Say whether a broker would refuse every repeat, too."""
    refusals = (UnauthorizedError, ForbiddenError, NotFoundError, BadRequestError)
    return isinstance(error, refusals) and not error.is_retryable


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks = response.content.iter_any()
    return await replies.read_whole(chunks, MAX_ANSWER_BYTES, str(response.url))


def _error_of(status: int, body: bytes, where: str) -> PartqError:
    """Return the error of an answer; one that no broker wrote goes by its status."""
    try:
        found = replies.read_error(replies.parse(body))
    except ValueError:
        found = None  # a handshake has no body, a proxy has another one
    if found is not None:
        return found
    message = f"{where}: HTTP status {status}"
    match status:
        case 401:
            return UnauthorizedError(f"{message}; the token is missing or unknown")
        case 403:
            return ForbiddenError(f"{message}; the token is not for this call")
        case 404:
            return NotFoundError(f"{message}; check the names of queue and group")
        case _ if status in (421, 429) or status >= 500:
            return UnavailableError(message)
        case _:
            return InternalError(message)
