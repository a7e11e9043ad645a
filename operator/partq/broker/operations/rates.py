"""Samples what a broker counts every few seconds, and adds up the last ten minutes of all brokers.

A publish or a delivery has no more work because of it: the counters are those of the metrics, and
waits are counted once per append and per window.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import urlencode

from partq.broker.broker import Broker
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.peers.peer_client import FORWARDED, PeerClient, UnansweredError
from partq.core.cursor.lag import lag_of
from partq.core.samples.ring import (
    KEPT_STEPS,
    MAX_RATED_GROUPS,
    STEP_S,
    GroupSample,
    Sample,
    SampleRing,
)
from partq.core.samples.waits import Span, add_spans, dense, quantiles_ms
from partq.errors import PartqError, UnavailableError
from partq.path_names import quoted
from partq.server.memory import Hold
from partq.wire.calls.answers import UNSET, ErrorDetail
from partq.wire.calls.replies import error_detail
from partq.wire.calls.status import GroupRates, RatesAnswer, Waits

MAX_AGES = 64
"""Partitions of one sample whose oldest message is looked up in Redis: those with the most lag."""
AT_ONCE = 64
"""Partitions whose lag is counted before others may work."""
PEER_TIMEOUT_S = 4.0
SAMPLE_S = 1.0
"""How long a sample may take: a step is answered so long after its end, or as not known."""

Cells = list[int | None]
_SHARES = (0.5, 0.99)


class RateSampler:
    """Keeps the last ten minutes of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ring = SampleRing()
        self._accepted = 0
        self._delivered: dict[str, int] = {}
        """What the counters were at the last sample."""

    async def run(self) -> None:
        """Sample at the end of each step, until cancelled."""
        clock = self._broker.clock
        last = int(clock() / STEP_S)
        while True:
            await asyncio.sleep(STEP_S - clock() % STEP_S)
            step = int(clock() / STEP_S)
            if step > last:  # else the sleep has ended a little early
                last = step
                await self.sample(step)

    async def sample(self, step: int) -> None:
        """Keep a sample of a step, with all that was counted since the one before.

        A store that does not answer leaves the ages of messages unknown.
        """
        broker = self._broker
        lags = await self._lags()
        ages = await self._ages(lags)
        accepted, delivered = broker.metrics.accepted_count(), broker.metrics.delivered_counts()
        waits = broker.delivery_waits.take()
        counts = {
            group: count - self._delivered.get(group, 0)
            for group, count in delivered.items()
            if count > self._delivered.get(group, 0)
        }
        groups = {
            group: GroupSample(
                delivered=counts.get(group, 0),
                lag=sum(lag for lag, _ in lags.get(group, {}).values()),
                age_ms=ages.get(group),
                waits=waits.get(group, ()),
            )
            # Of a group whose last partition has left this broker, what was delivered before.
            for group in sorted({*lags, *counts})[:MAX_RATED_GROUPS]
        }
        appends = broker.append_waits.take()
        self._ring.add(Sample(step, accepted - self._accepted, appends, groups))
        self._accepted, self._delivered = accepted, delivered

    def read(self, group: str | None = None) -> RatesAnswer:
        """Return the last ten minutes of this broker alone, of one group or of all (None)."""
        settings = self._broker.settings
        samples = self._ring.window(int((self._broker.clock() - SAMPLE_S) / STEP_S))
        known = sorted({name for sample in samples if sample for name in sample.groups})
        names = known if group is None else [name for name in known if name == group]
        return RatesAnswer(
            queue=settings.queue,
            namespace=settings.namespace,
            step_ms=round(STEP_S * 1000),
            accepted=[None if each is None else each.accepted for each in samples],
            publish=_sent_waits([each.waits if each else () for each in samples]),
            groups={
                name: _group([each.groups.get(name) if each else None for each in samples])
                for name in names[:MAX_RATED_GROUPS]
            },
        )

    async def _lags(self) -> dict[str, dict[OwnedPartition, tuple[int, int]]]:
        """Return (lag, cursor) of each group in each partition of this broker."""
        lags: dict[str, dict[OwnedPartition, tuple[int, int]]] = {}
        for number, owned in enumerate(list(self._broker.owned.values())):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            for group, consumed in owned.groups.items():
                book = consumed.book
                lag = lag_of(owned.tail.end, book.cursor, book.acked_pairs())
                lags.setdefault(group, {})[owned] = (lag, book.cursor)
        return lags

    async def _ages(
        self, lags: Mapping[str, Mapping[OwnedPartition, tuple[int, int]]]
    ) -> dict[str, int]:
        """Return the age of the oldest message of each group; 0: all are acknowledged."""
        behind: list[tuple[int, str, OwnedPartition, int]] = []
        caught_up: dict[str, int] = {}
        for group, rows in lags.items():
            most = sorted(rows.items(), key=lambda row: -row[1][0])
            late = [(owned, cursor) for owned, (lag, cursor) in most if lag]
            behind += [(rank, group, *each) for rank, each in enumerate(late)]
            if not late:
                caught_up[group] = 0
        # The first partition of each group, then the second: no group hides another one.
        behind.sort(key=lambda each: each[:2])
        ages = dict(caught_up)
        for _, group, owned, cursor in behind[:MAX_AGES]:
            try:
                now_ms, (at_ms,) = await self._broker.log.read_times(owned.id, [cursor])
            except PartqError:
                return caught_up
            if at_ms is not None:
                ages[group] = max(ages.get(group, 0), now_ms - at_ms)
        return ages


async def read_rates(
    sampler: RateSampler,
    broker: Broker,
    peers: PeerClient,
    *,
    group: str | None,
    authorization: str,
    hold: Hold,
) -> RatesAnswer:
    """Return the sums over all brokers, and which of them have not answered.

    Args:
        sampler: of this broker.
        broker: that is asked.
        peers: for calls to the others.
        group: that is asked for; None: every group.
        authorization: the caller's header.
        hold: of the call, for what the others answer.
    """
    leases = broker.claims.living()
    others = sorted(leases.keys() - {broker.id})
    path = f"/v1/queues/{quoted(broker.settings.queue, 'queue')}/rates"
    if group is not None:
        path += f"?{urlencode({'group': group})}"

    async def ask(url: str) -> RatesAnswer | PartqError:
        try:
            return await peers.call(
                "GET",
                url + path,
                RatesAnswer,
                authorization=authorization,
                headers={FORWARDED: broker.id},
                timeout_s=PEER_TIMEOUT_S,
                hold=hold,
            )
        except UnansweredError as error:
            return UnavailableError(
                f"{url}: no usable answer within {PEER_TIMEOUT_S:g} s ({error}); ask again"
            )
        except PartqError as error:
            return error

    found = await asyncio.gather(*(ask(leases[other].url) for other in others))
    answers = [sampler.read(group), *(each for each in found if isinstance(each, RatesAnswer))]
    # With many groups that is a tenth of a second, for which deliveries do not wait.
    return await asyncio.to_thread(
        add_rates,
        answers,
        {
            other: error_detail(each)
            for other, each in zip(others, found, strict=True)
            if isinstance(each, PartqError)
        },
    )


def add_rates(
    answers: Sequence[RatesAnswer], unavailable: Mapping[str, ErrorDetail]
) -> RatesAnswer:
    """Return the sums of what brokers answer; the first is of the broker that is asked."""
    first = answers[0]
    names = sorted({name for each in answers for name in each.groups})
    # The newest step counts once each broker that takes samples has one of it.
    is_late = any(
        each.accepted and each.accepted[-1] is None and set(each.accepted) != {None}
        for each in answers
    )
    upto = KEPT_STEPS - is_late
    return RatesAnswer(
        queue=first.queue,
        namespace=first.namespace,
        step_ms=first.step_ms,
        accepted=_join([each.accepted for each in answers], sum, upto),
        publish=_add_waits([each.publish for each in answers], upto),
        groups={
            name: _add_groups([each.groups[name] for each in answers if name in each.groups], upto)
            for name in names[:MAX_RATED_GROUPS]
        },
        unavailable=dict(unavailable),
    )


def _add_groups(every: Sequence[GroupRates], upto: int) -> GroupRates:
    return GroupRates(
        delivered=_join([each.delivered for each in every], sum, upto),
        lag=_join([each.lag for each in every], sum, upto),
        lag_ms=_join([each.lag_ms for each in every], max, upto),
        delivery=_add_waits([each.delivery for each in every], upto),
    )


def _group(samples: Sequence[GroupSample | None]) -> GroupRates:
    return GroupRates(
        delivered=[None if each is None else each.delivered for each in samples],
        lag=[None if each is None else each.lag for each in samples],
        lag_ms=[None if each is None else each.age_ms for each in samples],
        delivery=_sent_waits([each.waits if each else () for each in samples]),
    )


def _sent_waits(steps: Sequence[Span]) -> Waits:
    """Return the waits of a broker alone, to be added up: percentiles are left to that."""
    return Waits(step_counts=[list(span) for span in steps])


def _add_waits(every: Sequence[Waits], upto: int) -> Waits:
    """Return the waits of all brokers for this many steps."""
    known = [each.step_counts for each in every if each.step_counts is not UNSET]
    steps = [add_spans([spans[at] for spans in known if at < len(spans)]) for at in range(upto)]
    quantiles = [quantiles_ms(span, _SHARES) for span in steps]
    missing = [None] * (KEPT_STEPS - upto)
    total = add_spans(steps)
    p50, p99 = quantiles_ms(total, _SHARES)
    return Waits(
        p50_ms=p50,
        p99_ms=p99,
        counts=dense(total),
        step_p50_ms=[*(each[0] for each in quantiles), *missing],
        step_p99_ms=[*(each[1] for each in quantiles), *missing],
    )


def _join(every: Sequence[Cells], add: Callable[[Iterable[int]], int], upto: int) -> Cells:
    """Return the cells of all brokers for this many steps; None behind, and where none has one."""
    joined: Cells = []
    for at in range(KEPT_STEPS):
        known = [
            cell for each in every if at < min(len(each), upto) and (cell := each[at]) is not None
        ]
        joined.append(add(known) if known else None)
    return joined
