"""Calling interceptors of an application: whatever one does, messages go on."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from partq.errors import SettingsError
from partq.excerpts import represented

log = logging.getLogger("partq.client")

T = TypeVar("T")
K = TypeVar("K")


def checked_interceptors(given: object, kind: type[K]) -> tuple[K, ...]:
    """Return the interceptors that a client is made with.

    Raises:
        SettingsError: it is something else than a list, or one of its items is.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SettingsError(
            f"interceptors: got {type(given).__name__}, expected a list of {kind.__name__}"
        )
    for number, each in enumerate(given):
        if not isinstance(each, kind):
            got = f"the class {each.__name__}" if isinstance(each, type) else type(each).__name__
            raise SettingsError(
                f"interceptors[{number}]: got {got}, expected an object of a class that is derived "
                f"from {kind.__name__}"
            )
    return tuple(given)


class InterceptorCalls:
    """Makes calls that cannot fail: the log tells the first failure of each method, once."""

    def __init__(self) -> None:
        self._logged: set[tuple[int, str]] = set()

    def call(self, interceptor: object, name: str, call: Callable[[], T], instead: T) -> T:
        """Return what a call of an interceptor returns; `instead` when it raises.

        `name`: of its method, for the log.
        """
        try:
            return call()
        # No task is cancelled inside a plain call: it read the result of something cancelled.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the application's
            self._log_once(interceptor, name, error)
            return instead

    def _log_once(self, interceptor: object, name: str, error: BaseException) -> None:
        failed = (id(interceptor), name)
        if failed not in self._logged:
            self._logged.add(failed)
            log.error(
                "%s of the interceptor %s has failed; messages continue without it, and later "
                "failures of it are not logged",
                *(name, represented(interceptor)),
                exc_info=error,
            )
