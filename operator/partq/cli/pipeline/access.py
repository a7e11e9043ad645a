"""Joins how commands find a queue with how jobs on Spark reach it."""

from typing import TYPE_CHECKING

from partq.cli.queues.connection import QueueAddress

if TYPE_CHECKING:
    from partq.pipeline.access import QueueAccess


def access_of(connection: QueueAddress) -> "QueueAccess":
    """Return what a job needs to reach the queue."""
    # Only here: `--help` needs no Spark.
    from partq.pipeline.access import QueueAccess

    return QueueAccess(
        url=connection.url,
        queue=connection.queue,
        namespace=connection.namespace,
        token=connection.token,
        ca_file=str(connection.ca_file) if connection.ca_file else None,
    )
