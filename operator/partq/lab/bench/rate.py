"""Single messages at a steady rate, each at its own instant."""

from collections.abc import Callable
from time import monotonic_ns, sleep

_NS = 1_000_000_000


def pace(count: int, per_s: int, send: Callable[[int], object]) -> None:
    """Call `send(due_ns)` `count` times, `per_s` times a second; blocks until the last one.

    A call that comes late is told when it was due: a latency counted from then hides no stall.
    For a separate thread: an event loop's timers are a millisecond wide, as much as the latency
    that is to be measured.
    """
    first_ns = monotonic_ns()
    for index in range(count):
        due_ns = first_ns + index * _NS // per_s
        if (early_ns := due_ns - monotonic_ns()) > 0:
            sleep(early_ns / _NS)
        send(due_ns)
