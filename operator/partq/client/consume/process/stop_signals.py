"""SIGTERM and Ctrl-C for consumers: all of a process leave together.

One event loop has one handler per signal, so consumers of the same loop share it. An application
that handles a signal itself is left alone; it calls `Consumer.leave`. A second Ctrl-C raises
KeyboardInterrupt where the main thread is, also in a handler that blocks the event loop.
"""

import asyncio
import functools
import signal
import threading
from collections.abc import Callable
from types import FrameType
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
        self.is_interrupted = False
        self._ctrl_c_count = 0

    def handle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle each signal that the application leaves alone."""
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if _is_default(number, handler):
                self.before[number] = handler
                loop.add_signal_handler(number, self._call_all)
        if signal.SIGINT in self.before:
            # The loop hears of the signal by a descriptor. A loop that stands still hears nothing:
            # this is called in the midst of what blocks it.
            signal.signal(signal.SIGINT, self._count)

    def give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the signals the effect back that they had."""
        for number, before in self.before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler if _has_ended(before) else before)
        self.before.clear()

    def _call_all(self) -> None:
        for callback in tuple(self.callbacks):
            callback()

    def _count(self, number: int, frame: FrameType | None) -> None:
        self._ctrl_c_count += 1
        if self._ctrl_c_count > 1:
            self.is_interrupted = True
            raise KeyboardInterrupt


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


def add(callback: Callable[[], None]) -> bool:
    """Call `callback` on SIGTERM and Ctrl-C; False when the application handles both itself."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return False
    shared = _shared.get(loop)
    if shared is None:
        shared = _Shared()
        shared.handle(loop)
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
        shared.give_back(loop)


def is_interrupted() -> bool:
    """Say whether a second Ctrl-C ends the process: there is no time to wait for anybody."""
    shared = _shared.get(asyncio.get_running_loop())
    return shared is not None and shared.is_interrupted


def _is_default(number: signal.Signals, handler: object) -> bool:
    if number is signal.SIGTERM:
        return handler is signal.SIG_DFL
    return handler is signal.default_int_handler or _is_runner_s(handler)


def _is_runner_s(handler: object) -> bool:
    """Say whether `asyncio.run` has put it in the place of Python's own handler."""
    return isinstance(handler, functools.partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )


def _has_ended(handler: _Handler) -> bool:
    """Say whether it is of an earlier `Runner.run`: nobody would take it away again."""
    if not _is_runner_s(handler):
        return False
    main_task: asyncio.Task[object] = handler.keywords["main_task"]
    return main_task.done()
