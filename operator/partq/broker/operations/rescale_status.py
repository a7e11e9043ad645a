"""How far a change of the partition count has come, from the records of its partitions."""

from partq.broker.broker import Broker
from partq.coordinator.reports.rescale_progress import read_rescale_progress
from partq.core.layout import Layout
from partq.core.records import lacking_rescale
from partq.core.views.rescale_status import RescaleStatus, rescale_status
from partq.store.records.layout.seals import Seals


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
    leases = {name: each for name, each in broker.claims.living().items() if name != broker.id}
    gates = Seals(broker.store, broker.keys)
    wanted_count = config.wanted_count if wanted_count is None else wanted_count
    living = {broker.id, *leases}
    return rescale_status(
        layout,
        await read_rescale_progress(broker.partitions, gates, layout, living, wanted_count),
        wanted_count=wanted_count,
        groups=config.groups,
        lacking=lacking_rescale(leases),
    )
