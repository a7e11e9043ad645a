"""Calls about partitions, repeated until the broker that owns each of them has answered."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from partq.client.arguments import check_partitions
from partq.client.transport.answers import unusable
from partq.client.transport.layout import QueueLayout
from partq.client.transport.retries import RetryWindow
from partq.client.transport.session import NOT_REACHED, Session, UntrustedError, why
from partq.core.model import PartitionId
from partq.errors import (
    FencedError,
    PartqError,
    QuotaExceededError,
    UnavailableError,
)
from partq.wire.calls.answers import UNSET, ByPartition, PartitionAnswer
from partq.wire.calls.replies import to_error

T = TypeVar("T")


A = TypeVar("A", bound=PartitionAnswer)


class PartitionRouter:
    """The brokers of one queue by the partitions that they own.

    Args:
        session: open when something is asked; its owner closes it.
        timeout_s: for how long a call is repeated while brokers change or do not answer.
    """

    def __init__(self, session: Session, *, timeout_s: float) -> None:
        self.session = session
        self._timeout_s = timeout_s
        self._queue_layout: QueueLayout | None = None
        self._urls: tuple[str, ...] = session.seeds

    async def queue_layout(self) -> QueueLayout:
        """Return the layout as it was asked for last; the first time it is asked for.

        Raises:
            UnavailableError: no broker answers in time.
            PartqError: a broker refuses the call for good, such as `unauthorized`.
        """
        patience = RetryWindow(self._timeout_s)
        while self._queue_layout is None:
            try:
                self._queue_layout = await self.session.layout(self._urls)
            except UnavailableError as error:
                if not _may_repeat(error):
                    raise
                await patience.wait(error)
            else:
                self._urls = tuple(
                    dict.fromkeys((*self._queue_layout.urls.values(), *self.session.seeds))
                )
        return self._queue_layout

    async def checked(self, partitions: Iterable[PartitionId] | None) -> list[PartitionId]:
        """Return partitions that the queue has; None: all, the oldest generation first.

        Raises:
            UnknownPartitionError: the layout, as it is now, does not have one.
        """
        if partitions is None:
            self._queue_layout = None  # a reader may live for long, and generations come
            return list((await self.queue_layout()).layout.partitions())
        layout = (await self.queue_layout()).layout
        wanted = check_partitions("partitions", partitions)
        if any(partition not in layout for partition in wanted):
            self._queue_layout = None  # generations may have come since
            layout = (await self.queue_layout()).layout
        for partition in wanted:
            layout.slots(partition)  # raises for one that is not there
        return wanted

    async def at_owner(self, partition: PartitionId, call: Callable[[str], Awaitable[T]]) -> T:
        """Return what `call` gives at the URL of the partition's owner.

        It is repeated, at the current owner of the partition, until a broker answers for good.

        Raises:
            PartqError: what the owner refuses with, or what the last try in time has failed with.
        """
        patience = RetryWindow(self._timeout_s)
        while True:
            url = (await self.queue_layout()).owners.get(partition)
            try:
                if url is None:
                    raise UnavailableError(
                        f"partition {partition}: no broker serves it; check the queue's brokers"
                    )
                return await call(url)
            except NOT_REACHED as error:
                failure: PartqError = UnavailableError(f"{url}: {why(url or '', error)}")
            except PartqError as error:
                if not _may_repeat(error):
                    raise
                failure = error
            await patience.wait(failure)
            self._queue_layout = None

    async def ask_each(
        self,
        method: str,
        path: str,
        partitions: Iterable[PartitionId],
        body: Callable[[list[PartitionId]], object],
        kind: type[A],
    ) -> dict[PartitionId, A]:
        """Return what is answered of each partition, by any broker, which asks the owners.

        `body` makes the call's body for the partitions that have no answer yet. The call is
        repeated for those alone whose owner does not answer.

        Raises:
            PartqError: a partition was refused, or had no answer in time; the others may have been
                done.
        """
        left = list(partitions)
        answers: dict[PartitionId, A] = {}
        refusal: PartqError | None = None
        patience = RetryWindow(self._timeout_s)
        while left:
            await self.queue_layout()
            again: PartqError | None = None
            asked, left = left, []
            try:
                results: type[ByPartition[A]] = ByPartition[kind]  # type: ignore[valid-type]
                page = await self.session.ask(method, path, results, body(asked), urls=self._urls)
                found = {partition: page.partitions[str(partition)] for partition in asked}
            except PartqError as error:
                if not _may_repeat(error):
                    raise
                again, left = error, asked
            except KeyError as error:
                raise unusable(path, f"it lacks partition {error}") from error
            else:
                for partition, answer in found.items():
                    if answer.error is UNSET:
                        answers[partition] = answer
                        continue
                    failure = to_error(answer.error)
                    if _may_repeat(failure):
                        again = again or failure
                        left.append(partition)
                    else:
                        refusal = refusal or failure
            if again is not None:
                await patience.wait(again)
        if refusal is not None:
            raise refusal
        return answers


def _may_repeat(error: PartqError) -> bool:
    """Say whether another broker, or the same one later, may answer otherwise by itself."""
    if isinstance(error, UntrustedError | QuotaExceededError):
        return False
    # Fenced: the owner has lost the partition in the middle of the call.
    return error.is_retryable or isinstance(error, FencedError)
