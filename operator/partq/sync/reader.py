"""A reader whose calls block, for threads and code that is not asynchronous."""

import asyncio
from collections.abc import Iterator
from typing import Any, Self

from partq.client.arguments import MAX_TIME_S, check_range
from partq.client.browser import Browsed
from partq.client.log_reader import LogPosition
from partq.client.reader import Reader, ReadMessage
from partq.client.readers.starts import Start
from partq.core.model import PartitionId
from partq.sync.client import SyncClient


class SyncReader(SyncClient[Reader]):
    """A `partq.Reader` for code that is not asynchronous; any thread may call it.

    ```python
    from partq.sync import Reader

    with Reader("http://127.0.0.1:7411", queue="orders", token=token) as reader:
        for each in reader.messages(timeout_s=10):  # without a time: for each in reader
            print(each.partition, each.offset, each.message)
    ```

    A message that an interrupted call had taken is returned by the next call.

    Args:
        url: as of `partq.Reader`.
        queue: as of `partq.Reader`.
        options: the other arguments of `partq.Reader`, by the same names.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    def __init__(self, url: str, queue: str, **options: Any) -> None:
        super().__init__(Reader(url, queue, **options), "the reader")

    def __iter__(self) -> Self:
        """Iterate over messages without an end."""
        return self

    def __next__(self) -> Browsed:
        """Wait for the next message; raises as iterating over a `partq.Reader`."""
        made = self._portal.handout(self._inner.read_next, self._inner.put_back)
        try:
            return made.result().message
        except BaseException:
            made.interrupt()
            raise

    def messages(self, *, timeout_s: float) -> Iterator[Browsed]:
        """Iterate over messages until none has come for `timeout_s` seconds, 0 to 86,400.

        Raises:
            SettingsError: `timeout_s` is out of range.
            PartqError: as iterating.
        """
        check_range("timeout_s", timeout_s, 0, MAX_TIME_S)

        async def read() -> list[ReadMessage]:
            try:
                async with asyncio.timeout(timeout_s):
                    return [await self._inner.read_next()]
            except TimeoutError:
                return []

        def unread(found: list[ReadMessage]) -> None:
            for each in found:
                self._inner.put_back(each)

        while True:
            made = self._portal.handout(read, unread)
            try:
                found = made.result()
            except BaseException:
                made.interrupt()
                raise
            if not found:
                return
            yield found[0].message

    def positions(self) -> dict[PartitionId, LogPosition]:
        """Return the place of the next message in each partition, as `partq.Reader.positions`."""
        return self._portal.make(self._inner.positions)

    def seek(self, where: Start) -> None:
        """Go on at another place, as `partq.Reader.seek`."""
        self._portal.run(lambda: self._inner.seek(where))
