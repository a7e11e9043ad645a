"""SIGTERM for commands that have child processes and files: it ends them as Ctrl-C does."""

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

import click

P = ParamSpec("P")
T = TypeVar("T")

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit status after SIGTERM, as shells have it."""


def ends_in_order(command: Callable[P, T]) -> Callable[P, T]:
    """Let SIGTERM interrupt a command, so that it stops what it started and removes its files.

    Exit status 143 then. A SIGTERM that is handled or ignored already keeps its effect.
    """

    @functools.wraps(command)
    def ending(*arguments: P.args, **options: P.kwargs) -> T:
        with _interrupted_by_sigterm():
            return command(*arguments, **options)

    return ending


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    is_terminated = False

    def interrupt(*_: object) -> None:
        nonlocal is_terminated
        is_terminated = True
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)  # to its present handler, such as an event loop
        else:
            raise KeyboardInterrupt  # Ctrl-C is ignored, as in what a script starts with `&`

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if is_terminated:
            raise click.exceptions.Exit(TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
