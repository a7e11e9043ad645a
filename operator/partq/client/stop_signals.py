"""SIGTERM and Ctrl-C for consumers: all of a process leave together.

One event loop has one handler per signal, so consumers of the same loop share it. An application
that handles a signal itself is left alone; it calls `Consumer.leave`. A second Ctrl-C interrupts,
as it does without partq.
"""

import asyncio
import functools
import signal
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_Handler = Any
"""What `signal.getsignal` returns."""


class _Shared:
    """What one event loop calls for the signals, and what was there before."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.before: dict[signal.Signals, _Handler] = {}

    def take(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle each signal that the application leaves alone."""
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if _is_default(number, handler):
                self.before[number] = handler
                loop.add_signal_handler(number, self._call_all, loop, number)

    def give_back(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        """Give a signal the effect back that it had."""
        before = self.before.pop(number, None)
        if before is not None:
            loop.remove_signal_handler(number)
            signal.signal(number, before)

    def _call_all(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        if number is signal.SIGINT:
            self.give_back(loop, number)  # the next one interrupts
        for callback in tuple(self.callbacks):
            callback()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


def add(callback: Callable[[], None]) -> bool:
    """Call `callback` on SIGTERM and Ctrl-C; False when the application handles both itself."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return False
    shared = _shared.get(loop)
    if shared is None:
        shared = _Shared()
        shared.take(loop)
        if not shared.before:
            return False
        _shared[loop] = shared
    if callback not in shared.callbacks:
        shared.callbacks.append(callback)
    return True


def remove(callback: Callable[[], None]) -> None:
    """Forget `callback`; the last one gives the signals the effect back that they had."""
    loop = asyncio.get_running_loop()
    shared = _shared.get(loop)
    if shared is None or callback not in shared.callbacks:
        return
    shared.callbacks.remove(callback)
    if not shared.callbacks:
        del _shared[loop]
        for number in SIGNALS:
            shared.give_back(loop, number)


def _is_default(number: signal.Signals, handler: _Handler) -> bool:
    if number is signal.SIGTERM:
        return handler is signal.SIG_DFL
    # `asyncio.run` puts a method of its runner in the place of Python's own handler.
    is_runner_s = isinstance(handler, functools.partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )
    return handler is signal.default_int_handler or is_runner_s
