"""All checks of the audit, over one record and the messages archived with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from partq.pipeline.audit import (
    chain,
    delivery,
    handoffs,
    log,
    owners,
    redelivery,
    stretches,
)
from partq.pipeline.audit.record import prepare
from partq.pipeline.manifest import ArchiveGap, Positions, Stream

Keep = Callable[[str, DataFrame], DataFrame]
"""Stores a frame under a name and returns it as it was stored: what follows starts from there."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the archive is, as it says itself."""

    messages: DataFrame
    """`partition`, `archive_stop`: everything below is archived, or was lost before."""
    record: DataFrame
    """`partition`, `record_stop`: the same of the record's groups."""
    gaps: DataFrame
    """`partition`, `first`, `stop`: messages that were gone before they could be archived."""

    @classmethod
    def of(cls, spark: SparkSession, positions: Positions, gaps: Iterable[ArchiveGap]) -> Self:
        """Return what an archive's state says."""

        def stops(stream: Stream, name: str) -> DataFrame:
            rows = [
                (partition, each.offset) for partition, each in positions.get(stream, {}).items()
            ]
            return spark.createDataFrame(rows, f"partition string, {name} bigint")

        known = [
            (each.partition, each.first, each.stop) for each in gaps if each.stream == "messages"
        ]
        return cls(
            stops("messages", "archive_stop"),
            stops("audit", "record_stop"),
            spark.createDataFrame(known, "partition string, first bigint, stop bigint"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvidence:
    """What the checks look at, each stored once."""

    groups: DataFrame
    lines: DataFrame
    stretches: DataFrame
    history: DataFrame
    reached: DataFrame
    handoffs: DataFrame
    duplicates: DataFrame
    runs: DataFrame | None


def gather(
    record: DataFrame, messages: DataFrame | None, keep: Keep
) -> Iterator[str | AuditEvidence]:
    """Store what the checks need, step by step; the last that comes is the evidence.

    Args:
        record: columns as `schema.RECORD`.
        messages: columns as `schema.MESSAGES`; None: what needs the messages is left out.
        keep: is called once for each name.

    Yields:
        what is about to be done, and at last the evidence.
    """
    yield "hashing the record"
    groups = keep("groups", chain.linked(chain.groups_of(record)))
    yield "reading the record"
    lines = keep("lines", prepare(record, groups))
    yield "laying out what happened to each offset"
    spans = keep("stretches", stretches.stretches_of(lines))
    runs = None
    if messages is not None:
        yield "reading the messages"
        runs = keep("runs", log.archived_runs(messages))
    yield "what was delivered again"
    history = keep("history", redelivery.redeliveries(lines, spans))
    repeated = keep("duplicates", redelivery.duplicates(history, lines))
    yield "handoffs"
    continued = None if messages is None else handoffs.interrupted_keys(lines, messages)
    attempts = keep(
        "handoffs", handoffs.with_interruptions(handoffs.handoffs_of(lines), repeated, continued)
    )
    yield AuditEvidence(
        groups=groups,
        lines=lines,
        stretches=spans,
        history=history,
        reached=keep("reached", delivery.reached(lines)),
        handoffs=attempts,
        duplicates=repeated,
        runs=runs,
    )


def checks_of(
    evidence: AuditEvidence, reach: Reach | None = None, *, is_from_start: bool = True
) -> Mapping[str, Callable[[], DataFrame]]:
    """Return the checks by name; each returns its findings, columns as `schema.FINDINGS`.

    Args:
        evidence: of the record.
        reach: how far the archive is; None: as far as its last message.
        is_from_start: the record was read from its beginning: what lacks there is a fault.
    """
    lines, spans, history = evidence.lines, evidence.stretches, evidence.history
    return {
        "chain": partial(
            chain.check_chain,
            evidence.groups,
            None if reach is None else reach.record,
            is_from_start=is_from_start,
        ),
        "owners": partial(owners.check_owners, lines),
        "stale acks": partial(owners.check_stale_acks, lines),
        "acks": partial(delivery.check_acks, spans),
        "acks of redelivered messages": partial(redelivery.check_acks_of_repeats, history),
        "order": partial(delivery.check_order, spans, evidence.reached),
        "order of redelivered messages": partial(redelivery.check_redelivery_order, history, lines),
        "causes of duplicates": partial(redelivery.check_causes, history),
        "loss": partial(delivery.check_loss, spans, evidence.reached),
        "deliveries before publishing": partial(delivery.check_unpublished, lines),
        "log and archive": partial(
            log.check_log,
            lines,
            evidence.runs,
            None if reach is None else reach.messages,
            None if reach is None else reach.gaps,
        ),
        "producers' numbers": partial(log.check_numbers, lines),
        "handoffs": partial(handoffs.check_handoffs, evidence.handoffs),
    }
