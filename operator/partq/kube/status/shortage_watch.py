"""How long brokers may take to start, or to be replaced, before that is reported."""

from dataclasses import replace

from partq.coordinator.view import QueueView
from partq.kube.status.facts import QueueFacts

START_S = 30.0


class ShortageWatch:
    """Knows since when the brokers of a queue are fewer than its spec says. Any clock will do."""

    def __init__(self, now: float) -> None:
        self._began_at = now
        self._has_served = False
        """Every partition had a broker once."""
        self._short_since: float | None = None

    def note(self, view: QueueView) -> None:
        """Take note of a look at the brokers."""
        self._has_served |= len(view.owners) == len(view.partitions)

    def judge(self, facts: QueueFacts, *, has_served: bool, now: float) -> QueueFacts:
        """Say whether brokers have had the time to start; `has_served`: as the status says."""
        self._has_served |= has_served
        if facts.ready_brokers >= facts.desired_brokers:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        return replace(
            facts,
            is_starting=not self._has_served and now - self._began_at < START_S,
            is_short=self._short_since is not None and now - self._short_since >= START_S,
        )
