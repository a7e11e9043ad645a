"""Looking at the messages of a queue without consuming them."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from partq.client.arguments import (
    MAX_INTEGER,
    MAX_TIME_S,
    check_by_partition,
    check_partitions,
    check_range,
    check_texts,
    whole,
)
from partq.client.transport import tasks
from partq.client.transport.answers import read, unusable
from partq.client.transport.liveness import RetryBackoff
from partq.client.transport.session import Session, log
from partq.core.model import PartitionId
from partq.errors import BadRequestError, PartqError, UnavailableError
from partq.wire.batch import Message
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import BrowseAnswer, BrowsedMessage, PinResults

PAGE_MESSAGES = 1000
"""The most messages that are asked for at once."""
RIGHTS_PATH = "/partitions/0.0/entries"
"""What needs the same roles as to browse, and is asked for by GET; there is no such partition."""
RENEW_S = 120.0
"""How often a pin is renewed; it lasts ten minutes."""
REMOVE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Browsed:
    """A message that was looked at."""

    partition: PartitionId
    offset: int
    publish_time_ms: int
    append_broker_epoch: int
    message: Message | None
    """None: the message is undecodable; `error` says why."""
    error: str = ""


class Browser:
    """Shows what a queue holds; nothing is delivered or acknowledged. Use it in `async with`.

    Args:
        url: of a broker, or several with commas between them.
        queue: its name.
        token: of a consumer of any group, or of an administrator.
        namespace: of the queue; None: it is not checked.
        ca_file: certificates of who may sign the brokers'; None: the system's.
        pin: a name under which what lies ahead is kept while this reads, whatever the groups
            acknowledge; None: it may go.
        timeout_s: for how long a partition that nobody serves is waited for, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str,
        token: str | None = None,
        namespace: str | None = None,
        ca_file: str | Path | None = None,
        pin: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        if pin is not None:
            check_texts({"pin": pin}, needed=("pin",))
        check_range("timeout_s", timeout_s, 0, MAX_TIME_S)
        self._session = Session(url, queue=queue, token=token, namespace=namespace, ca_file=ca_file)
        self._pin = pin
        self._timeout_s = timeout_s
        self._renewing: asyncio.Task[None] | None = None
        self._failure: PartqError | None = None
        self.next: dict[PartitionId, int] = {}
        """Where to go on: what to give as `offsets` to see what came later."""
        self.trimmed: dict[PartitionId, int] = {}
        """Partitions that were to be shown from an offset that is no longer stored → the first
        that is."""
        self.missing: dict[PartitionId, list[tuple[int, int]]] = {}
        """Partitions whose logs miss messages among those that were passed → their offsets,
        [start, stop) each. They do not come back."""

    async def __aenter__(self) -> Self:
        """Open the connections, and ask any broker whether the token may browse.

        Without an answer it goes on: the calls wait for brokers.

        Raises:
            UnauthorizedError, ForbiddenError: it may not; names its role, and those that may.
        """
        await self._session.__aenter__()
        try:
            await self._session.check_rights_anywhere(self._session.seeds, RIGHTS_PATH)
        except BaseException:
            await self._session.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let go of what the pin holds, if that is possible: else it ends by itself."""
        try:
            if self._renewing is not None:
                await tasks.stop(self._renewing)
                async with asyncio.timeout(REMOVE_TIMEOUT_S):
                    await self._session.ask("DELETE", f"/pins/{self._pin}")
        except (TimeoutError, PartqError) as failure:
            log.warning("pin %s is not removed, and ends by itself: %s", self._pin, failure)
        finally:
            await self._session.__aexit__()

    async def messages(
        self,
        count: int | None = None,
        *,
        partitions: Sequence[PartitionId] = (),
        offsets: Mapping[PartitionId, int] | None = None,
        at_ms: int | None = None,
    ) -> AsyncIterator[Browsed]:
        """Yield messages by the time at which they were stored, until there are no more.

        Asks as often as it takes: one answer of a broker may hold fewer than were asked for.

        Args:
            count: end after so many; None: at the end of what is stored.
            partitions: only these; none: all.
            offsets: where to begin in a partition.
            at_ms: where to begin in the others: at the first message stored then or later.

        Raises:
            UnavailableError: no broker answers, or a partition had none for `timeout_s`. What was
                yielded until then is all that there is before it in the other partitions.
            PartqError: the brokers refuse.
        """
        if count is not None:
            count = whole("count", count, -MAX_INTEGER, MAX_INTEGER)
        if at_ms is not None:
            at_ms = whole("at_ms", at_ms, -MAX_INTEGER, MAX_INTEGER)
        check_partitions("partitions", partitions)
        if offsets is not None:
            check_by_partition("offsets", offsets)
            offsets = {each: whole("offsets", at, 0, MAX_INTEGER) for each, at in offsets.items()}
        if count is not None and count < 1:
            raise BadRequestError(f"count {count}; expected 1 or more")
        body: dict[str, object] = {"partitions": [str(each) for each in partitions], "at_ms": at_ms}
        at = {str(partition): offset for partition, offset in (offsets or {}).items()}
        left = count
        while left is None or left > 0:
            wanted = PAGE_MESSAGES if left is None else min(left, PAGE_MESSAGES)
            page = await self._page({**body, "offsets": at, "max_messages": wanted})
            at = page.next
            self._note(page)
            if self._pin is not None:
                await self._hold(at)
            for each in page.messages:
                yield _browsed(each)
            if page.why == "end":
                return
            if left is not None:
                left -= len(page.messages)

    def _note(self, page: BrowseAnswer) -> None:
        self.next = {_parse(name): offset for name, offset in page.next.items()}
        self.trimmed |= {_parse(name): first for name, first in page.trimmed.items()}
        for name, holes in page.missing.items():
            known = self.missing.setdefault(_parse(name), [])
            known += [hole for hole in holes if hole not in known]

    async def _page(self, body: Mapping[str, object]) -> BrowseAnswer:
        """Return a page of all partitions, once all are served."""
        backoff = RetryBackoff(most_s=1.0)
        clock = asyncio.get_running_loop().time
        end = clock() + self._timeout_s
        while True:
            if self._failure is not None:
                raise self._failure
            page = read("browse", await self._session.ask("POST", "/browse", body), BrowseAnswer)
            if not page.unavailable:
                return page
            wait_s = backoff.next_s(None)
            if clock() + wait_s > end:
                name, error = next(iter(page.unavailable.items()))
                raise UnavailableError(
                    f"{len(page.unavailable)} partitions cannot be shown, the first is {name}: "
                    f"{error.message}; ask again, or leave them out"
                )
            await asyncio.sleep(wait_s)

    async def _hold(self, offsets: Mapping[str, int]) -> None:
        """Keep what lies ahead, from now on."""
        body = {"offsets": dict(offsets)}
        answer = await self._session.ask("PUT", f"/pins/{self._pin}", body)
        for name, held in read("pin", answer, PinResults).partitions.items():
            if held.error is not UNSET:
                raise UnavailableError(f"partition {name} is not kept: {held.error.message}")
        if self._renewing is not None:
            await tasks.stop(self._renewing)
        self._renewing = tasks.start(self._renew(body), f"renewing pin {self._pin}", self._fail)

    async def _renew(self, body: Mapping[str, object]) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self._session.ask("PUT", f"/pins/{self._pin}", body)
            except PartqError as error:
                # Four more tries fit into the time that it lasts.
                log.warning("pin %s is not renewed: %s", self._pin, error)

    def _fail(self, error: PartqError) -> None:
        self._failure = error


def _parse(name: str) -> PartitionId:
    try:
        return PartitionId.parse(name)
    except ValueError as error:
        raise unusable("browse", error) from error


def _browsed(each: BrowsedMessage) -> Browsed:
    place = _parse(each.partition), each.offset, each.publish_time_ms, each.append_broker_epoch
    if each.error is not UNSET:
        return Browsed(*place, None, each.error.message)
    if each.key is UNSET or each.headers is UNSET or each.event_time_ms is UNSET:
        raise unusable("browse", f"message {each.offset} has neither its content nor an error")
    value = _value(each)
    return Browsed(*place, Message(each.key, value, each.headers or None, each.event_time_ms))


def _value(each: BrowsedMessage) -> bytes:
    if each.value is not UNSET:
        return each.value.encode()
    if each.value_base64 is UNSET:
        raise unusable("browse", f"message {each.offset} has no value")
    try:
        return base64.b64decode(each.value_base64)
    except ValueError as error:
        raise unusable("browse", error) from error
