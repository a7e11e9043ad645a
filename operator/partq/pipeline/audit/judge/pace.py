"""How much happened when: counts per bucket of time, however long the record is."""

MAX_BUCKETS = 8_192


class PaceCounts:
    """Counts by series, in buckets whose width doubles when there are too many."""

    def __init__(self) -> None:
        self.width_ms = 1
        self.counts: dict[tuple[str, str], dict[int, int]] = {}
        """(What, group) → bucket → messages; a bucket begins at its number times the width."""
        self._buckets: set[int] = set()

    def add(self, what: str, group: str, at_ms: int, messages: int) -> None:
        """Count messages."""
        bucket = at_ms // self.width_ms
        series = self.counts.setdefault((what, group), {})
        series[bucket] = series.get(bucket, 0) + messages
        if bucket not in self._buckets:
            self._buckets.add(bucket)
            if len(self._buckets) > MAX_BUCKETS:
                self._widen()

    def merge(self, other: "PaceCounts") -> None:
        """Add the counts of another one."""
        for (what, group), series in other.counts.items():
            for bucket, messages in series.items():
                self.add(what, group, bucket * other.width_ms, messages)

    def _widen(self) -> None:
        self.width_ms *= 2
        self._buckets = {bucket // 2 for bucket in self._buckets}
        for series in self.counts.values():
            old = list(series.items())
            series.clear()
            for bucket, messages in old:
                series[bucket // 2] = series.get(bucket // 2, 0) + messages
        if len(self._buckets) > MAX_BUCKETS:
            self._widen()
