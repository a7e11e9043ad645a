"""The job that reads an archive and suggests numbers of partitions and consumers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.core.slot_table import SlotTable
from partq.errors import BadRequestError
from partq.pipeline.advise.advice import Advice, Needs, advise, partition_rates
from partq.pipeline.advise.lag import GroupLag, lag_history
from partq.pipeline.advise.loads import Loads, load_of
from partq.pipeline.watch import JobWatch

MAX_PARTITIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """What a partition has carried, with the queue's number of partitions as it is."""

    index: int
    share: float
    peak_per_s: float


@dataclass(frozen=True, slots=True)
class Advised:
    """What the job has found."""

    loads: Loads
    partition_count: int
    """How many partitions the queue has, as far as its archive shows."""
    busiest: tuple[PartitionLoad, ...]
    lags: tuple[GroupLag, ...]
    needs: Needs
    advice: Advice

    def to_json(self) -> Mapping[str, object]:
        """Return it as `--json` prints it."""
        loads, keys = self.loads, self.loads.keys
        advice = asdict(self.advice)
        candidates = advice.pop("candidates")
        return {
            "messages": loads.messages,
            "begin_ms": loads.begin_ms,
            "windows": loads.keyless.size,
            "window_s": loads.window_s,
            "peak_per_s": loads.peak_per_s,
            "keys": {**asdict(keys), "hot": [asdict(each) for each in keys.hot]},
            "partitions": self.partition_count,
            "busiest": [asdict(each) for each in self.busiest],
            "lag": [asdict(each) for each in self.lags],
            "needs": asdict(self.needs),
            "suggested": advice,
            "candidates": candidates,
        }


def run_advise(
    messages: DataFrame,
    audit: DataFrame | None,
    needs: Needs,
    watch: JobWatch,
    *,
    table: SlotTable | None = None,
    time: str = "publish_time",
    window_s: int | None = None,
    group: str | None = None,
) -> Advised:
    """Read an archive and suggest numbers for its queue.

    Args:
        messages: those of the archive; columns as `read_archive` returns them.
        audit: the archived record; None: not archived, so the lag is unknown.
        needs: what has to hold. Without a consumer's rate that of the record is taken.
        watch: is told how far it is.
        table: the slots of the queue's partitions as they are now; None: not known, then as many
            partitions are taken as messages show, as of a new queue.
        time: the column by which messages are cut into windows.
        window_s: length of a window in whole seconds; None: one that fits.
        group: whose consumers are counted; None: the slowest group's.

    Raises:
        BadRequestError: there is no message, or an argument makes no sense.
        StoppedError: the watch ended it.
    """
    needs.check()
    loads = load_of(messages, watch, time=time, window_s=window_s)
    lags = [] if audit is None else lag_history(audit, loads.window_s, watch)
    needs = _with_rate(needs, lags, group, watch)
    table = table or SlotTable.first(_partition_count(messages))
    watch.check()
    watch.tell("trying numbers of partitions on the real keys")
    rates = partition_rates(loads, table)
    totals = rates.sum(axis=0)
    busiest = [
        PartitionLoad(int(index), float(totals[index] / totals.sum()), float(rates[:, index].max()))
        for index in totals.argsort()[::-1][:MAX_PARTITIONS_SHOWN]
    ]
    advice = advise(loads, needs, current=table)
    return Advised(loads, table.partition_count, tuple(busiest), tuple(lags), needs, advice)


def _with_rate(needs: Needs, lags: list[GroupLag], group: str | None, watch: JobWatch) -> Needs:
    """Take a consumer's rate from the record, where nobody named one."""
    if group is not None and group not in {each.group for each in lags}:
        known = ", ".join(each.group for each in lags) or "none"
        raise BadRequestError(f"group {group!r}: the archived audit record knows {known}")
    if needs.consumer_per_s is not None:
        return needs
    known_rates = [
        (each.consumer_per_s, each.group)
        for each in lags
        if each.consumer_per_s is not None and group in {None, each.group}
    ]
    if not known_rates:
        return needs
    rate, slowest = min(known_rates)
    watch.tell(f"a consumer of {slowest} did {rate:,.1f}/s while work was waiting")
    return replace(needs, consumer_per_s=rate)


def _partition_count(messages: DataFrame) -> int:
    """Return how many partitions the latest generation has, or fewer where the last are empty."""
    row = messages.select(F.max(F.struct("generation", "partition_index"))).first()
    return int(row[0]["partition_index"]) + 1 if row is not None and row[0] is not None else 1
