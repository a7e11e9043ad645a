"""Processes that stand still, on a machine that is busy: a thread in each of them notes it.

A pause, a lease and a flow end rightly when nobody renews them in time. A test that counts on them
asks whether a process could not, and not the product, which may have its reasons for what it does.
"""

import functools
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
        is_closing, ticked_at = False, time.monotonic()
        while not is_closing:
            is_closing = self._is_closing.wait(TICK_S)
            now = time.monotonic()
            if (late_s := now - ticked_at - TICK_S) >= LATE_S:
                self._note(late_s)
            ticked_at = now


def repeated_if_still(test):
    """Have a test with members in this process begin again where it fails and they stood still.

    Their flows are lost then, and rightly: what is asserted of the others holds only without that.
    The test leaves its members when it fails, and starts from any state that it may leave behind.
    """

    @functools.wraps(test)
    async def run(*args, **kwargs):
        while True:
            standstills = []
            watch = StandstillWatch(standstills.append).start()
            try:
                return await test(*args, **kwargs)
            except AssertionError:
                watch.close()
                if not standstills:
                    raise
            finally:
                watch.close()

    return run
