"""The broker's clocks: one for leases, and one that tells whether Redis's can be believed."""

import time


def boot_time() -> float:
    """Return seconds since the machine started, sleep included; comparable on one machine only.

    Leases are measured on it: it also runs while the machine sleeps.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_time() -> float:
    """Return unix seconds by this machine's clock, which may be wrong and may jump.

    For the first look at Redis's clock alone: nothing is counted or ordered by it.
    """
    return time.time()
