"""What `partq dev up` says of partitions that deliver nothing, or will stop at a dead letter.

And of messages that do not decode and find no dead-letter queue, which hold the log.
"""

import asyncio
import logging
from collections.abc import Mapping

from partq.cli.queues.problems import blocked_partitions, parked_partitions
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.core.partition_problems import ProblemKind
from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import PartqError
from partq.resources import Resources
from partq.resources.reading import dead_letter_queue
from partq.wire.calls.status import GroupStatus, StatusAnswer

LOOK_EVERY_S = 5.0

log = logging.getLogger("partq.embedded")


def missing_targets(resources: Resources) -> list[str]:
    """Return a warning for each group whose dead letters would have nowhere to go."""
    resources = resources.with_dead_letter_queues()
    known = {queue.key for queue in resources.queues}
    warnings = []
    for queue in resources.queues:
        namespace, name = queue.key
        for group in resources.groups_of(queue):
            limit = group.spec.ack.max_redeliveries
            target = dead_letter_queue(group, queue)
            makes_some = limit is not None and group.spec.ack.on_exhausted != "Block"
            if makes_some and (namespace, target) not in known:
                warnings.append(
                    f"group {group.metadata.name} of {namespace}/{name}: ack.maxRedeliveries is "
                    f"{limit}, and its dead-letter queue {target} is not in the file: a message "
                    "that exceeds it will stop its partition. Set deadLetter.create: true, or "
                    "add that PartitionedQueue"
                )
    return warnings


class BlockWatch:
    """Says once when a partition's deliveries stop, or dead letters wait, and once its end."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], dict[str, str]] = {}

    def read_news(self, queue: str, groups: Mapping[str, GroupStatus]) -> list[str]:
        """Return what is new in the `groups` of a queue's status."""
        news = []
        for name, group in groups.items():
            for found, begins, ends in (
                (blocked_partitions(group), ProblemKind.BLOCKED.text, "delivers again"),
                (
                    parked_partitions(group),
                    "continues, and dead letters of it wait for their queue",
                    "has no more dead letters that wait for their queue",
                ),
            ):
                before = self._known.get((queue, name, begins), {})
                self._known[queue, name, begins] = found
                where = f"queue {queue}, group {name}: partition"
                news += [
                    f"{where} {partition} {begins}: {found[partition]}"
                    for partition in found.keys() - before.keys()
                ]
                news += [
                    f"{where} {partition} {ends}" for partition in before.keys() - found.keys()
                ]
        return sorted(news)

    async def run(self, runtime: EmbeddedRuntime) -> None:
        """Look at queues until cancelled; brokers that do not answer are asked again later."""
        while True:
            for queue in [*runtime.queues]:
                try:
                    options = ConnectionOptions(
                        queue.url, queue.name, token=queue.tokens.admin, namespace=queue.namespace
                    )
                    async with Session(options) as session:
                        answer = await session.ask("GET", "/status", StatusAnswer)
                except PartqError as error:
                    log.debug("status of %s: %s", queue.name, error)
                    continue
                runtime.note_groups(queue, answer.groups)
                for line in self.read_news(f"{queue.namespace}/{queue.name}", answer.groups):
                    log.warning("%s", line)
            await asyncio.sleep(LOOK_EVERY_S)
