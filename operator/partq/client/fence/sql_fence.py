"""Fencing in an SQL database: every message has its effect once, and late writers are refused."""

import re
from collections.abc import Generator
from inspect import isawaitable, iscoroutine
from typing import Final, Protocol

from partq.client.fence.connections import (
    StatementRunner,
    Values,
    runner_of,
)
from partq.client.fence.statements import DIALECTS, PLACEHOLDERS, Statements, statements
from partq.core.model import Token
from partq.errors import BadRequestError, FencedError, SettingsError
from partq.excerpts import excerpt

_TABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")

_NO_TABLE: Final = ("no such table", "does not exist", "doesn't exist")
"""How SQLite, PostgreSQL and MySQL say that a table is missing."""


class FencedMessage(Protocol):
    """What is needed of a message: a `Delivery`."""

    @property
    def key(self) -> str | None:
        """The partition key."""

    @property
    def token(self) -> Token:
        """The right to process it."""

    @property
    def append_broker_epoch(self) -> int:
        """Under which broker epoch it was stored."""


class _Fence:
    """What both fences have: the settings, and the statements of an admission one by one."""

    def __init__(
        self,
        scope: str,
        *,
        paramstyle: str | None = None,
        dialect: str | None = None,
        table: str = "partq_fence",
    ) -> None:
        given = {"scope": scope, "table": table}
        given |= {} if paramstyle is None else {"paramstyle": paramstyle}
        given |= {} if dialect is None else {"dialect": dialect}
        for name, text in given.items():
            if not isinstance(text, str):
                raise SettingsError(f"{name}: got {type(text).__name__}, expected text")
        if not 1 <= len(scope) <= 512:
            raise SettingsError(f"scope: got {len(scope)} characters, expected 1 to 512")
        for name, known in (("paramstyle", PLACEHOLDERS), ("dialect", DIALECTS)):
            if name in given and given[name] not in known:
                raise SettingsError(
                    f"{name}: got {excerpt(repr(given[name]))}, expected one of {', '.join(known)}"
                )
        if not _TABLE_NAME.fullmatch(table):
            raise SettingsError(
                f"table: got {excerpt(table)!r}, expected letters, digits and underscores"
            )
        self._scope = scope
        self._paramstyle = paramstyle
        self._dialect = dialect
        self._table = table

    def _statements(self, runner: StatementRunner) -> Statements:
        """Return the statements for a connection.

        Raises:
            BadRequestError: the connection does not say enough, or is of an unknown database.
        """
        paramstyle = self._paramstyle or runner.paramstyle
        if paramstyle not in PLACEHOLDERS:
            raise BadRequestError(
                f"fence {self._scope}: got the paramstyle {excerpt(repr(paramstyle))}; expected "
                f"one of {', '.join(PLACEHOLDERS)}: for a cursor give that of its driver's module, "
                "such as paramstyle=sqlite3.paramstyle"
            )
        dialect = self._dialect or runner.dialect
        if dialect is not None and dialect not in DIALECTS:
            raise BadRequestError(
                f"fence {self._scope}: got the database {excerpt(repr(dialect))}; expected one of "
                f"{', '.join(DIALECTS)}"
            )
        return statements(dialect, paramstyle, self._table)

    def _admission(
        self, runner: StatementRunner, message: FencedMessage, name: str | None
    ) -> Generator[tuple[str, Values], int, bool]:
        """Yield statements with their values, take the rows that each wrote; return the answer."""
        said = self._statements(runner)
        if not (hasattr(message, "token") and hasattr(message, "append_broker_epoch")):
            raise BadRequestError(
                f"fence {self._scope}: message: got {type(message).__name__}, expected a message "
                "as the consumer has handed it out"
            )
        name = message.key if name is None else name
        if not name or len(name) > 1024:
            raise BadRequestError(
                f"fence {self._scope}: got the name {excerpt(repr(name))}; expected 1 to 1,024 "
                "characters, such as the partition of a message that has no key"
            )
        if runner.is_autocommit:
            raise BadRequestError(
                f"fence {self._scope}: got a connection that commits each statement; expected one "
                "in a transaction, which the effect of the message is written in as well"
            )
        row = self._row(name, has_bytes=said.has_bytes)
        generation, broker_epoch, epoch, offset = message.token
        owner = (generation, broker_epoch, epoch)
        place = (generation, message.append_broker_epoch, offset)
        if said.lock:
            yield said.lock, row
        compared = (*owner, *place) if said.lock else ()
        if (yield said.advance, (*owner, *place, *row, *compared)) == 1:
            return True
        if (yield said.take_over, (*owner, *row, *owner)) == 1:
            return False
        raise FencedError(
            f"fence {self._scope}: {excerpt(repr(name))} belongs to another by now, its token is "
            f"above {generation}.{broker_epoch}.{epoch}; write nothing more of the partition"
        )

    def _explain(self, error: Exception) -> None:
        """Say in a driver's error what to do, if it misses the table."""
        words = str(error).lower()
        if self._table.lower() in words and any(each in words for each in _NO_TABLE):
            error.add_note(
                f"fence {self._scope}: the database has no table {self._table}: call "
                "fence.create(connection) once, and commit"
            )

    def _row(self, name: str, *, has_bytes: bool) -> tuple[str | bytes, str | bytes]:
        """Return the primary key of a name's row."""
        if not has_bytes:
            return self._scope, name
        scope_bytes, name_bytes = self._scope.encode(), name.encode()
        # A server that is not strict cuts off what is too long, and takes two names for one.
        if len(scope_bytes) > 512 or len(name_bytes) > 1024:
            raise BadRequestError(
                f"fence {self._scope}: got {len(scope_bytes)} bytes of scope and {len(name_bytes)} "
                f"of the name {excerpt(repr(name))}; expected at most 512 and 1,024 on MySQL"
            )
        return scope_bytes, name_bytes


class SqlFence(_Fence):
    """Admits each message once, and no writer that another has followed.

    ```python
    fence = SqlFence("orders/workers", paramstyle=sqlite3.paramstyle)
    with database:
        fence.create(database.cursor())  # the table, once

    with database:  # one transaction: the fence and the effect, or neither
        cursor = database.cursor()
        if fence.admits(cursor, message):
            cursor.execute("UPDATE accounts SET cents = cents + ? WHERE id = ?", ...)
    await consumer.ack(message)
    ```

    For PostgreSQL 9.5 or newer, SQLite 3.24 or newer, MySQL 8 and MariaDB 10.11 or newer; through
    cursors of DB-API 2 and of Django, and connections of SQLAlchemy. It keeps one row per name in
    a table.

    Args:
        scope: what the names belong to, such as queue and group; 1 to 512 characters, on MySQL at
            most 512 bytes of UTF-8.
        paramstyle: that of the driver's module: `qmark`, `format`, `pyformat` or `numeric_dollar`.
            None: the connection says it, as Django's and SQLAlchemy's do.
        dialect: `sqlite`, `postgresql`, `mysql` or `mariadb`. None: the connection says it, or it
            is a cursor of PostgreSQL or SQLite; a cursor of MySQL needs it.
        table: where the rows are; letters, digits and underscores, a schema and a dot before them
            if needed.

    Raises:
        SettingsError: one of them cannot be used.
    """

    def create(self, connection: object) -> None:
        """Make the table if it is not there; the caller commits, or MySQL does, at once.

        Raises:
            BadRequestError: the connection is of no kind that the fence knows.
        """
        runner = runner_of(connection)
        self._execute(runner, self._statements(runner).create, ())

    def admits(
        self,
        connection: object,
        message: FencedMessage,
        *,
        name: str | None = None,
    ) -> bool:
        """Say whether the effect of a message is to be written now, in the same transaction.

        False: it was written before; acknowledge the message, continue. After either answer nobody
        who held the partition earlier can write under this name any more, so what is read of it
        from then on stays true until this writer is refused itself. On MySQL that takes a
        transaction that begins with this call: under REPEATABLE READ it reads a snapshot, as old
        as its first SELECT.

        Messages of one name have to be written in the order in which they come: one that is left
        out for a later one is taken for done.

        Args:
            connection: which writes the effect, in an open transaction; of a driver its cursor.
            message: as the consumer handed it out.
            name: what is fenced, 1 to 1,024 characters, on MySQL at most 1,024 bytes of UTF-8;
                None: the message's key.

        Raises:
            FencedError: another has gone on with this name: roll back, write nothing more of the
                partition. The message is redelivered, or was already, elsewhere.
            BadRequestError: there is neither a name nor a key, or it is too long; the connection
                commits each statement, as far as its driver tells, or is of no kind that the fence
                knows. Nothing is written.
        """
        runner = runner_of(connection)
        steps = self._admission(runner, message, name)
        try:
            step = next(steps)
            while True:
                step = steps.send(self._execute(runner, *step))
        except StopIteration as end:
            return bool(end.value)

    def _execute(self, runner: StatementRunner, statement: str, values: Values) -> int:
        try:
            done = runner.execute(statement, values)
        except Exception as error:
            self._explain(error)
            raise
        if isawaitable(done):
            if iscoroutine(done):
                done.close()  # it has not begun, so nothing was written
            raise BadRequestError(
                f"fence {self._scope}: got a connection whose calls are awaited; expected one that "
                "blocks, or AsyncSqlFence instead of SqlFence"
            )
        return runner.written(done)


class AsyncSqlFence(_Fence):
    """Works as `SqlFence`, for connections whose calls are awaited; it takes the same arguments.

    ```python
    fence = AsyncSqlFence("orders/workers")
    await fence.create(connection)  # the table, once

    async with connection.transaction():  # of asyncpg
        if await fence.admits(connection, message):
            await connection.execute("UPDATE accounts SET cents = cents + $1 WHERE id = $2", ...)
    await consumer.ack(message)
    ```

    Through connections of asyncpg and its pools, an `AsyncConnection` of SQLAlchemy, and cursors
    whose `execute` is awaited, as those of psycopg's `AsyncConnection`.
    """

    async def create(self, connection: object) -> None:
        """Make the table if it is not there, as `SqlFence.create` does."""
        runner = runner_of(connection)
        await self._execute(runner, self._statements(runner).create, ())

    async def admits(
        self,
        connection: object,
        message: FencedMessage,
        *,
        name: str | None = None,
    ) -> bool:
        """Say whether the effect of a message is to be written now, as `SqlFence.admits` does.

        After an error, a cancellation among them, roll back.
        """
        runner = runner_of(connection)
        steps = self._admission(runner, message, name)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._execute(runner, *step))
        except StopIteration as end:
            return bool(end.value)

    async def _execute(self, runner: StatementRunner, statement: str, values: Values) -> int:
        done = runner.execute(statement, values)
        if not isawaitable(done):
            # Two tasks of one loop that wait for the lock of one row would wait without end.
            raise BadRequestError(
                f"fence {self._scope}: got a connection whose calls block; expected one whose "
                "calls are awaited, or SqlFence instead of AsyncSqlFence. Roll back"
            )
        try:
            return runner.written(await done)
        except Exception as error:
            self._explain(error)
            raise
