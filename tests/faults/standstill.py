"""Processes that stand still, on a machine that is busy: a thread in each of them notes it.

A pause, a lease and a flow end rightly when nobody renews them in time. A test that counts on them
asks whether a process could not, and not the product, which may have its reasons for what it does.
"""

import threading
import time

TICK_S = 0.1
LATE_S = 0.5
"""By how much a tick is late that is noted; a pause that is renewed would last 0.9 s longer."""
MARK = "this process stood still for"


class StandstillWatch:
    """Calls `note` with the seconds of each standstill of this process, from a thread."""

    def __init__(self, note):
        self._note = note
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def close(self):
        self._is_closing.set()
        self._thread.join()

    def _run(self):
        ticked_at = time.monotonic()
        while not self._is_closing.wait(TICK_S):
            now = time.monotonic()
            if (late_s := now - ticked_at - TICK_S) >= LATE_S:
                self._note(late_s)
            ticked_at = now
