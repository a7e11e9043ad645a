"""What an application says of the messages that a consumer has handed it."""

import asyncio

from partq.client.arguments import check_flag
from partq.client.consume.confirmations import Confirmations
from partq.client.consume.deliveries import Batch, Delivery
from partq.client.consume.flow import GROUP_DELAY_MS
from partq.client.transport.tasks import EnteredLoop
from partq.core.cursor.redelivery_rules import MAX_NACK_DELAY_MS
from partq.errors import BadRequestError
from partq.wire.batch import Message

MAX_NACK_DELAY_S = MAX_NACK_DELAY_MS // 1000


class Acknowledger:
    """Sends acks and nacks, and keeps the refusals until they are told: a part of `Consumer`."""

    def __init__(self) -> None:
        self._entered_loop = EnteredLoop("the consumer")
        self._current: Delivery | None = None
        """What was handed out last, for `auto_ack`."""
        self._acks = Confirmations()
        self._quiet_acks = Confirmations()
        """Those given by `ack_nowait` and `auto_ack`: only `flush` reports them."""

    async def ack(self, done: Delivery | Batch, *, confirmed: bool = False) -> None:
        """Acknowledge a message, or all of a batch; return once the ack is on its way.

        Acks of one turn of the event loop travel together. At most 10,000 are without an answer;
        above that the call waits. A refusal is raised by the next `ack`, `ack_cumulative` or
        `flush`, whose own acks are given all the same, or on leaving the block. A second ack of a
        message changes nothing.

        Args:
            done: as it was handed out.
            confirmed: wait until this ack is stored, and raise its own refusal.

        Raises:
            FencedError: the partition is not this member's any more, by this token. The message
                is redelivered, here or elsewhere: undo or ignore what was done.
            NotDeliveredError: it was not delivered to this member under its token.
            TypeError: it is nothing that a consumer hands out, or `confirmed` is not a bool; no
                ack is sent.
        """
        self._check("ack", done)
        check_flag("ack: confirmed", confirmed)
        await self._give(done.ack(), confirmed=confirmed)

    async def ack_cumulative(self, done: Delivery | Batch, *, confirmed: bool = False) -> None:
        """Acknowledge everything of the partition up to and with a message or batch.

        Arguments, and what it raises: as `ack`, and RewoundError: the partition was delivered
        again from further down.
        """
        self._check("ack_cumulative", done)
        check_flag("ack_cumulative: confirmed", confirmed)
        batch = done.batch if isinstance(done, Delivery) else done
        last = done.offset if isinstance(done, Delivery) else done.offsets[-1]
        await self._give(batch.ack_upto(last), confirmed=confirmed)

    def ack_nowait(self, done: Delivery | Batch) -> None:
        """Acknowledge without waiting, also without bound; only `flush` reports a refusal."""
        self._check("ack_nowait", done)
        self._quiet_acks.add(done.ack())

    async def flush(self) -> None:
        """Wait until every ack given so far is stored.

        Raises: as `ack`, the first refusal that was not told; the other acks are stored.
        """
        await self._answered()
        self._acks.raise_error()
        self._quiet_acks.raise_error()

    async def nack(self, failed: Delivery | Batch, *, delay_s: float | None = None) -> None:
        """Give back a message, or all of a batch, that could not be processed.

        It is redelivered after the delay. Until then the consumer gets nothing of what is behind it
        in its partition, and what it has got of that is redelivered, too, unless it is
        acknowledged; in a group of free order others continue. `auto_ack` leaves it out. A message
        that is given back and acknowledged, in whichever order, is acknowledged.

        Args:
            failed: as it was handed out.
            delay_s: from 0 to 86,400; None: as the group's `nack` says, 60 if it says nothing.

        Raises:
            BadRequestError: the delay is out of range.
            FencedError: the partition is not this member's any more: it is redelivered in any case.
        """
        self._check("nack", failed)
        given: object = delay_s
        if isinstance(given, bool) or not isinstance(given, int | float | None):
            raise TypeError(f"nack: delay_s: got {type(delay_s).__name__}, expected seconds")
        if delay_s is not None and not 0 <= delay_s <= MAX_NACK_DELAY_S:
            raise BadRequestError(
                f"nack: delay_s {delay_s}; expected 0 to {MAX_NACK_DELAY_S}, or None"
            )
        if self._current is failed:
            self._current = None
        delay_ms = GROUP_DELAY_MS if delay_s is None else round(delay_s * 1000)
        batch = failed.batch if isinstance(failed, Delivery) else failed
        offsets = [failed.offset] if isinstance(failed, Delivery) else failed.offsets
        await asyncio.shield(batch.give_back(offsets, delay_ms))

    def _check(self, call: str, done: object) -> None:
        self._entered_loop.check()
        _check_taken(call, done)

    async def _answered(self, timeout_s: float | None = None) -> None:
        await self._acks.wait(timeout_s)
        await self._quiet_acks.wait(timeout_s)

    async def _give(self, future: asyncio.Future[None], *, confirmed: bool) -> None:
        if confirmed or future.done():  # done already: its token has ended
            await asyncio.shield(future)
            return
        acks = self._acks
        acks.add(future)
        if acks.has_refusals:
            acks.raise_error()
        if acks.is_full:
            await acks.room()


def _check_taken(call: str, done: object) -> None:
    if not isinstance(done, Delivery | Batch):
        hint = "; of a batch: one of batch.deliveries()" if isinstance(done, Message) else ""
        raise TypeError(
            f"{call}: got {type(done).__name__}, expected a message or batch as the consumer has "
            f"handed it out{hint}"
        )
