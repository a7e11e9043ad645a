"""Add up the lines of orders, with the sums in a database that all processes share.

    python examples/shared_state.py --url http://127.0.0.1:7411 --token TOKEN --database sums.db

Every message is one line of an order: `{"line": 0, "lines": 3, "cents": 500}`, with the order as
its key. The sum so far is stored before the message is acknowledged. So any process can continue in
the middle of an order: the state is in the database, and not with the process that began.

Each order remembers two things. The next line: a redelivered message changes nothing. And the
token of the last writer: a process that was taken for dead and wakes up is refused.
"""

import argparse
import asyncio
import json
import sqlite3
from contextlib import closing

from partq import Consumer, Delivery, FencedError, PartqError

TABLE = """
CREATE TABLE IF NOT EXISTS orders
  (id TEXT PRIMARY KEY, next_line INTEGER, cents INTEGER, is_complete INTEGER, token TEXT)
"""


def open_database(path: str) -> sqlite3.Connection:
    """Open the database; its transactions begin when the program says so."""
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.execute(TABLE)
    return database


def add(database: sqlite3.Connection, message: Delivery) -> str:
    """Add a line to its order, in one transaction; return what became of it."""
    line = json.loads(message.value)
    owner = list(message.token[:3])  # generation, broker epoch, epoch: they grow with every owner
    with database:
        database.execute("BEGIN IMMEDIATE")
        row = database.execute(
            "SELECT next_line, cents, token FROM orders WHERE id = ?", (message.key,)
        ).fetchone()
        next_line, cents, token = row or (0, 0, "[]")
        if json.loads(token) > owner:
            return "refused: another process has gone on with this order"
        if line["line"] < next_line:
            return "known"
        if line["line"] > next_line:
            # Messages of a key come in order and none is lost, so an order that does not begin at
            # its beginning is older than the group, or expired. Here is where that is decided.
            return f"refused: line {next_line} is missing"
        is_complete = line["line"] + 1 == line["lines"]
        database.execute(
            "INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?, ?)",
            (message.key, line["line"] + 1, cents + line["cents"], is_complete, json.dumps(owner)),
        )
    return "complete" if is_complete else "added"


def not_delivered(error: PartqError) -> None:
    """Note that messages do not decode: the broker keeps them, and the others continue.

    Without `on_error` the loop ends with this error, so that nobody misses it.
    """
    print(f"not processed: {error}", flush=True)


async def main(url: str, token: str, queue: str, group: str, path: str) -> None:
    """Consume until Ctrl-C or SIGTERM."""
    with closing(open_database(path)) as database:
        async with Consumer(
            url, queue=queue, group=group, token=token, on_error=not_delivered
        ) as consumer:
            async for message in consumer:
                outcome = add(database, message)  # first the state ...
                print(f"{message.key}: {outcome}", flush=True)
                try:
                    await consumer.ack(message)  # ... then the ack
                except FencedError as error:
                    print(f"some are redelivered elsewhere and change nothing: {error}", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--token", required=True, help="a token with the role consume")
    arguments.add_argument("--database", required=True, help="an SQLite file, the same for all")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="workers")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.token, given.queue, given.group, given.database))
