"""Which numbers the partitions of a queue take next from a producer that numbers its messages."""

from pathlib import Path
from urllib.parse import quote

from partq.client.log_reader import TIMEOUT_S
from partq.client.owners import Owners
from partq.core.model import PartitionId
from partq.core.numbering import check_producer_id
from partq.errors import InternalError, UnavailableError


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
        namespace: of the queue, where that shall be checked.
        ca_file: certificates of who may sign the brokers'; None: the system's.
        timeout_s: for how long a partition that nobody serves is waited for, in seconds.

    Raises:
        BadRequestError: the name is none.
        UnavailableError: a partition had no broker in time.
        PartqError: the brokers refuse.
    """
    check_producer_id(producer, "producer")
    owners = Owners.open(
        url, queue=queue, token=token, namespace=namespace, ca_file=ca_file, timeout_s=timeout_s
    )
    path = f"/producers/{quote(producer, safe='')}"
    due: dict[PartitionId, int] = {}

    async def ask(broker: str) -> None:
        answer = await owners.session.get(broker, path)
        try:
            due.update((PartitionId.parse(p), int(n)) for p, n in answer["due"].items())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InternalError(f"{broker}: unusable answer: {error!r}") from error

    async with owners:
        wanted = await owners.checked(None)
        for partition in wanted:
            if partition in due:
                continue  # its broker was asked for another one

            async def ask_for(broker: str, partition: PartitionId = partition) -> None:
                await ask(broker)
                if partition not in due:
                    raise UnavailableError(
                        f"partition {partition}: {broker} does not own it any more"
                    )

            await owners.at_owner(partition, ask_for)
    return {partition: due[partition] for partition in wanted}
