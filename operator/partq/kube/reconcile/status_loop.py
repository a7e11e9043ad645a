"""Keeps the status of a queue and its groups current; an error of one object delays no other.

An object whose status is refused waits for a time that grows with each refusal. Without any answer
all wait, for a few seconds at most: the status has to be current soon after the API server returns.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from partq.aio import Backoff, Backoffs, Signal
from partq.kube import names
from partq.kube.bodies import Body
from partq.kube.errors import KubernetesError
from partq.kube.names import ConditionType, QueueKey
from partq.kube.reconcile.context import Context
from partq.kube.reconcile.dead_letter_circles import find_circle
from partq.kube.reconcile.groups import Groups
from partq.kube.reconcile.reporter import Reporter
from partq.kube.status.conditions import Finding
from partq.kube.status.facts import GroupFacts, QueueFacts
from partq.kube.status.queue_conditions import queue_findings
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache

GAP_S = 0.5
"""Least time between two writes of one status."""
FIRST_PAUSE_S = 1.0
MAX_SILENCE_S = 5.0
"""How long everything waits at most after a call without an answer."""
MAX_PAUSE_S = 30.0
"""How long one object waits at most whose status is refused."""

WRITES_AT_ONCE = 8
"""How many statuses of groups are under way; one after the other takes too long."""

_log = logging.getLogger(__name__)


class StatusLoop:
    """Writes the status of one queue and its groups; `run` continues until cancelled."""

    def __init__(
        self,
        context: Context,
        key: QueueKey,
        *,
        reporter: Reporter,
        groups: Groups,
        facts_of: Callable[[Body, int], QueueFacts],
    ) -> None:
        self._context = context
        self._key = key
        self._reporter = reporter
        self._groups = groups
        self._facts_of = facts_of
        self._news = Signal()
        self._judged: dict[str, Body] = {}
        """What the last look at each queue and group was about, by uid."""
        self._refusals = Backoffs[str](FIRST_PAUSE_S, MAX_PAUSE_S)
        """By uid."""

    def wake(self) -> None:
        """Write soon what has changed."""
        self._news.set()

    def note_look(self, judged: Collection[Body]) -> None:
        """Write soon what a look has found; `judged`: those whose specs it was about."""
        self._judged |= {_uid(body): body for body in judged}
        self._news.set()

    async def run(self) -> None:
        """Write after every change, and repeat writes that were refused."""
        silence = Backoff(FIRST_PAUSE_S, MAX_SILENCE_S)
        while True:
            await self._news.wait_at_most(self._retry_s())
            self._news.clear()
            try:
                is_done = await self.write()
            except Exception:  # noqa: BLE001 - one queue's mistake must not end the others'
                _log.exception("the status of %s could not be written", self._key)
                is_done = False
            if is_done:
                silence.reset()
                await asyncio.sleep(GAP_S)
            else:
                self._news.set()
                await asyncio.sleep(silence.next_s())

    async def write(self) -> bool:
        """Write every status that differs; False: the API server does not answer.

        Before the first look at an object only a pause of its queue is written.
        """
        cache = self._context.cache
        body, groups = cache.queue(self._key), cache.groups(self._key)
        self._keep_only(bodies_of(cache, self._key))
        is_paused = body is not None and parse.is_on(body, names.PAUSE)
        facts = None
        if body is not None:
            facts = self._facts_of(body, self._generation(body))
            is_due = is_paused or _uid(body) in self._judged
            if is_due and not await self._try(body, partial(self._reporter.queue, body, facts)):
                return False
        slots = asyncio.Semaphore(WRITES_AT_ONCE)
        is_silent = False

        async def write(name: str, group: Body) -> None:
            nonlocal is_silent
            async with slots:
                if is_silent:
                    return
                if not await self._try(group, partial(self._write_group, name, group, body, facts)):
                    is_silent = True

        due = [each for each in groups.items() if is_paused or _uid(each[1]) in self._judged]
        await asyncio.gather(*(write(*each) for each in due))
        return not is_silent

    async def _write_group(
        self, name: str, body: Body, queue: Body | None, queue_facts: QueueFacts | None
    ) -> None:
        view = queue_facts.view if queue_facts is not None else None
        is_rebalance_paused = any(
            parse.is_on(each, names.PAUSE_REBALANCE) for each in (queue, body) if each is not None
        )
        facts = GroupFacts(
            generation=self._generation(body),
            queue=self._key.name,
            problem=self._groups.problem(name, self._judged.get(_uid(body), body)),
            queue_ready=_ready(queue_facts) if queue_facts is not None else None,
            view=view.groups.get(name) if view is not None else None,
            unselected=self._reporter.unselected(name, view.groups.get(name)) if view else (),
            circle=find_circle(self._context.cache, self._key, name),
            lag=self._groups.lag.get(name),
            sessions=self._groups.sessions.get(name),
            is_paused=queue is not None and parse.is_on(queue, names.PAUSE),
            is_rebalance_paused=is_rebalance_paused,
            rebalance_now=self._groups.hurried.get(name),
        )
        await self._reporter.group(name, body, facts)

    async def _try(self, body: Body, write: Callable[[], Awaitable[None]]) -> bool:
        """Write one status, unless it was refused a moment ago; False: no answer."""
        uid, now = _uid(body), self._context.clock()
        if not self._refusals.may_try(uid, now):
            return True
        try:
            await write()
        except Exception as error:  # noqa: BLE001 - one object's trouble must not end the others'
            is_ours = not isinstance(error, KubernetesError)
            what = f"{body.get('kind', 'object')} {body['metadata']['name']}"
            _log.warning("status of %s: %s", what, error, exc_info=is_ours)
            if isinstance(error, KubernetesError) and not error.status:
                return False
            self._refusals.failed(uid, now)
        else:
            self._refusals.succeeded(uid)
        return True

    def _generation(self, body: Body) -> int:
        """Return the generation that what is known is about: that of the last look at its spec."""
        judged = self._judged.get(_uid(body))
        if judged is not None:
            return int(judged["metadata"].get("generation", 0))
        return int((body.get("status") or {}).get("observedGeneration", 0))

    def _keep_only(self, bodies: Sequence[Body]) -> None:
        self._reporter.keep_only(bodies)
        uids = {_uid(body) for body in bodies}
        self._judged = {uid: each for uid, each in self._judged.items() if uid in uids}
        self._refusals.keep_only(uids)

    def _retry_s(self) -> float | None:
        """Return how long to wait for news before what was refused is tried again."""
        first = self._refusals.next_at
        return None if first is None else max(0.0, first - self._context.clock())


def _ready(facts: QueueFacts) -> Finding:
    return next(each for each in queue_findings(facts) if each.type is ConditionType.READY)


def bodies_of(cache: ObjectCache, key: QueueKey) -> list[Body]:
    """Return the bodies of a queue, if it is there, and of its groups."""
    queue = cache.queue(key)
    return [*([queue] if queue is not None else []), *cache.groups(key).values()]


def _uid(body: Body) -> str:
    return str(body["metadata"]["uid"])
