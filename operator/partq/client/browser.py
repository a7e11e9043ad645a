"""Looking at the messages of a queue without consuming them."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partq.aio import cancel_and_wait
from partq.client.arguments import (
    MAX_INTEGER,
    MAX_TIME_S,
    check_by_partition,
    check_partitions,
    check_path_argument,
    check_range,
    whole,
)
from partq.client.hooks.serializers import ValueDeserializer, deserialized
from partq.client.transport import tasks
from partq.client.transport.answers import unusable
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.positions import check_unit
from partq.client.transport.reader import QueueClient
from partq.client.transport.retries import RetryWindow
from partq.client.transport.session import log
from partq.core.model import PartitionId
from partq.errors import BadRequestError, PartqError, UnavailableError, UndecodableError
from partq.excerpts import counted
from partq.path_names import quoted
from partq.wire.batch import Message
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import (
    PIN_RENEW_S,
    BrowseAnswer,
    BrowseBody,
    BrowsedMessage,
    PinBody,
    PinResult,
    PinResults,
)

PAGE_MESSAGES = 1000
"""The most messages that are asked for at once."""
REMOVE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Browsed:
    """A stored message, as `Browser.messages` yields it."""

    partition: PartitionId
    """The partition that holds it."""
    offset: int
    """Its place in the partition, from 0."""
    publish_time_ms: int
    """When it was stored, in unix milliseconds of Redis's clock."""
    append_broker_epoch: int
    """The broker epoch under which it was stored."""
    message: Message | None
    """Its content; None: the message is undecodable, and `error` says why."""
    error: str = ""
    """Why it is undecodable; empty: it is not."""
    producer: str | None = None
    """The id of its producer; None: published without numbers, or by an earlier version."""
    sequence: int | None = None
    """Its producer's number for it, from 0, as `Delivery.sequence`; None where `producer` is."""
    is_replayed: bool = False
    """Whether it is a dead letter that was sent back to its queue, and is not freed yet."""
    value_deserializer: ValueDeserializer | None = field(default=None, repr=False, compare=False)
    """What makes its `value`; None: the bytes."""

    @property
    def value(self) -> Any:
        """Its content: what the `value_deserializer` of its reader makes of it, or the bytes.

        Raises:
            UndecodableError: the message is undecodable.
            DeserializationError: the deserializer has failed.
        """
        data = self.raw_value
        if self.value_deserializer is None:
            return data
        place = f"partition {self.partition}, offset {self.offset}"
        return deserialized(self.value_deserializer, data, place)

    @property
    def raw_value(self) -> bytes:
        """Its content as it is stored; raises UndecodableError as `value`."""
        if self.message is None:
            raise UndecodableError(
                f"partition {self.partition}, offset {self.offset}: {self.error}"
            )
        return self.message.value


class Browser(QueueClient):
    """Shows what a queue holds; nothing is delivered or acknowledged. Use it in `async with`.

    Args:
        url: of a broker, or several with commas between them.
        queue: its name.
        token: of a consumer of any group, or of an administrator.
        namespace: of the queue; None: it is not checked.
        ca_file: PEM of the CAs that may sign the brokers' certificates; None: the system's.
        pin: name of a pin that keeps what is still to be read from being trimmed, whatever the
            groups acknowledge; None: it may be trimmed.
        timeout_s: how long to wait for a partition that no broker serves, in seconds.
    """

    _rights_path = "/partitions/0.0/entries?from=0"
    """It needs the same roles as to browse, and is asked for by GET."""

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
            check_path_argument("pin", pin)
        check_range("timeout_s", timeout_s, 0, MAX_TIME_S)
        super().__init__(
            ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
        )
        self._pin = pin
        self._timeout_s = timeout_s
        self._renewing: asyncio.Task[None] | None = None
        self._failure: PartqError | None = None
        self.next: dict[PartitionId, int] = {}
        """Where to continue, behind the last message that was yielded: give it as `offsets`."""
        self.trimmed: dict[PartitionId, int] = {}
        """Partitions that were to be shown from an offset that is no longer stored → the first
        that is."""
        self.missing: dict[PartitionId, list[tuple[int, int]]] = {}
        """Partitions whose logs miss messages among those that were passed → their offsets,
        [start, stop) each. They do not come back."""

    async def __aexit__(self, *_: object) -> None:
        """Let go of what the pin holds, if that is possible: else it ends by itself."""
        try:
            if self._renewing is not None:
                await cancel_and_wait(self._renewing)
                async with asyncio.timeout(REMOVE_TIMEOUT_S):
                    await self._call_pin("DELETE", PinBody())
        except (TimeoutError, PartqError) as failure:
            log.warning("pin %s is not removed, and ends by itself: %s", self._pin, failure)
        finally:
            await super().__aexit__()

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
            count: end after this many messages; None: at the end of what is stored.
            partitions: only these; none: all.
            offsets: where to begin in a partition.
            at_ms: where to begin in the others: at the first message stored then or later, in unix
                milliseconds from 1973 on; 0: at the oldest one.

        Raises:
            BadRequestError: `at_ms` is in another unit, or `count` is below 1.
            UnavailableError: no broker answers, or a partition had none for `timeout_s`. What was
                yielded until then is all that there is before it in the other partitions.
            PartqError: the brokers refuse.
            RuntimeError: from another event loop or thread, or it is not open.
        """
        self._entered_loop.check()
        if count is not None:
            count = whole("count", count, -MAX_INTEGER, MAX_INTEGER)
        if at_ms is not None:
            at_ms = whole("at_ms", at_ms, -MAX_INTEGER, MAX_INTEGER)
            check_unit("browse", at_ms)
        check_partitions("partitions", partitions)
        if offsets is not None:
            check_by_partition("offsets", offsets)
            offsets = {each: whole("offsets", at, 0, MAX_INTEGER) for each, at in offsets.items()}
        if count is not None and count < 1:
            raise BadRequestError(f"count {count}; expected 1 or more")
        names = [str(each) for each in partitions]
        at = {str(partition): offset for partition, offset in (offsets or {}).items()}
        left = count
        while left is None or left > 0:
            wanted = PAGE_MESSAGES if left is None else min(left, PAGE_MESSAGES)
            page = await self._page(BrowseBody(names, at, at_ms, wanted))
            shown = [read_browsed(each) for each in page.messages]
            self._note(page, shown)
            if self._pin is not None:
                await self._hold()
            # The loop may end at any of them: what it was not given still lies ahead.
            for each in shown:
                self.next[each.partition] = each.offset + 1
                yield each
            at = page.next
            self.next = _offsets(at)
            if left is not None:
                left -= len(shown)
            if page.why == "end" or left == 0:
                if self._pin is not None and shown:
                    await self._hold()
                return

    def _note(self, page: BrowseAnswer, shown: Sequence[Browsed]) -> None:
        """Take up what a page tells, before its first message is yielded."""
        self.next = _offsets(page.next)
        for each in reversed(shown):
            self.next[each.partition] = each.offset
        self.trimmed |= {_parse(name): first for name, first in page.trimmed.items()}
        for name, holes in page.missing.items():
            known = self.missing.setdefault(_parse(name), [])
            known += [hole for hole in holes if hole not in known]

    async def _page(self, body: BrowseBody) -> BrowseAnswer:
        """Return a page of all partitions, once all are served."""
        patience = RetryWindow(self._timeout_s)
        while True:
            if self._failure is not None:
                raise self._failure
            page = await self._session.ask("POST", "/browse", BrowseAnswer, body)
            if not page.unavailable:
                return page
            name, error = next(iter(page.unavailable.items()))
            await patience.wait(
                UnavailableError(
                    f"{counted(len(page.unavailable), 'partition')} cannot be shown, the "
                    f"first is {name}: {error.message}; ask again, or leave them out"
                )
            )

    async def _hold(self) -> None:
        """Keep what lies ahead, from now on."""
        if self._renewing is not None:
            await cancel_and_wait(self._renewing)  # its call must not come between
        for name, held in (await self._call_pin("PUT", self._ahead())).items():
            if held.error is not UNSET:
                raise UnavailableError(f"partition {name} is not kept: {held.error.message}")
        self._renewing = tasks.start(self._renew(), f"renewing pin {self._pin}", self._fail)

    def _ahead(self) -> PinBody:
        return PinBody(offsets={str(partition): offset for partition, offset in self.next.items()})

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(PIN_RENEW_S)
            try:
                await self._call_pin("PUT", self._ahead())
            except PartqError as error:
                # Four more tries fit into the time that it lasts.
                log.warning("pin %s is not renewed: %s", self._pin, error)

    async def _call_pin(self, method: str, body: PinBody) -> Mapping[str, PinResult]:
        async def call(number: int) -> Mapping[str, PinResult]:
            body.number = number
            return (await self._session.ask(method, path, PinResults, body)).partitions

        pin = self._pin or ""
        path = f"/pins/{quoted(pin, 'pin')}"
        return await self._pin_calls.make(pin, call)

    def _fail(self, error: PartqError) -> None:
        self._failure = error


def _parse(name: str) -> PartitionId:
    try:
        return PartitionId.parse(name)
    except ValueError as error:
        raise unusable("browse", error) from error


def _offsets(named: Mapping[str, int]) -> dict[PartitionId, int]:
    return {_parse(name): offset for name, offset in named.items()}


def read_browsed(each: BrowsedMessage) -> Browsed:
    """Return a message of a broker's answer; InternalError: the answer lacks something."""
    place = _parse(each.partition), each.offset, each.publish_time_ms, each.append_broker_epoch
    producer = None if each.producer is UNSET else each.producer
    sequence = None if each.sequence is UNSET else each.sequence
    is_replayed = each.is_replayed is True
    if each.error is not UNSET:
        return Browsed(*place, None, each.error.message, producer, sequence, is_replayed)
    if each.key is UNSET or each.headers is UNSET or each.event_time_ms is UNSET:
        raise unusable("browse", f"message {each.offset} has neither its content nor an error")
    value = _value(each)
    message = Message(each.key, value, each.headers or None, each.event_time_ms)
    return Browsed(*place, message, "", producer, sequence, is_replayed)


def _value(each: BrowsedMessage) -> bytes:
    if each.value is not UNSET:
        return each.value.encode()
    if each.value_base64 is UNSET:
        raise unusable("browse", f"message {each.offset} has no value")
    try:
        return base64.b64decode(each.value_base64, validate=True)
    except ValueError as error:
        raise unusable("browse", error) from error
