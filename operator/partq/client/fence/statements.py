"""The statements of the fence: in the SQL of a database, with the placeholders of a driver."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

PLACEHOLDERS: Final[dict[str, Callable[[int], str]]] = {
    "qmark": lambda number: "?",
    "format": lambda number: "%s",
    "pyformat": lambda number: "%s",
    "numeric_dollar": lambda number: f"${number}",
}
"""What stands for the value of a number, by the `paramstyle` of the driver."""

DIALECTS: Final = ("sqlite", "postgresql", "mysql", "mariadb")

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
  (generation, broker_epoch, epoch, done_generation, done_broker_epoch, done_offset, scope, name)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
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
UPDATE {table} SET generation = ?, broker_epoch = ?, epoch = ?
WHERE scope = ? AND name = ?
  AND (generation, broker_epoch, epoch) <= (?, ?, ?)
"""

# Bytes, because collations of text take "a" for "A" or for "a ", and two keys for one. InnoDB,
# because other engines have no transactions.
_MYSQL_CREATE: Final = """
CREATE TABLE IF NOT EXISTS {table} (
  scope VARBINARY(512) NOT NULL,
  name VARBINARY(1024) NOT NULL,
  generation BIGINT NOT NULL,
  broker_epoch BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  done_generation BIGINT NOT NULL,
  done_broker_epoch BIGINT NOT NULL,
  done_offset BIGINT NOT NULL,
  repeats BIGINT NOT NULL,
  PRIMARY KEY (scope, name)
) ENGINE = InnoDB
"""

# ON DUPLICATE KEY UPDATE has no WHERE, and its row count is 1 for an inserted row, and with
# CLIENT_FOUND_ROWS for one that it left alone. So it only makes the row, below every token, and
# locks it until the transaction ends. INSERT IGNORE, which takes a shared lock of a row that is
# there, would end in a deadlock when two transactions write the row next.
_MYSQL_LOCK: Final = """
INSERT INTO {table}
  (generation, broker_epoch, epoch, done_generation, done_broker_epoch, done_offset, repeats,
   scope, name)
VALUES (-1, -1, -1, -1, -1, -1, 0, ?, ?)
ON DUPLICATE KEY UPDATE repeats = repeats
"""

# Both statements change each row that they find: so rows found and rows changed are one number.
# Under REPEATABLE READ too an UPDATE compares with what is committed, not with the snapshot.
_MYSQL_ADVANCE: Final = """
UPDATE {table} SET
  generation = ?, broker_epoch = ?, epoch = ?,
  done_generation = ?, done_broker_epoch = ?, done_offset = ?
WHERE scope = ? AND name = ?
  AND (generation, broker_epoch, epoch) <= (?, ?, ?)
  AND (done_generation, done_broker_epoch, done_offset) < (?, ?, ?)
"""

_MYSQL_TAKE_OVER: Final = """
UPDATE {table} SET generation = ?, broker_epoch = ?, epoch = ?, repeats = repeats + 1
WHERE scope = ? AND name = ?
  AND (generation, broker_epoch, epoch) <= (?, ?, ?)
"""


@dataclass(frozen=True, slots=True)
class Statements:
    """What a fence says to one kind of database; `lock` is empty where `advance` needs none."""

    create: str
    lock: str
    advance: str
    take_over: str

    @property
    def has_bytes(self) -> bool:
        """Whether scope and name are bytes in the database, not text."""
        return bool(self.lock)


@lru_cache(maxsize=64)
def statements(dialect: str | None, paramstyle: str, table: str) -> Statements:
    """Return the statements for a dialect; None: as PostgreSQL and SQLite both take them."""
    texts = (_CREATE, "", _ADVANCE, _TAKE_OVER)
    if dialect in ("mysql", "mariadb"):
        texts = (_MYSQL_CREATE, _MYSQL_LOCK, _MYSQL_ADVANCE, _MYSQL_TAKE_OVER)
    return Statements(*(_rendered(text, paramstyle, table) for text in texts))


def _rendered(text: str, paramstyle: str, table: str) -> str:
    numbers = iter(range(1, text.count("?") + 1))
    placeholder = PLACEHOLDERS[paramstyle]
    return re.sub(r"\?", lambda _: placeholder(next(numbers)), text).format(table=table)
