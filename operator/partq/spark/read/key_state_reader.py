"""Reads the states of keys of a group, for `spark.read` with the option `states`."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from partq.client.transport.layout import QueueLayout
from partq.client.transport.retries import RetryWindow
from partq.client.transport.session import Session, UnreachedError
from partq.errors import BadRequestError, UnavailableError
from partq.path_names import quoted
from partq.spark.connection import CONNECTION_OPTIONS, ClientOptions, connection_of
from partq.spark.connectivity import find_brokers
from partq.spark.errors import short_errors
from partq.spark.read.options import Given
from partq.spark.read.schema import arrow_schema
from partq.wire.calls.answers import UNSET, LayoutAnswer
from partq.wire.key_states import KeyStatesPage, decode_state

STATE_OPTIONS = (*CONNECTION_OPTIONS, "states", "group")
COLUMNS = StructType(
    [
        StructField(name, kind, nullable=False)
        for name, kind in (
            ("queue", StringType()),
            ("group", StringType()),
            ("partition", StringType()),
            ("key", StringType()),
            ("state", BinaryType()),
        )
    ]
)
MAX_TASKS = 64
"""A task reads some partitions one after the other: a partition has few states, and small ones."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateOptions:
    """A read of states as it was asked for."""

    connection: ClientOptions
    group: str


@dataclass
class StatePartitions(InputPartition):
    """What one task reads."""

    names: tuple[str, ...]


def state_options(given: Mapping[str, str]) -> StateOptions:
    """Read the options of a read of states; their names are of any case.

    Raises:
        BadRequestError: an option that there is not, or that is unusable; or no group is named.
    """
    group = Given(given, STATE_OPTIONS, of="reads of states").text("group")
    if group is None:
        raise BadRequestError("option group is missing; states of keys are those of a group")
    return StateOptions(connection_of(given), group)


def check_state_schema(schema: StructType) -> None:
    """Check a schema that the reader of a table has given: it may leave columns out.

    Raises:
        BadRequestError: a column that there is not, or one of another type.
    """
    kinds = {field.name: field.dataType for field in COLUMNS.fields}
    for field in schema.fields:
        if kinds.get(field.name) != field.dataType:
            raise BadRequestError(
                f"schema: got column {field.name!r} as {field.dataType.simpleString()}; of states "
                f"there are {', '.join(f'{n} {k.simpleString()}' for n, k in kinds.items())}"
            )


class KeyStateReader(DataSourceReader):
    """Covers all keys that have a state in a group, as they are stored when a task reads them."""

    def __init__(self, options: StateOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads; raises what is wrong with the queue, group or token."""
        with short_errors():
            find_brokers(self._options.connection)
            with _Pages(self._options) as pages:
                names = pages.partitions()
                pages.page(names[0], "0")  # has the group and the token judged
        return [StatePartitions(tuple(names[at::MAX_TASKS])) for at in range(MAX_TASKS)][
            : len(names)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the states of the partitions of one task."""
        if not isinstance(partition, StatePartitions):
            return
        with short_errors(), _Pages(self._options) as pages:
            for name in partition.names:
                for states in pages.states(name):
                    yield self._batch(name, states)

    def _batch(self, partition: str, states: Mapping[str, bytes]) -> pa.RecordBatch:
        columns: dict[str, list[str] | list[bytes]] = {
            "queue": [self._options.connection.queue] * len(states),
            "group": [self._options.group] * len(states),
            "partition": [partition] * len(states),
            "key": list(states),
            "state": list(states.values()),
        }
        wanted = {name: columns[name] for name in self._schema.names}
        return pa.RecordBatch.from_pydict(wanted, schema=arrow_schema(self._schema))


class _Pages:
    """Asks the brokers, from code that is not asynchronous."""

    def __init__(self, options: StateOptions) -> None:
        self._options = options
        self._path = f"/groups/{quoted(options.group, 'group')}/states"
        self._runner = asyncio.Runner()
        self._session = Session(options.connection.options())

    def __enter__(self) -> "_Pages":
        self._runner.run(self._session.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._session.__aexit__())
        finally:
            self._runner.close()

    def partitions(self) -> list[str]:
        """Return the names of the queue's partitions."""
        answer = self._ask("/layout", LayoutAnswer)
        return [str(each) for each in QueueLayout.of(answer).layout.partitions()]

    def page(self, partition: str, after: str) -> KeyStatesPage:
        """Return some of the states of a partition."""
        query = urlencode({"partition": partition, "after": after})
        return self._ask(f"{self._path}?{query}", KeyStatesPage)

    def states(self, partition: str) -> Iterator[dict[str, bytes]]:
        """Yield all states of a partition, some at a time; no key twice."""
        after, seen = "0", set[str]()
        while True:
            page = self.page(partition, after)
            found = {e.key: decode_state(e.state) for e in page.states if e.key not in seen}
            seen.update(found)
            if found:
                yield found
            if page.next is UNSET:
                return
            after = page.next

    def _ask(self, path: str, kind: type[T]) -> T:
        return self._runner.run(self._ask_until_answered(path, kind))

    async def _ask_until_answered(self, path: str, kind: type[T]) -> T:
        """Ask again while nobody serves the partition, for as long as the options say."""
        patience = RetryWindow(self._options.connection.timeout_s)
        while True:
            try:
                return await self._session.ask("GET", path, kind)
            except (UnreachedError, UnavailableError) as error:
                await patience.wait(UnavailableError(error.message))
