"""Pins: what readers without a group want a log to keep for a while, in the partition's record."""

from typing import NamedTuple

from partq.core.model import BrokerEpoch, Offset, PartitionId
from partq.errors import QuotaExceededError
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import FENCED, fenced
from partq.wire.calls.browse import MAX_PIN_MS

MAX_PINS = 16
"""The most pins of a partition."""

# What answers of `set_pin` mean; `store/refusals.py` has those that more modules share.
PIN_FENCED = -1
"""The caller's broker epoch is over."""
TOO_MANY_PINS = -2
"""Other pins are as many as there may be."""


class Pin(NamedTuple):
    """A pin after a call."""

    offset: Offset
    """From where on the log is kept."""
    number: int
    """Of the last call that has set it; 0: that had none."""


class Pins:
    """The pins of one queue's partitions."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def set(
        self,
        partition: PartitionId,
        name: str,
        offset: int,
        *,
        broker_epoch: BrokerEpoch,
        number: int | None = None,
    ) -> Pin:
        """Keep what is stored from `offset` on for `MAX_PIN_MS`, and return the pin as it is then.

        What is trimmed already does not come back. A repeat renews the pin, or moves it. `number`
        grows with the calls of a reader: where a later one has set or removed the pin, nothing is
        changed, and a number that is not below that one's is returned. 0 changes nothing, and
        returns a number above those of all calls before, by Redis's time. None: the call is not
        compared.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            QuotaExceededError: the partition has `MAX_PINS` others.
        """
        answer = await self._store.run(
            "set_pin",
            [self._keys.meta(partition)],
            [
                *(broker_epoch, name, offset, MAX_PIN_MS, MAX_PINS),
                "" if number is None else number,
            ],
        )
        if answer == PIN_FENCED:
            raise fenced(partition, broker_epoch)
        if answer == TOO_MANY_PINS:
            raise QuotaExceededError(
                f"partition {partition}: {MAX_PINS} pins hold its log, which is the limit; remove "
                f"one, or wait until one ends, {MAX_PIN_MS // 60_000} min after its last renewal"
            )
        held, last = answer
        return Pin(Offset(held), last)

    async def remove(
        self,
        partition: PartitionId,
        name: str,
        *,
        broker_epoch: BrokerEpoch,
        number: int | None = None,
    ) -> int | None:
        """Let go of what a pin holds; one that is not there is no error.

        `number` as of `set`. Returns the number of a later call that has set the pin, which
        stays then.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
        """
        keys = [self._keys.meta(partition)]
        args = (broker_epoch, name, "" if number is None else number, MAX_PIN_MS)
        answer = await self._store.run("remove_pin", keys, args)
        if answer == FENCED:
            raise fenced(partition, broker_epoch)
        return None if answer == 1 else int(answer[0])
