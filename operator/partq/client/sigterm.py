"""SIGTERM for consumers: all of a process leave together.

One event loop has one handler per signal, so consumers of the same loop share it. An application
that handles SIGTERM itself is left alone; it calls `Consumer.leave`.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

_on_term: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = (
    WeakKeyDictionary()
)


def add(callback: Callable[[], None]) -> bool:
    """Call `callback` on SIGTERM; False when the application handles the signal itself."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return False
    callbacks = _on_term.get(loop)
    if callbacks is None:
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return False
        callbacks = _on_term[loop] = []
        loop.add_signal_handler(signal.SIGTERM, _call_all, callbacks)
    if callback not in callbacks:
        callbacks.append(callback)
    return True


def remove(callback: Callable[[], None]) -> None:
    """Forget `callback`; the last one gives the signal its default effect back."""
    loop = asyncio.get_running_loop()
    callbacks = _on_term.get(loop, [])
    if callback in callbacks:
        callbacks.remove(callback)
        if not callbacks:
            del _on_term[loop]
            loop.remove_signal_handler(signal.SIGTERM)


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    for callback in tuple(callbacks):
        callback()
