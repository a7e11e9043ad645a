"""What an application hears of the messages that a reader returns."""

from collections.abc import Sequence
from functools import partial

from partq.client.browser import Browsed
from partq.client.hooks.interceptor_calls import InterceptorCalls


class ReaderInterceptor:
    """Base of interceptors of a `Reader`.

    They are called in the order of the list, in the event loop, and must not block. What one raises
    is logged once, and the message continues as if it had not been called.
    """

    def on_read(self, message: Browsed) -> None:
        """Learn of a message that is returned now; its `message` is None if it is undecodable.

        A message that is read again after a seek, or after an interrupted call of a blocking
        reader, is told again.
        """


class ReaderInterceptors:
    """The interceptors of one reader."""

    def __init__(self, interceptors: Sequence[ReaderInterceptor]) -> None:
        self._interceptors = interceptors
        self._calls = InterceptorCalls()

    def read(self, message: Browsed) -> None:
        """Tell of a message that is returned."""
        for each in self._interceptors:
            self._calls.call(each, "on_read", partial(each.on_read, message), None)
