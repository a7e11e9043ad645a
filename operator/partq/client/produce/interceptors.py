"""What an application hears and changes of the messages that it publishes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from partq.client.hooks.interceptor_calls import InterceptorCalls
from partq.client.produce.results import MessageResult, Position, position_of
from partq.core.model import PartitionId
from partq.errors import PartqError
from partq.wire.batch import Message


class ProducerInterceptor:
    """Base of interceptors of a `Producer`: override the methods that you need.

    They are called in the event loop, in the order of the list, and must not block. What one raises
    is logged once, and the message continues as if it had not been called.
    """

    def on_send(self, queue: str, message: Message) -> Message:
        """Return the message to publish: this one, or another. Called as it is given to a send.

        Its value is as the application gave it, before a `value_serializer`. A message that is
        changed in place changes what the application holds: return a new one.
        """
        return message

    def on_send_result(
        self,
        queue: str,
        message: Message,
        position: Position | None,
        error: BaseException | None,
    ) -> None:
        """Learn what has become of a message, once for each `on_send`.

        Args:
            queue: that it was published to.
            message: as the last `on_send` returned it.
            position: where it is stored; its offset is -1 for a duplicate whose place is forgotten.
                None: it failed.
            error: None, or why it failed, also when the call that sends raises it.
        """


class ProducerInterceptors:
    """The interceptors of one producer."""

    def __init__(self, queue: str, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._queue = queue
        self._interceptors = interceptors
        self._calls = InterceptorCalls()

    def sent(self, message: Message) -> Message:
        """Return what is published in the place of a message."""
        for each in self._interceptors:
            message = self._calls.call(
                each, "on_send", partial(self._on_send, each, message), message
            )
        return message

    def _on_send(self, interceptor: ProducerInterceptor, message: Message) -> Message:
        returned: object = interceptor.on_send(self._queue, message)
        if type(returned) is not Message:
            raise TypeError(f"on_send: returned {type(returned).__name__}, expected partq.Message")
        return returned

    def resolved(
        self, message: Message, position: Position | None, error: BaseException | None
    ) -> None:
        """Call `on_send_result` with what has become of a message."""
        for each in self._interceptors:
            self._calls.call(
                each,
                "on_send_result",
                partial(each.on_send_result, self._queue, message, position, error),
                None,
            )

    @contextmanager
    def notifying_failure(self, messages: Sequence[Message]) -> Iterator[None]:
        """Call `on_send_result` of each message if the block, which sends them, raises."""
        try:
            yield
        except BaseException as error:
            for message in messages:
                self.resolved(message, None, error)
            raise


class InterceptedResult:
    """A result that interceptors learn, too.

    Args:
        result: of the messages, for their caller.
        interceptors: that learn it.
        messages: the same, by their partition, each in its order.
    """

    def __init__(
        self,
        result: MessageResult,
        interceptors: ProducerInterceptors,
        messages: Mapping[PartitionId, Sequence[Message]],
    ) -> None:
        self._result = result
        self._interceptors = interceptors
        self._messages = {partition: iter(each) for partition, each in messages.items()}

    def stored(self, partition: PartitionId, offset: int, count: int) -> None:
        """Learn that the next messages are stored."""
        self._result.stored(partition, offset, count)
        for step, message in zip(range(count), self._messages.get(partition, ()), strict=False):
            place = position_of(partition, offset + step if offset >= 0 else offset)
            self._interceptors.resolved(message, place, None)

    def failed(self, partition: PartitionId, error: PartqError, count: int) -> None:
        """Learn that the next messages have failed."""
        self._result.failed(partition, error, count)
        for _, message in zip(range(count), self._messages.get(partition, ()), strict=False):
            self._interceptors.resolved(message, None, error)

    def divided(
        self, partition: PartitionId, destinations: Sequence[PartitionId]
    ) -> Mapping[PartitionId, MessageResult]:
        """Return a result for each destination, which interceptors learn, too."""
        parts = self._result.divided(partition, destinations)
        messages: dict[PartitionId, list[Message]] = {each: [] for each in parts}
        for destination, message in zip(destinations, self._messages[partition], strict=False):
            messages[destination].append(message)
        return {
            each: InterceptedResult(part, self._interceptors, {each: messages[each]})
            for each, part in parts.items()
        }


def intercepted(
    result: MessageResult,
    interceptors: ProducerInterceptors | None,
    messages: Mapping[PartitionId, Sequence[Message]],
) -> MessageResult:
    """Return a result that interceptors, if there are any, learn, too."""
    return result if interceptors is None else InterceptedResult(result, interceptors, messages)
