"""Signals while a command starts and ends, when there is nothing to be left in order."""

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_before: dict[int, signal.Handlers | object] = {}
_is_main = False


def note_process() -> None:
    """Note that the process is that of the command: it ends with the command."""
    global _is_main
    _is_main = True


def has_process() -> bool:
    """Say whether the process ends with the command; in a test it does not."""
    return _is_main


def end_at_once() -> None:
    """Let SIGINT and SIGTERM end the process at once, with the status that shells have for it.

    Python's own answer to SIGINT is a trace of what it was importing, and the kernel's answer to
    SIGTERM is nothing at all for the first process of a container. A signal that the parent has
    set to be ignored, as scripts do for what they start with `&`, stays ignored.
    """
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            _before[number] = handler
            signal.signal(number, _end)


def raise_again() -> None:
    """Give the signals the effect back that they had before `end_at_once`."""
    while _before:
        number, handler = _before.popitem()
        signal.signal(number, handler)  # type: ignore[arg-type]  # it was the handler


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)
