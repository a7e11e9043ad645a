"""Fencing in an SQL database: every message has its effect once, and late writers are refused."""

import re
from typing import Any, Final, Protocol

from partq.core.model import Token
from partq.errors import BadRequestError, FencedError, SettingsError
from partq.excerpts import excerpt

PLACEHOLDERS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}
"""What stands for a value, by the `paramstyle` of the driver."""

_TABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS {table} (
  scope VARCHAR(512) NOT NULL,
  name VARCHAR(1024) NOT NULL,
  generation BIGINT NOT NULL,
  broker_epoch BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  done_generation BIGINT NOT NULL,
  done_broker_epoch BIGINT NOT NULL,
  done_offset BIGINT NOT NULL,
  PRIMARY KEY (scope, name)
)
"""

# One statement: it waits for another process that writes the same row meanwhile, the first time
# too, and compares with what that process has left.
_ADVANCE: Final = """
INSERT INTO {table} AS held
  (scope, name, generation, broker_epoch, epoch,
   done_generation, done_broker_epoch, done_offset)
VALUES ({0}, {0}, {0}, {0}, {0}, {0}, {0}, {0})
ON CONFLICT (scope, name) DO UPDATE SET
  generation = excluded.generation,
  broker_epoch = excluded.broker_epoch,
  epoch = excluded.epoch,
  done_generation = excluded.done_generation,
  done_broker_epoch = excluded.done_broker_epoch,
  done_offset = excluded.done_offset
WHERE (held.generation, held.broker_epoch, held.epoch)
   <= (excluded.generation, excluded.broker_epoch, excluded.epoch)
  AND (held.done_generation, held.done_broker_epoch, held.done_offset)
   < (excluded.done_generation, excluded.done_broker_epoch, excluded.done_offset)
"""

# A repeat counts as a sign of life of the new owner: from here on the one before is refused.
_TAKE_OVER: Final = """
UPDATE {table} SET generation = {0}, broker_epoch = {0}, epoch = {0}
WHERE scope = {0} AND name = {0}
  AND (generation, broker_epoch, epoch) <= ({0}, {0}, {0})
"""


class SqlCursor(Protocol):
    """What is needed of a cursor of DB-API 2."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement has written."""

    def execute(self, operation: str, parameters: Any = ..., /) -> Any:
        """Run a statement."""


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


class SqlFence:
    """Admits each message once, and no writer that another has followed.

    ```python
    fence = SqlFence("orders/workers", paramstyle=sqlite3.paramstyle)

    with database:  # one transaction: the fence and the effect, or neither
        cursor = database.cursor()
        if fence.admits(cursor, message):
            cursor.execute("UPDATE accounts SET cents = cents + ? WHERE id = ?", ...)
    await consumer.ack(message)
    ```

    For PostgreSQL 9.5 or newer and SQLite 3.24 or newer. It keeps one row per name in a table.

    Args:
        scope: what the names belong to, such as queue and group; 1 to 512 characters.
        paramstyle: that of the driver's module: `qmark`, `format` or `pyformat`.
        table: where the rows are; letters, digits and underscores, a schema and a dot before them
            if needed.

    Raises:
        SettingsError: one of them cannot be used.
    """

    def __init__(self, scope: str, *, paramstyle: str, table: str = "partq_fence") -> None:
        given = {"scope": scope, "paramstyle": paramstyle, "table": table}
        for name, text in given.items():
            if not isinstance(text, str):
                raise SettingsError(f"{name}: got {type(text).__name__}, expected text")
        if not 1 <= len(scope) <= 512:
            raise SettingsError(f"scope: got {len(scope)} characters, expected 1 to 512")
        if paramstyle not in PLACEHOLDERS:
            raise SettingsError(
                f"paramstyle: got {excerpt(repr(paramstyle))}, expected one of "
                f"{', '.join(PLACEHOLDERS)}"
            )
        if not _TABLE_NAME.fullmatch(table):
            raise SettingsError(
                f"table: got {excerpt(table)!r}, expected letters, digits and underscores"
            )
        self._scope = scope
        placeholder = PLACEHOLDERS[paramstyle]
        self._create, self._advance, self._take_over = (
            statement.format(placeholder, table=table)
            for statement in (_CREATE, _ADVANCE, _TAKE_OVER)
        )

    def create(self, cursor: SqlCursor) -> None:
        """Make the table if it is not there; the caller commits."""
        cursor.execute(self._create)

    def admits(self, cursor: SqlCursor, message: FencedMessage, *, name: str | None = None) -> bool:
        """Say whether the effect of a message is to be written now, in the same transaction.

        False: it was written before; acknowledge the message, continue. After either answer nobody
        who held the partition earlier can write under this name any more, so what is read of it
        from then on stays true until this writer is refused itself.

        A driver must not commit by itself after each statement. Messages of one name have to be
        written in the order in which they come: one that is left out for a later one is taken for
        done.

        Args:
            cursor: of the connection that writes the effect.
            message: as the consumer handed it out.
            name: what is fenced, 1 to 1,024 characters; None: the message's key.

        Raises:
            FencedError: another has gone on with this name: roll back, write nothing more of the
                partition. The message is redelivered, or was already, elsewhere.
            BadRequestError: there is neither a name nor a key, or it is too long.
        """
        name = message.key if name is None else name
        if not name or len(name) > 1024:
            raise BadRequestError(
                f"fence {self._scope}: got the name {excerpt(repr(name))}; expected 1 to 1,024 "
                "characters, such as the partition of a message that has no key"
            )
        generation, broker_epoch, epoch, offset = message.token
        owner = (generation, broker_epoch, epoch)
        place = (generation, message.append_broker_epoch, offset)
        cursor.execute(self._advance, (self._scope, name, *owner, *place))
        if cursor.rowcount == 1:
            return True
        cursor.execute(self._take_over, (*owner, self._scope, name, *owner))
        if cursor.rowcount == 1:
            return False
        raise FencedError(
            f"fence {self._scope}: {excerpt(repr(name))} belongs to another by now, its token is "
            f"above {generation}.{broker_epoch}.{epoch}; write nothing more of the partition"
        )
