"""Which calls take messages from a consumer: a run does so alone, to keep each key's order."""

from typing import Self


class WaitingCalls:
    """The calls of one kind that are under way; several may be.

    Args:
        uses: those of the consumer.
        name: of the kind, for the errors.
    """

    def __init__(self, uses: "HandoutUses", name: str) -> None:
        self._uses = uses
        self.name = name
        self.count = 0

    def __enter__(self) -> Self:
        if self._uses.has_run:
            raise _refusal(self.name, "run")
        self.count += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.count -= 1


class HandoutUses:
    """The run of a consumer while there is one: `with` takes its place, or raises RuntimeError."""

    def __init__(self) -> None:
        self.has_run = False
        self.iterating = WaitingCalls(self, "async for")
        self.getmany = WaitingCalls(self, "getmany")
        self.batches = WaitingCalls(self, "batches")
        self.get = WaitingCalls(self, "get")

    def __enter__(self) -> Self:
        if self.has_run:
            raise _refusal("run", "run")
        for each in (self.iterating, self.getmany, self.batches, self.get):
            if each.count:
                raise _refusal("run", each.name)
        self.has_run = True
        return self

    def __exit__(self, *_: object) -> None:
        self.has_run = False


def _refusal(wanted: str, under_way: str) -> RuntimeError:
    return RuntimeError(
        f"{wanted}: the consumer hands out messages to {under_way}, which has not ended; wait for "
        "its end or cancel it, or use another consumer; for several messages at once: "
        "run(callback, concurrency=N)"
    )
