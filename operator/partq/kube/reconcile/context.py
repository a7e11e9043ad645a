"""What all workers of an operator share."""

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp

from partq.coordinator.broker_api import HttpBrokerAdmin
from partq.coordinator.ports import Answer, TermStore
from partq.core.group.handoff import Commit
from partq.core.model import PartitionId
from partq.kube.api import KubeApi
from partq.kube.errors import NotLeadingError
from partq.kube.events import EventRecorder
from partq.kube.objects.deletion_cost import DeletionCosts
from partq.kube.ports import OpenStore
from partq.kube.watch.object_cache import ObjectCache
from partq.operator_metrics import OperatorMetrics
from partq.settings import OperatorSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The process's connections and views, each owned by the operator."""

    settings: OperatorSettings
    api: KubeApi
    cache: ObjectCache
    events: EventRecorder
    metrics: OperatorMetrics
    costs: DeletionCosts
    session: aiohttp.ClientSession
    """For calls to brokers."""
    open_store: OpenStore
    is_leading: Callable[[], bool]
    server_version: tuple[int, int]
    clock: Callable[[], float] = time.monotonic

    def now(self) -> datetime:
        """Return the time for people to read."""
        return datetime.now(UTC)


class LeadersBrokerAdmin(HttpBrokerAdmin):
    """Calls that change who holds what are made by the leader only: asked right before each."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        queue: str,
        token: str,
        trust: ssl.SSLContext | None,
        is_leading: Callable[[], bool],
    ) -> None:
        super().__init__(session, queue=queue, token=token, trust=trust)
        self._is_leading = is_leading

    async def commit(
        self, url: str, group: str, commits: Mapping[PartitionId, Commit]
    ) -> Sequence[Answer]:
        """Record the targets."""
        self._check()
        return await super().commit(url, group, commits)

    async def claim(self, url: str, partitions: Sequence[PartitionId]) -> Sequence[Answer]:
        """Make the broker the owner of partitions that no living broker owns."""
        self._check()
        return await super().claim(url, partitions)

    async def yield_(self, url: str, partitions: Sequence[PartitionId]) -> Sequence[Answer]:
        """Make the broker give partitions up."""
        self._check()
        return await super().yield_(url, partitions)

    def _check(self) -> None:
        if not self._is_leading():
            raise NotLeadingError("another replica of the operator leads; nothing was called")


class LeadersTerms:
    """Terms of a coordinator that only a leader begins: asked right before each."""

    def __init__(self, terms: TermStore, is_leading: Callable[[], bool]) -> None:
        self._terms = terms
        self._is_leading = is_leading

    async def begin(self, group: str) -> None:
        """End every older term."""
        if not self._is_leading():
            raise NotLeadingError("another replica of the operator leads; no term was begun")
        await self._terms.begin(group)
