"""Which numbers the partitions of a queue take next from a producer that numbers its messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from partq.client.arguments import MAX_TIME_S, check_producer, check_range
from partq.client.transport.layout import QueueLayout
from partq.client.transport.liveness import Clock, boot_time
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.reader import TIMEOUT_S
from partq.client.transport.retries import RetryWindow
from partq.client.transport.session import ProducerProgress, Session
from partq.core.model import PartitionId
from partq.core.numbering.fixed_series import (
    FixedSeries,
    StoredSeries,
    earlier_series,
    last_series,
    series_of,
)
from partq.core.producer_series import series_of_layout
from partq.errors import ConflictError, UnavailableError
from partq.excerpts import counted


async def producer_due(
    url: str,
    producer: str,
    *,
    queue: str,
    token: str | None = None,
    namespace: str | None = None,
    ca_file: str | Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> dict[PartitionId, int]:
    """Return the number that each partition takes next from `producer`; 0: it knows none.

    Everything below is stored, or was. A deterministic producer starts from there: it asks before
    it sends anything, and after every process that may have sent under the name has ended. The
    answer is of all partitions that take messages, from the broker that owns each.

    Args:
        url: of a broker, or several with commas between them.
        producer: its name, 1 to 128 printable characters.
        queue: the queue's name.
        token: of a producer, or of an administrator.
        namespace: of the queue; None: it is not checked.
        ca_file: PEM of the CAs that may sign the brokers' certificates; None: the system's.
        timeout_s: how long to wait for a partition that no broker serves, in seconds.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
        UnavailableError: a partition had no broker in time, or a change of the partition count has
            not reached it.
        ConflictError: messages were stored before the partition count was changed: these numbers
            do not tell which.
        PartqError: the brokers refuse.
    """
    check_producer("producer", producer)
    check_range("timeout_s", timeout_s, 0, MAX_TIME_S)
    options = ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
    async with Session(options) as session:
        state = await producer_state(session, producer, timeout_s=timeout_s, clock=boot_time)
    state.check_earlier(producer)
    return {partition: each.due for partition, each in state.progress.items()}


@dataclass(frozen=True, slots=True)
class ProducerState:
    """How far a producer is whose numbers stand for the same messages at each attempt."""

    queue_layout: QueueLayout
    """The queue as it is."""
    progress: Mapping[PartitionId, ProducerProgress]
    """Of each partition that takes messages, in the series of its layout; 0 is due where nothing
    is known of the producer."""
    earlier: tuple[StoredSeries, ...] = ()
    """What is stored in earlier series, in the order in which they began. Their messages are in no
    later one."""

    def check_earlier(self, producer: str) -> None:
        """See that nothing is stored in earlier series, for producers that cannot leave it out.

        Raises:
            ConflictError: something is.
        """
        if self.earlier:
            count = sum(each.due for each in self.earlier)
            raise ConflictError(
                f"producer {producer!r}: {counted(count, 'message')} of it were stored before the "
                "partition count of the queue was changed, and the numbers that are due do not "
                "tell which; Producer.skip_stored() does, asked of each message from the first on"
            )


async def producer_state(
    session: Session,
    producer: str,
    *,
    timeout_s: float,
    clock: Clock,
    with_outlines: bool = False,
) -> ProducerState:
    """Return how far the producer is, once a change of the partition count has reached all owners.

    Before, a partition might store more messages in its earlier series. Every owner is asked; a
    partition whose broker is away is asked for again, for `timeout_s` at most.

    Raises:
        ConflictError: the partition count has changed too often for fixed numbers.
        UnavailableError: within `timeout_s` some partition had no broker to ask, or has not
            reached the layout.
        PartqError: a broker refuses the call for good.
    """
    patience = RetryWindow(timeout_s, clock)
    while True:
        queue_layout = await session.first_layout(timeout_s)
        urls = tuple(dict.fromkeys(queue_layout.urls.values()))
        found: dict[PartitionId, ProducerProgress] = {}
        for url in urls:
            found.update(await session.progress(url, producer, with_outlines=with_outlines))
        series = series_of(queue_layout.layout)
        last = last_series(series)
        missing = [str(p) for p in queue_layout.layout.partitions() if p not in found]
        behind = [
            str(p) for p, each in found.items() if p in last and each.layout != last[p].generation
        ]
        if missing:
            failure = f"no broker knows the next number of partition {_some(missing)}"
        elif behind:
            failure = (
                "the partition count of the queue is being changed, and that has not reached "
                f"partition {_some(behind)}"
            )
        elif queue_layout.layout.generation == 1:
            return ProducerState(queue_layout, found)
        else:
            # Now nothing is stored in an earlier series any more.
            state = await _changed_state(
                session, producer, queue_layout, series, with_outlines=with_outlines
            )
            if state is not None:
                return state
            failure = "a broker has not answered, or not read the layout of the queue"
        await patience.wait(
            UnavailableError(f"producer {producer!r}: {failure}; check the queue's brokers")
        )


async def _changed_state(
    session: Session,
    producer: str,
    queue_layout: QueueLayout,
    series: Sequence[FixedSeries],
    *,
    with_outlines: bool,
) -> ProducerState | None:
    """Return how far the producer is, where all partitions are at their last series.

    None: not all brokers have answered.
    """
    urls = tuple(dict.fromkeys(queue_layout.urls.values()))
    layout = queue_layout.layout
    own = {partition: last_series(series)[partition].generation for partition in layout.table.slots}
    progress: dict[PartitionId, ProducerProgress] = {}
    for number in sorted(set(own.values())):
        name = series_of_layout(producer, number)
        for url in urls:
            found = await session.progress(url, name, with_outlines=with_outlines)
            progress |= {each: at for each, at in found.items() if own.get(each) == number}
    if any(each not in progress or progress[each].layout != own[each] for each in own):
        return None
    for url in urls:
        earlier = await session.earlier_numbers(url, producer)
        if earlier is not None and earlier.generation >= layout.generation:
            stored = (
                StoredSeries(each, earlier.due.get((each.partition, each.generation), 0))
                for each in earlier_series(series)
            )
            return ProducerState(queue_layout, progress, tuple(each for each in stored if each.due))
    return None


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:5])} ({len(names)} in all)"
