"""Sees whether the store still has the series of numbers that a change of the layout has ended.

Where a series goes on, the number that is due tells the producer that the store has lost messages.
One that has ended gets no message any more. If the store forgets some of it, and has the change or
gets it once more, later messages would be stored as if nothing were missing before them.
"""

from collections.abc import Iterable, Mapping
from math import inf

from partq.client.producer_state import ProducerState
from partq.client.transport.liveness import Clock
from partq.client.transport.retries import RetryWindow
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.errors import ConflictError, UnavailableError

CHECKED_S = 600.0
"""How long after a change its ended series are compared. A store that comes back without its last
writes has lost seconds; a partition knows a producer for a day."""
ANSWER_S = 10.0
"""How long the brokers are asked."""


class EndedSeries:
    """What is stored in the series that changes have ended.

    Args:
        session: to the brokers.
        producer: its id.
        clock: seconds that never go back.
    """

    def __init__(self, session: Session, producer: str, clock: Clock) -> None:
        self._session = session
        self._producer = producer
        self._clock = clock
        self._due: Mapping[tuple[PartitionId, int], int] = {}
        self._generation = 1
        """Of the layout by which they are known."""
        self._until = -inf

    def note(self, state: ProducerState) -> None:
        """Take what is stored behind a change, or when the producer begins.

        Raises:
            ConflictError: it is less than was known.
        """
        found = {
            (each.series.partition, each.series.generation): each.due for each in state.earlier
        }
        self._compare(found)
        self._due, self._generation = found, state.queue_layout.layout.generation
        self._until = self._clock() + CHECKED_S

    async def check(self, urls: Iterable[str]) -> None:
        """Ask the brokers at `urls` whether all is still stored; for a while after a change.

        Raises:
            ConflictError: it is not.
            UnavailableError: no broker has answered that knows the layout.
            PartqError: a broker refuses the call for good.
        """
        patience = RetryWindow(ANSWER_S, self._clock)
        while self._due and self._clock() < self._until:
            for url in urls:
                found = await self._session.earlier_numbers(url, self._producer)
                if found is not None and found.generation >= self._generation:
                    self._compare(found.due)
                    return
            await patience.wait(
                UnavailableError(
                    f"producer {self._producer!r}: no broker says whether the messages from before "
                    "the change of the partition count are still stored; check the queue's brokers"
                )
            )

    def _compare(self, found: Mapping[tuple[PartitionId, int], int]) -> None:
        if self._clock() >= self._until:
            return
        for (partition, generation), due in sorted(self._due.items()):
            left = found.get((partition, generation), 0)
            if left < due:
                raise ConflictError(
                    f"producer {self._producer!r}: partition {partition} had {due} messages from "
                    f"before a change of the partition count, and the store has {left} of them; "
                    "messages that came later may be stored all the same: find out what is "
                    "stored, and publish the rest under another producer id"
                )
