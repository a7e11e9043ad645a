"""What runs the statements of the fence: cursors of drivers, and connections of frameworks.

Each is known by what it has, so that none of the drivers is imported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from partq.errors import BadRequestError

Values = tuple[int | str | bytes, ...]


class DriverObject(Protocol):
    """A cursor or connection: what it has is seen when it is used, as drivers share no types."""

    def __getattr__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class StatementRunner:
    """Runs statements on a connection, and says what is known of it."""

    execute: Callable[[str, Values], object]
    """Runs a statement; what it returns may have to be awaited."""
    written: Callable[[Any], int]
    """Takes what `execute` returned, awaited, and returns how many rows were written."""
    paramstyle: str | None
    """None: the connection does not say."""
    dialect: str | None
    is_autocommit: bool
    """Whether each statement commits; False too where the connection does not say."""


def runner_of(given: object) -> StatementRunner:
    """Tell what kind of connection it is.

    Raises:
        BadRequestError: it is of no kind that a fence knows.
    """
    connection = cast(DriverObject, given)
    if hasattr(connection, "exec_driver_sql"):
        return _of_sqlalchemy(connection)
    if hasattr(connection, "is_in_transaction"):
        return StatementRunner(
            execute=lambda statement, values: connection.execute(statement, *values),
            written=_rows_of_tag,
            paramstyle="numeric_dollar",
            dialect="postgresql",
            is_autocommit=not connection.is_in_transaction(),
        )
    if not (hasattr(connection, "execute") and hasattr(connection, "rowcount")):
        raise BadRequestError(
            f"fence: got {type(connection).__name__}; expected a cursor of DB-API 2 or of Django, "
            "or a connection of SQLAlchemy or asyncpg"
        )
    if hasattr(connection, "db") and hasattr(connection.db, "in_atomic_block"):
        django = connection.db
        return StatementRunner(
            execute=connection.execute,
            written=lambda _: int(connection.rowcount),
            paramstyle="format",
            dialect=django.vendor,
            is_autocommit=not django.in_atomic_block and django.get_autocommit(),
        )
    return StatementRunner(
        execute=connection.execute,
        written=lambda _: int(connection.rowcount),
        paramstyle=None,
        dialect=None,
        is_autocommit=hasattr(connection, "connection")
        and _commits_each_statement(connection.connection),
    )


def _of_sqlalchemy(connection: DriverObject) -> StatementRunner:
    dialect = connection.dialect
    # An AsyncConnection has one that blocks inside.
    blocking = connection.sync_connection if hasattr(connection, "sync_connection") else connection
    level = blocking.get_execution_options().get("isolation_level")
    # An engine that was made with a level keeps it where no public name leads.
    level = level or getattr(dialect, "_on_connect_isolation_level", None)
    return StatementRunner(
        execute=connection.exec_driver_sql,
        written=lambda result: int(result.rowcount),
        paramstyle=dialect.paramstyle,
        dialect=dialect.name,
        is_autocommit=level == "AUTOCOMMIT",
    )


def _rows_of_tag(tag: str) -> int:
    """Return the number at the end of a command tag of PostgreSQL, such as `INSERT 0 1`."""
    number = tag.rpartition(" ")[2]
    return int(number) if number.isdigit() else 0


def _commits_each_statement(connection: DriverObject) -> bool:
    """Say whether a connection of DB-API commits after each statement, if its driver tells."""
    if hasattr(connection, "isolation_level") and hasattr(connection, "in_transaction"):  # sqlite3
        is_plain = connection.isolation_level is None
        is_autocommit = is_plain or getattr(connection, "autocommit", None) is True
        return is_autocommit and not connection.in_transaction
    if hasattr(connection, "pgconn"):  # psycopg 3
        return bool(connection.autocommit) and connection.info.transaction_status == 0
    if hasattr(connection, "server_status"):  # PyMySQL, and what is made of it
        is_in_transaction = connection.server_status & 1
        return bool(connection.get_autocommit()) and not is_in_transaction
    return False
