"""Keep balances in a database, each change exactly once, with a copy in memory.

    python examples/fenced_sink.py --url http://127.0.0.1:7411 --token TOKEN --database balances.db

Every message is a change of one account: `{"cents": 500}`, with the account as its key. A change
must not count twice, and the copy in memory must not go stale while it is used. `SqlFence` sees to
both, in the transaction that writes the balance:

- A message that is redelivered after it was written changes nothing.
- A process that another has followed is refused: nobody writes behind the owner's back. What an
  owner reads after its first message of an account stays true until it is refused itself.
"""

import argparse
import asyncio
import json
import sqlite3
from contextlib import closing

from partq import Consumer, Delivery, FencedError, PartqError, SqlFence

TABLE = "CREATE TABLE IF NOT EXISTS accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)"


class Balances:
    """The balances of one process: in the database, and in memory for those that it serves."""

    def __init__(self, database: sqlite3.Connection, fence: SqlFence) -> None:
        self.database = database
        self.fence = fence
        self.known: dict[str, tuple[tuple[int, ...], int]] = {}
        with database:
            database.execute(TABLE)
            fence.create(database.cursor())

    def apply(self, message: Delivery) -> str:
        """Add a change to its account, in one transaction; return what became of it.

        Raises:
            FencedError: another process has gone on with this account; nothing was written.
        """
        account, owner = message.key or "", tuple(message.token[:3])
        with self.database:  # commits; rolls back what raises
            is_new = self.fence.admits(self.database.cursor(), message)
            last_owner, cents = self.known.get(account, ((), 0))
            if last_owner != owner:
                cents = self.load(account)  # after `admits`: from here on nobody else writes it
            if is_new:
                cents += json.loads(message.value)["cents"]
                self.database.execute(
                    "INSERT OR REPLACE INTO accounts VALUES (?, ?)", (account, cents)
                )
        self.known[account] = (owner, cents)
        return f"now {cents}" if is_new else "known"

    def load(self, account: str) -> int:
        """Read a balance."""
        row = self.database.execute(
            "SELECT cents FROM accounts WHERE id = ?", (account,)
        ).fetchone()
        return row[0] if row else 0


def not_delivered(error: PartqError) -> None:
    """Note that messages do not decode: the broker keeps them, and the others continue.

    Without `on_error` the loop ends with this error, so that nobody misses it.
    """
    print(f"not processed: {error}", flush=True)


async def main(url: str, token: str, queue: str, group: str, path: str) -> None:
    """Consume until Ctrl-C or SIGTERM."""
    fence = SqlFence(f"{queue}/{group}", paramstyle=sqlite3.paramstyle)
    with closing(sqlite3.connect(path, timeout=30)) as database:
        balances = Balances(database, fence)
        async with Consumer(
            url, queue=queue, group=group, token=token, on_error=not_delivered
        ) as consumer:
            async for message in consumer:
                try:
                    print(f"{message.key}: {balances.apply(message)}", flush=True)
                    await consumer.ack(message)
                except FencedError as error:
                    print(f"it is done elsewhere: {error}", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--token", required=True, help="a token with the role consume")
    arguments.add_argument("--database", required=True, help="an SQLite file, the same for all")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="workers")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.token, given.queue, given.group, given.database))
