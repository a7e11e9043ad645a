"""Which replica of the operator acts: a Lease that one holds, renews and gives back.

The client's own leader election is not used: it compares wall clocks of this machine over time,
ends at an answer that is not JSON, has no time-out and never gives a Lease back.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from partq.kube.api import KubeApi
from partq.kube.bodies import Fields, Manifest
from partq.kube.errors import KubernetesError
from partq.kube.events import micro_time

LEASE_S = 10.0
"""How long a Lease keeps other replicas from leading after its last renewal."""
RENEW_S = 2.0
DEADLINE_S = 7.0
"""How long a holder acts without a renewal; below `LEASE_S` by more than a call may take late."""
CALL_LIMIT_S = 3.0

_log = logging.getLogger(__name__)


class Leader:
    """One candidate. All lengths are measured on its own monotonic clock."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        on_change: Callable[[], None],
        on_attempt: Callable[[], None],
    ) -> None:
        self._api = api
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._all}/{name}"
        self._name = name
        self._identity = identity
        self._clock = clock
        self._now = now
        self._on_change = on_change
        self._on_attempt = on_attempt
        self._leads_until = float("-inf")
        self._seen: tuple[object, ...] | None = None
        self._seen_at = clock()
        self._was_leading = False

    @property
    def is_leading(self) -> bool:
        """Whether this replica may act now."""
        return self._clock() < self._leads_until

    async def run(self) -> None:
        """Try to lead, and renew, until cancelled; then give the Lease back."""
        try:
            while True:
                await self.attempt()
                await asyncio.sleep(RENEW_S)
        finally:
            await self.give_back()

    async def attempt(self) -> None:
        """Try once to take or to renew the Lease; without an answer nothing changes."""
        began = self._clock()
        self._on_attempt()
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                if await self._try(began):
                    self._leads_until = began + DEADLINE_S
        except (KubernetesError, TimeoutError) as error:
            _log.warning(
                "lease %s could not be read or written: %s",
                self._name,
                str(error) or "no answer in time",
            )
        self._notify()

    async def watch(self) -> None:
        """Tell the moment at which leadership ends without a renewal."""
        while True:
            left_s = self._leads_until - self._clock()
            await asyncio.sleep(min(RENEW_S, left_s) if left_s > 0 else RENEW_S / 4)
            self._notify()

    async def give_back(self) -> None:
        """Stop leading, and let another begin at once."""
        if not self.is_leading:
            return
        self._leads_until = float("-inf")
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                lease = await self._api.get(self._path)
                if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                    spec = {**lease["spec"], "holderIdentity": ""}
                    await self._api.replace(self._path, {**lease, "spec": spec})
        except (KubernetesError, TimeoutError) as error:
            _log.info("lease %s could not be given back: %s", self._name, error)

    def _notify(self) -> None:
        if self.is_leading != self._was_leading:
            self._was_leading = self.is_leading
            _log.info("%s %s", self._identity, "leads" if self.is_leading else "does not lead")
            self._on_change()

    async def _try(self, began: float) -> bool:
        """Take or renew the Lease; False: another holds it."""
        lease = await self._api.get(self._path)
        if lease is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": self._spec({}),
            }
            return await self._api.create(self._all, body) is not None
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        state = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if state != self._seen:
            self._seen, self._seen_at = state, began
        if holder not in ("", self._identity) and began - self._seen_at < LEASE_S:
            return False
        # With the version that was read: of two that try, one is refused.
        return await self._api.replace(self._path, {**lease, "spec": self._spec(spec)}) is not None

    def _spec(self, before: Fields) -> Manifest:
        at = micro_time(self._now())
        is_mine = before.get("holderIdentity") == self._identity
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            **before,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(LEASE_S),
            "acquireTime": before.get("acquireTime", at) if is_mine else at,
            "renewTime": at,
            "leaseTransitions": transitions if is_mine else transitions + 1,
        }
