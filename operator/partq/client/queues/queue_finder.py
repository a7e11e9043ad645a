"""The queues that a consumer of several queues consumes now: those that are there and wanted."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from partq.client.queues.queue_choice import MAX_QUEUES
from partq.client.transport.options import ConnectionOptions
from partq.errors import SettingsError
from partq.excerpts import some_of

log = logging.getLogger("partq.client")

Find = Callable[[], Awaitable[Iterable[ConnectionOptions]] | Iterable[ConnectionOptions]]


class QueueFinder:
    """Asks the application which queues there are.

    Args:
        find: the function of the application.
        is_wanted: whether a queue is consumed, by its name.
        max_queues: the most queues to consume.
    """

    def __init__(self, find: Find, is_wanted: Callable[[str], bool], *, max_queues: int) -> None:
        self._find = find
        self._is_wanted = is_wanted
        self._max_queues = max_queues
        self._has_told_too_many = False

    async def find(self) -> dict[str, ConnectionOptions]:
        """Return the queues to consume, by their names.

        Raises:
            SettingsError: the function has returned something else than such a list.
            Exception: what the function raises.
        """
        asked = self._find()
        answer: object = await asked if isinstance(asked, Awaitable) else asked
        if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
            raise SettingsError(
                f"find: returned {type(answer).__name__}, expected a list of ConnectionOptions, "
                "which is empty if there are no queues"
            )
        found: dict[str, ConnectionOptions] = {}
        for options in answer:
            if not isinstance(options, ConnectionOptions):
                raise SettingsError(
                    f"find: returned a list with {type(options).__name__}, expected "
                    "ConnectionOptions alone"
                )
            if self._is_wanted(options.queue):
                if found.setdefault(options.queue, options) != options:
                    raise SettingsError(
                        f"find: returned queue {options.queue} twice, with different settings; "
                        "return each queue once"
                    )
                if len(found) > MAX_QUEUES:
                    raise SettingsError(
                        f"find: returned more than {MAX_QUEUES} queues; narrow the pattern"
                    )
        kept = sorted(found)[: self._max_queues]
        if len(kept) < len(found) and not self._has_told_too_many:
            self._has_told_too_many = True
            log.error(
                "%d queues fit, above max_queues of %d; these are not consumed: %s",
                *(len(found), self._max_queues, some_of(sorted(found)[self._max_queues :])),
            )
        return {queue: found[queue] for queue in kept}
