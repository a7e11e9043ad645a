"""Which numbers the partitions of a queue take next from a producer that numbers its messages."""

from pathlib import Path

from partq.client.arguments import MAX_TIME_S, check_producer, check_range
from partq.client.transport.layout import QueueLayout
from partq.client.transport.liveness import Clock, boot_time
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.reader import TIMEOUT_S
from partq.client.transport.retries import RetryWindow
from partq.client.transport.session import ProducerProgress, Session
from partq.core.model import PartitionId
from partq.errors import UnavailableError


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
    answer is of all partitions of every living generation, from the broker that owns each.

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
        UnavailableError: a partition had no broker in time.
        PartqError: the brokers refuse.
    """
    check_producer("producer", producer)
    check_range("timeout_s", timeout_s, 0, MAX_TIME_S)
    options = ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
    async with Session(options) as session:
        _, found = await producer_state(session, producer, timeout_s=timeout_s, clock=boot_time)
    return {partition: progress.due for partition, progress in found.items()}


async def producer_state(
    session: Session,
    producer: str,
    *,
    timeout_s: float,
    clock: Clock,
    with_outlines: bool = False,
) -> tuple[QueueLayout, dict[PartitionId, ProducerProgress]]:
    """Return the queue as it is, and how far the producer is in each partition.

    0 is due where nothing is known of it. Every owner is asked; a partition whose broker is away
    is asked for again, for `timeout_s` at most.

    Raises:
        UnavailableError: within `timeout_s` some partition had no broker to ask.
        PartqError: a broker refuses the call for good.
    """
    patience = RetryWindow(timeout_s, clock)
    while True:
        queue_layout = await session.first_layout(timeout_s)
        found: dict[PartitionId, ProducerProgress] = {}
        for url in dict.fromkeys(queue_layout.urls.values()):
            found.update(await session.progress(url, producer, with_outlines=with_outlines))
        missing = [str(p) for p in queue_layout.layout.partitions() if p not in found]
        if not missing:
            return queue_layout, found
        await patience.wait(
            UnavailableError(
                f"producer {producer!r}: no broker knows the next number of partition "
                f"{', '.join(missing[:5])} ({len(missing)} in all); check the queue's brokers"
            )
        )
