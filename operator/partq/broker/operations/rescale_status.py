"""How far a change of the partition count has come, from the records of its partitions."""

from partq.broker.broker import Broker
from partq.coordinator.reports.rescale_progress import read_progress
from partq.core.layout import Layout
from partq.core.records import RESCALE
from partq.core.views.rescale_status import RescaleStatus, rescale_status
from partq.store.records.layouts import Seals


async def read_rescale(
    broker: Broker, layout: Layout | None = None, wanted_count: int | None = None
) -> RescaleStatus | None:
    """Return the status of the latest change; None: there has been none, and none is wanted.

    Of a queue whose count was never changed nothing is read.

    Args:
        broker: that is asked.
        layout: as it was read just now; None: as the broker knows it.
        wanted_count: how many partitions the queue is to have; None: as the broker knows it.

    Raises:
        StoreUnavailableError: no answer.
    """
    config = broker.config
    layout = config.layout if layout is None else layout
    living = {broker.id, *broker.claims.living()}
    gates = Seals(broker.store, broker.keys)
    return rescale_status(
        layout,
        await read_progress(broker.partitions, gates, layout, living),
        wanted_count=config.wanted_count if wanted_count is None else wanted_count,
        groups=config.groups,
        lacking=lacking_brokers(broker),
    )


def lacking_brokers(broker: Broker) -> list[str]:
    """Return the living brokers that do not know changes of the partition count."""
    return sorted(
        name
        for name, lease in broker.claims.living().items()
        if name != broker.id and RESCALE not in lease.features
    )
