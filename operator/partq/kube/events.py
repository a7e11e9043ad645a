"""Events for administrators, aggregated: never one per message.

A repeat of an Event within ten minutes counts up the one that is there, at most once a minute. An
Event that cannot be written is dropped: the condition has the same text.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from partq.kube.api import KubeApi
from partq.kube.bodies import Body, Manifest
from partq.kube.errors import KubernetesError
from partq.kube.names import MANAGER
from partq.resources import API_VERSION

SERIES_S = 600.0
UPDATE_GAP_S = 60.0
MAX_KNOWN = 5000
MAX_WAITING = 1000
"""How many Events wait to be written; more are dropped."""
MAX_NOTE_CHARS = 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subject:
    """What an Event is about."""

    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, body: Body, kind: str) -> "Subject":
        """Return the subject that a body is."""
        metadata = body["metadata"]
        return cls(kind, metadata["namespace"], metadata["name"], metadata["uid"])


@dataclass(slots=True)
class _Known:
    name: str
    count: int
    last_at: float
    written_at: float


class EventRecorder:
    """Writes Events in a separate task; `close` ends it."""

    def __init__(
        self,
        api: KubeApi,
        *,
        instance: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._instance = instance
        self._clock = clock
        self._now = now
        self._known: OrderedDict[tuple[str, str, str], _Known] = OrderedDict()
        self._waiting: asyncio.Queue[tuple[Subject, str, str, bool]] = asyncio.Queue(MAX_WAITING)

    def emit(self, subject: Subject, reason: str, note: str, *, is_warning: bool = False) -> None:
        """Write an Event soon."""
        level = logging.WARNING if is_warning else logging.INFO
        where = f"{subject.namespace}/{subject.name}"
        _log.log(level, "%s %s: %s: %s", subject.kind, where, reason, note)
        try:
            self._waiting.put_nowait((subject, reason, note, is_warning))
        except asyncio.QueueFull:
            _log.warning("an Event is dropped: %d wait to be written", MAX_WAITING)

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self.write_next()

    async def write_next(self) -> None:
        """Wait for an Event, and write it."""
        event = await self._waiting.get()
        try:
            await self._write(*event)
        except KubernetesError as error:
            _log.info("an Event is dropped: %s", error)

    async def _write(self, subject: Subject, reason: str, note: str, is_warning: bool) -> None:
        key = (subject.uid, reason, note)
        known, at = self._known.get(key), self._clock()
        if known is None or at - known.last_at > SERIES_S:
            name = f"{subject.name}.{secrets.token_hex(8)}"
            self._known[key] = _Known(name, 1, at, at)
            self._known.move_to_end(key)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
            await self._api.create(
                _path(subject), self._body(name, subject, reason, note, is_warning)
            )
            return
        known.count += 1
        known.last_at = at
        if at - known.written_at < UPDATE_GAP_S:
            return
        known.written_at = at
        series = {"count": known.count, "lastObservedTime": micro_time(self._now())}
        await self._api.merge(f"{_path(subject)}/{known.name}", {"series": series})

    def _body(
        self, name: str, subject: Subject, reason: str, note: str, is_warning: bool
    ) -> Manifest:
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": subject.namespace},
            "eventTime": micro_time(self._now()),
            "reportingController": f"partq.dev/{MANAGER}",
            "reportingInstance": self._instance,
            "action": reason,
            "reason": reason,
            "type": "Warning" if is_warning else "Normal",
            "note": note[:MAX_NOTE_CHARS],
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
        }


def micro_time(at: datetime) -> str:
    """Return an instant with microseconds, as Events have them."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _path(subject: Subject) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{subject.namespace}/events"
