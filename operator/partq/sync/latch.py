"""A wait that a signal handler may interrupt anywhere."""

import threading


class Latch:
    """Is closed until a thread opens it; one other thread at a time waits for that.

    `threading.Event` and `concurrent.futures.Future` hold a lock of Python while they begin and end
    a wait. A signal handler that raises there leaves it held, or released twice: every later call
    waits without end, that of the event loop included. Here the only lock is the one that is waited
    for. The interpreter acquires it or raises, and once it is open nobody acquires it again.
    """

    def __init__(self) -> None:
        self._is_open = False
        self._closed = threading.Lock()
        self._closed.acquire()

    @property
    def is_open(self) -> bool:
        """Whether waiting returns at once."""
        return self._is_open

    def open(self) -> None:
        """Let the waiting thread go on, and those that come later; only once."""
        self._is_open = True
        self._closed.release()

    def wait(self) -> None:
        """Wait until it is open."""
        if not self._is_open:
            self._closed.acquire()
