"""Looks at owned partitions, server by server: a silent one holds up its own partitions alone."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.model import PartitionId
from partq.errors import PartqError, StoreUnavailableError
from partq.store.records.log import Log

SILENCE_S = 1.0
"""How long, in seconds, a look waits for a server after others have done with theirs."""

Work = Callable[[Sequence[OwnedPartition]], Awaitable[None]]
Spawn = Callable[[Coroutine[Any, Any, None], str], None]
"""Runs a coroutine, under a name, until it ends or the broker does."""


@dataclass(slots=True)
class _ServerTurn:
    """What is to be looked at on one server."""

    partitions: Sequence[OwnedPartition]
    work: Work
    end: asyncio.Future[PartqError | None]


class ServerLooks:
    """One kind of look. On each server one is under way at a time, and the newest one waits."""

    def __init__(
        self, what: str, owned: Mapping[PartitionId, OwnedPartition], log: Log, spawn: Spawn
    ) -> None:
        """`what`: what the looks do, in words for logs."""
        self._what = what
        self._owned = owned
        self._log = log
        self._spawn = spawn
        self._busy: set[str | None] = set()
        self._next: dict[str | None, _ServerTurn] = {}

    async def look(self, work: Work) -> None:
        """Have `work` look at the partitions of each server; some may be lost by its turn.

        Waits until all have done, but for one that is silent not longer than `SILENCE_S` after the
        last of the others: it continues alone.

        Raises:
            PartqError: `work` has raised it for a server. StoreUnavailableError, too, when one is
                no longer waited for.
        """
        by_server: dict[str | None, list[OwnedPartition]] = {}
        for owned in self._owned.values():
            by_server.setdefault(self._log.server_of(owned.id), []).append(owned)
        looks = {self._begin(server, mine, work): server for server, mine in by_server.items()}
        waiting = set(looks)
        while waiting:
            done, waiting = await asyncio.wait(
                waiting,
                timeout=SILENCE_S if len(waiting) < len(looks) else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
        for end in looks.keys() - waiting:
            if (error := end.result()) is not None:
                raise error
        if waiting:
            silent = ", ".join(sorted(str(looks[end]) for end in waiting))
            raise StoreUnavailableError(
                f"{self._what}: Redis at {silent} is silent; its partitions wait, the others do not"
            )

    def _begin(
        self, server: str | None, partitions: Sequence[OwnedPartition], work: Work
    ) -> asyncio.Future[PartqError | None]:
        """Have a server looked at, now or in the place of a look that still waits for its turn."""
        before = self._next.get(server)
        end = asyncio.get_running_loop().create_future() if before is None else before.end
        turn = _ServerTurn(partitions, work, end)
        if server in self._busy:
            self._next[server] = turn
        else:
            self._busy.add(server)
            self._spawn(self._take_turns(server, turn), f"{self._what} at {server}")
        return end

    async def _take_turns(self, server: str | None, first: _ServerTurn) -> None:
        turn: _ServerTurn | None = first
        try:
            while turn is not None:
                error: PartqError | None = None
                try:
                    await turn.work(turn.partitions)
                except PartqError as failure:
                    error = failure
                finally:
                    turn.end.set_result(error)
                turn = self._next.pop(server, None)
        finally:
            self._busy.discard(server)
            if (left := self._next.pop(server, None)) is not None:
                left.end.set_result(None)  # the broker ends
