"""What an application hears of the messages that are handed to it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from types import TracebackType

from partq.client.consume.deliveries import Batch, Delivery
from partq.client.hooks.interceptor_calls import InterceptorCalls


class ConsumerInterceptor:
    """Base of interceptors of a `Consumer`: override the methods that you need.

    They are called in the order of the list, and must not block. All but `processing` are called in
    the event loop. What one raises is logged once, and the message continues as if it had not been
    called.
    """

    def on_consume(self, message: Delivery) -> None:
        """Learn of a message that is handed out now; of a batch, of each message.

        A message that a cancelled or interrupted call has given back is handed out again.
        """

    def on_ack(self, done: Delivery | Batch, error: BaseException | None) -> None:
        """Learn of the answer to an ack; to a cumulative one, with what the call was given.

        `error`: why it was refused; None: it is stored.
        """

    def on_nack(self, failed: Delivery | Batch, error: BaseException | None) -> None:
        """Learn of the answer to a nack or `dead_letter`; `error` is as of `on_ack`."""

    def processing(self, message: Delivery) -> AbstractContextManager[object]:
        """Return the context in which `run` calls its callback with a message.

        With `in_thread` it is entered and left in the thread. It learns what the callback raises,
        and cannot suppress it. Loops that call the handler themselves may enter it, too.
        """
        return nullcontext()


class ConsumerInterceptors:
    """The interceptors of one consumer."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = interceptors
        self._calls = InterceptorCalls()

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def consumed(self, messages: Sequence[Delivery]) -> None:
        """Tell of messages that are handed out."""
        for message in messages:
            for each in self._interceptors:
                self._calls.call(each, "on_consume", partial(each.on_consume, message), None)

    def acked(self, done: Delivery | Batch, error: BaseException | None) -> None:
        """Tell of the answer to an ack."""
        for each in self._interceptors:
            self._calls.call(each, "on_ack", partial(each.on_ack, done, error), None)

    def nacked(self, failed: Delivery | Batch, error: BaseException | None) -> None:
        """Tell of the answer to a nack."""
        for each in self._interceptors:
            self._calls.call(each, "on_nack", partial(each.on_nack, failed, error), None)

    @contextmanager
    def processing(self, message: Delivery) -> Iterator[None]:
        """Enter what each interceptor puts around the processing of a message."""
        with ExitStack() as stack:
            for each in self._interceptors:
                stack.enter_context(_Guarded(each, message, self._calls))
            yield


class _Guarded:
    """A context of an interceptor, which neither fails nor suppresses anything."""

    def __init__(
        self, interceptor: ConsumerInterceptor, message: Delivery, calls: InterceptorCalls
    ) -> None:
        self._interceptor = interceptor
        self._message = message
        self._calls = calls
        self._entered: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        self._call(self._enter)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered = self._entered
        if entered is not None:
            self._call(lambda: entered.__exit__(kind, error, traceback))

    def _enter(self) -> None:
        context = self._interceptor.processing(self._message)
        context.__enter__()
        self._entered = context

    def _call(self, call: Callable[[], object]) -> None:
        self._calls.call(self._interceptor, "processing", call, None)
