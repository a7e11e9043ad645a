"""The clock that leases are measured on: it also runs while the machine sleeps."""

import time


def boot_time() -> float:
    """Return seconds since the machine started, sleep included; comparable on one machine only."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
