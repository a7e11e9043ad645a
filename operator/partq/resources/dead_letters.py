"""What a resource says of messages that a group cannot process."""

from partq.resources.base import Model, QueueName


class DeadLetterPolicy(Model):
    """Where a group's messages go that it cannot process."""

    queue: QueueName | None = None
    """A PartitionedQueue of the same namespace and the same Redis; left out: `QUEUE-GROUP-dlq`."""
    expired: bool = False
    """Whether messages that outlive their time to live go there, too; else they are dropped."""
    create: bool = False
    """Whether that queue is created if it does not exist and a message may have to go to it. A
    queue that exists is left as it is."""
