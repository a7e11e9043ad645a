"""Why an event loop stands still, its own code or a lack of CPU, and what its user can do."""

from enum import Enum, auto

WARN_S = 3.0
"""A loop that stands still for this long is warned of: without `heartbeat.py`, its flow would be
lost."""
MIN_SHARE = 0.5
"""For which part of the time the process must have stood still, or had CPU, to be the cause."""


class StallCause(Enum):
    """What keeps an event loop from running."""

    BLOCKED = auto()
    """Its own code; other threads run."""
    INTERPRETER_HELD = auto()
    """Its own code, which computes and lets no other thread run."""
    STARVED = auto()
    """The whole process does not run."""


_NO_CPU = "as has the whole process: it got hardly any CPU"
_ADVICE = {
    StallCause.BLOCKED: "Let run(callback, in_thread=True) or asyncio.to_thread do what blocks",
    StallCause.INTERPRETER_HELD: (
        "It computes and lets no thread run: let a separate process do it"
    ),
    StallCause.STARVED: (
        "No handler is to blame: the machine is busy, the CPU limit is low, or the process was "
        "suspended"
    ),
}


def warning_of(cause: StallCause, *, loop: str, stalled_s: float, where: str, kept_s: float) -> str:
    """Return what the log says of a loop that stands still, and what its user can do.

    `where`: what the loop's thread is doing. `kept_s`: for how long its partitions are kept.
    """
    state = _NO_CPU if cause is StallCause.STARVED else where
    return (
        f"{loop} has stood still for {stalled_s:.1f} s, {state}: no message is handed out and no "
        f"ack leaves meanwhile; its partitions are kept for {kept_s:g} s (max_processing_s). "
        f"{_ADVICE[cause]}"
    )


class StallWatch:
    """Compares how long a loop has stood still with how late the thread that watches it is itself.

    A thread that wakes up in time has the CPU that it needs, so the loop's own code is the cause.
    One that wakes up late says that no thread ran. The CPU time of the process tells whether one of
    them computed meanwhile.

    Args:
        gap_s: for how long the thread sleeps between two looks.
        now: seconds of a clock that never goes back.
        cpu_s: CPU time of the process so far.
    """

    def __init__(self, *, gap_s: float, now: float, cpu_s: float) -> None:
        self._gap_s = gap_s
        self._looked_at = now
        self._cpu_s = cpu_s
        self._late_s = 0.0

    def runs(self, now: float, cpu_s: float) -> None:
        """Note a look at a loop that runs."""
        self._looked_at, self._cpu_s, self._late_s = now, cpu_s, 0.0

    def stands(
        self, now: float, cpu_s: float, stalled_s: float, *, least_s: float
    ) -> StallCause | None:
        """Note a look at a loop that has stood still for `stalled_s`; return why.

        None: not yet for `least_s` for one cause.
        """
        late_s = max(0.0, now - self._looked_at - self._gap_s)
        self._looked_at = now
        self._late_s = min(self._late_s + late_s, stalled_s)
        if stalled_s - self._late_s >= least_s:
            return StallCause.BLOCKED
        if stalled_s < least_s or self._late_s < stalled_s * MIN_SHARE:
            return None
        if cpu_s - self._cpu_s >= self._late_s * MIN_SHARE:
            return StallCause.INTERPRETER_HELD
        return StallCause.STARVED
