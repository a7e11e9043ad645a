"""The fence on PostgreSQL and MariaDB, by each way to them: transactions of two owners at once.

Where one has to wait for another, the test asks the database whether it waits.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from itertools import count
from types import SimpleNamespace

import asyncpg
import psycopg
import pymysql
import pytest
import sqlalchemy.exc
from django.db.utils import OperationalError
from sqlalchemy.orm import Session

from partq import BadRequestError, FencedError, SqlFence, Token
from partq.testing import eventually
from tests.client.fence.databases import (
    EFFECTS,
    MARIADB,
    POSTGRESQL,
    MariaDb,
    PostgreSql,
    configure_django,
    mariadb_program,
    postgresql_programs,
)
from tests.examples.pages import program
from tests.examples.test_page_programs import run

NAMES = count()
DEADLOCK = (
    psycopg.errors.DeadlockDetected,
    pymysql.err.OperationalError,
    sqlalchemy.exc.DBAPIError,
    OperationalError,
)


def message(epoch, offset, *, key):
    return SimpleNamespace(key=key, token=Token(1, 1, epoch, offset), append_broker_epoch=1)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, object]]:
    """Those that are here: `postgresql` and `mariadb`."""
    with ExitStack() as stack:
        found = {}
        if postgresql_programs():
            found["postgresql"] = stack.enter_context(PostgreSql())
        if mariadb_program():
            found["mariadb"] = stack.enter_context(MariaDb())
        configure_django(found.get("postgresql"), found.get("mariadb"))
        yield found


def way(database, name, make):
    return pytest.param((database, make), id=f"{database}: {name}")


ON_POSTGRESQL = [way("postgresql", *each) for each in POSTGRESQL.items()]
ON_MARIADB = [way("mariadb", *each) for each in MARIADB.items()]


class Database:
    """A database, and one way to it. All its writers are closed in the end."""

    def __init__(self, server, make, stack):
        self.server, self.make, self.stack = server, make, stack
        self.key = f"key-{next(NAMES)}"

    def writer(self, **how):
        """Return another writer, with a connection of its own."""
        made = self.make(self.server, **how)
        self.stack.push_async_callback(made.close)
        return made

    async def waits(self, coroutine):
        """Start something that waits for another transaction, and return it once it does."""
        task = asyncio.ensure_future(coroutine)
        before = self.server.waiting()
        await eventually(
            lambda: task.done() or self.server.waiting() > before, "it waits", interval_s=0.01
        )
        assert not task.done(), task.exception() or task.result()
        return task

    def message(self, epoch, offset, *, key=None):
        return message(epoch, offset, key=key or self.key)

    async def write(self, writer, epoch, offset, *, key=None):
        """Admit a message and write its effect, in one transaction that stays open."""
        is_admitted = await writer.admits(self.message(epoch, offset, key=key))
        if is_admitted:
            await writer.run(f"INSERT INTO effects VALUES ('{key or self.key}', {offset})")
        return is_admitted

    async def effects(self, writer):
        rows = await writer.run(f"SELECT place FROM effects WHERE name = '{self.key}'")
        return sorted(place for (place,) in rows)


@asynccontextmanager
async def opened(servers, way):
    name, make = way
    if name not in servers:
        pytest.skip(f"no {name} that the tests can start: see CONTRIBUTING.md")
    async with AsyncExitStack() as stack:
        yield Database(servers[name], make, stack)


@pytest.fixture
async def database(servers, way):
    async with opened(servers, way) as found:
        first = found.writer()
        await first.run(EFFECTS)
        await first.create()
        await first.create()
        await first.commit()
        yield found


every_way = pytest.mark.parametrize("way", ON_POSTGRESQL + ON_MARIADB)
each_database = pytest.mark.parametrize("way", [ON_POSTGRESQL[0], *ON_MARIADB[:2]])


@every_way
async def test_owners_one_after_the_other(database):
    one, two = database.writer(), database.writer()
    assert await database.write(one, 1, 0)
    await one.rollback()
    assert await database.write(one, 1, 0), "what was rolled back was not admitted"
    await one.commit()
    assert not await database.write(one, 1, 0)
    await one.commit()
    assert await database.write(one, 1, 1)
    await one.commit()
    assert not await database.write(two, 2, 1), "a repeat, and the new owner lives"
    await two.commit()
    for offset in (1, 2):
        with pytest.raises(FencedError, match=f"'{database.key}' belongs to another by now"):
            await database.write(one, 1, offset)
        await one.rollback()
    assert await database.write(two, 2, 2)
    assert await database.effects(two) == [0, 1, 2]
    await two.commit()


@every_way
async def test_two_first_writers_of_a_name(database):
    """The second waits, and is compared with what the first one leaves."""
    one, two = database.writer(), database.writer()
    assert await database.write(one, 1, 0)
    second = await database.waits(database.write(two, 2, 0))
    await one.commit()
    assert not await second
    assert await database.effects(two) == [0], "it reads what the first one has written"
    await two.commit()


@every_way
async def test_the_first_writer_of_a_name_rolls_back(database):
    one, two = database.writer(), database.writer()
    assert await database.write(one, 2, 0)
    second = await database.waits(database.write(two, 1, 0))
    await one.rollback()
    assert await second
    await two.commit()
    assert await database.effects(one) == [0]


@every_way
async def test_a_late_writer_waits_for_its_successor_and_is_refused(database):
    late, successor = database.writer(), database.writer()
    assert await database.write(late, 1, 0)
    await late.commit()
    assert await database.write(successor, 2, 1)
    refused = await database.waits(database.write(late, 1, 1))
    await successor.commit()
    with pytest.raises(FencedError):
        await refused
    await late.rollback()
    assert await database.effects(successor) == [0, 1]


@every_way
async def test_a_connection_that_commits_each_statement_is_refused(database):
    writer = database.writer(is_autocommit=True)
    with pytest.raises(BadRequestError, match="commits each statement; expected one in a trans"):
        await writer.admits(database.message(1, 0))
    assert await database.write(database.writer(), 1, 0), "nothing was written"


@each_database
async def test_a_connection_that_commits_each_statement_may_have_begun(database):
    writer = database.writer(is_autocommit=True)
    await writer.run("BEGIN")
    assert await database.write(writer, 1, 0)
    await writer.run("ROLLBACK")
    assert await database.effects(writer) == []


@each_database
async def test_of_two_transactions_in_a_deadlock_one_is_rolled_back_and_can_run_again(database):
    one, two = database.writer(), database.writer()
    other = f"{database.key}-other"
    for key in (database.key, other):  # what is there before, so that rows alone are locked
        assert await database.write(one, 1, 0, key=key)
        await one.commit()
    assert await database.write(one, 1, 1)
    assert await database.write(two, 2, 1, key=other)
    first = await database.waits(database.write(one, 1, 1, key=other))
    outcomes = await asyncio.gather(first, database.write(two, 2, 1), return_exceptions=True)
    (failed,) = [each for each in outcomes if isinstance(each, DEADLOCK)]
    assert "deadlock" in str(failed).lower()
    if failed is outcomes[0]:
        await one.rollback()
        assert outcomes[1] is True
        await two.commit()
        with pytest.raises(FencedError):
            await database.write(one, 1, 1)
        await one.rollback()
    else:
        await two.rollback()
        # The name that the second owner had written was rolled back, so the first continues.
        assert outcomes[0] is True
        await one.commit()
        assert not await database.write(two, 2, 1)
        await two.commit()
    assert await database.effects(two) == [0, 1]


@each_database
async def test_writers_that_wait_for_a_row_go_on_one_after_the_other(database):
    """Without a deadlock: each of them locks the row for itself alone."""
    first, *others = (database.writer() for _ in range(3))
    assert await database.write(first, 1, 0)
    await first.commit()
    assert await database.write(first, 1, 1)

    async def write(writer):
        is_admitted = await database.write(writer, 1, 2)
        await writer.commit()
        return is_admitted

    waiting = [await database.waits(write(writer)) for writer in others]
    await first.commit()
    assert sorted(await asyncio.gather(*waiting)) == [False, True]
    assert await database.effects(first) == [0, 1, 2]


@each_database
async def test_many_first_writers_of_a_name_have_one_effect(database):
    """The first rolls back while the others wait. InnoDB may end some of them by a deadlock."""
    first, *others = (database.writer() for _ in range(4))
    assert await database.write(first, 1, 0)

    async def write(writer):
        for _ in others:
            try:
                is_admitted = await database.write(writer, 1, 0)
                await writer.commit()
            except DEADLOCK:
                await writer.rollback()
            else:
                return is_admitted
        raise AssertionError("a deadlock each time, though one of the others ends each time")

    waiting = [await database.waits(write(writer)) for writer in others]
    await first.rollback()
    assert sorted(await asyncio.gather(*waiting)) == [False, False, True]
    assert await database.effects(first) == [0]


@pytest.mark.parametrize("way", [ON_MARIADB[0]])
async def test_keys_that_mysql_takes_for_equal_text_are_different_names(database):
    writer = database.writer()
    names = ["a", "A", "a ", "ä", "a\N{COMBINING DIAERESIS}", "\N{GRINNING FACE}", "é" * 500]
    for name in names:
        assert await writer.admits(database.message(1, 0), f"{database.key} {name}")
    await writer.rollback()
    with pytest.raises(
        BadRequestError, match=r"and 1026 of the name .*; expected at most 512 and 1,024"
    ):
        await writer.admits(database.message(1, 0), "é" * 513)


@pytest.mark.parametrize("way", [ON_POSTGRESQL[0]])
async def test_repeatable_read_of_postgresql_reports_a_change_since_its_snapshot(database):
    one, two = database.writer(), database.writer()
    assert await database.write(one, 1, 0)
    await one.commit()
    await two.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    assert await database.effects(two) == [0]
    assert await database.write(one, 1, 1)
    await one.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        await database.write(two, 2, 1)
    await two.rollback()
    assert not await database.write(two, 2, 1)


@pytest.mark.parametrize("way", [ON_MARIADB[0]])
async def test_repeatable_read_of_mysql_reads_what_is_as_old_as_the_first_select(database):
    """Therefore the transaction begins with `admits`, or reads FOR UPDATE."""
    one, two = database.writer(), database.writer()
    assert await database.effects(two) == []
    assert await database.write(one, 1, 0)
    await one.commit()
    assert not await database.write(two, 2, 0), "the fence sees what is committed"
    assert await database.effects(two) == []
    assert len(await two.run(f"SELECT * FROM effects WHERE name = '{database.key}' FOR UPDATE"))
    await two.rollback()
    assert not await database.write(two, 2, 0)
    assert await database.effects(two) == [0]


class Account:
    """What the programs of docs/patterns.md write to, and a consumer for their acks."""

    def __init__(self, writer):
        self.writer, self.acks = writer, []

    async def __aenter__(self):
        await self.writer.run("DROP TABLE IF EXISTS accounts")
        await self.writer.run("CREATE TABLE accounts (id VARCHAR(100) PRIMARY KEY, cents BIGINT)")
        return self

    async def __aexit__(self, *_):
        await self.writer.run("DROP TABLE accounts")

    async def ack(self, message):
        self.acks.append(message)

    async def run_twice(self, database, heading, /, **names):
        """Run a program with one message twice; return the cents that the account has then."""
        await self.writer.run(f"INSERT INTO accounts VALUES ('{database.key}', 0)")
        names |= {"message": database.message(1, 0), "consumer": self, "cents": 5}
        for _ in range(2):
            await run(program("patterns.md", heading), **names)
        assert self.acks == [names["message"]] * 2
        ((cents,),) = await self.writer.run("SELECT cents FROM accounts")
        return cents


@pytest.mark.parametrize("way", [ON_POSTGRESQL[2]])
async def test_the_program_for_asyncpg(database):
    async with Account(database.writer(is_autocommit=True)) as account:
        connection = await asyncpg.connect(**database.server.address)
        try:
            cents = await account.run_twice(database, "asyncpg", connection=connection)
        finally:
            await connection.close()
    assert cents == 5


@pytest.mark.parametrize("way", [ON_POSTGRESQL[0]])
async def test_the_program_for_sqlalchemy(database):
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://postgres@/postgres", connect_args={"host": database.server.host}
    )
    async with Account(database.writer(is_autocommit=True)) as account:
        names = {"engine": engine, "text": sqlalchemy.text}
        assert await account.run_twice(database, "SQLAlchemy", **names) == 5
    with Session(engine) as session:
        fence = SqlFence("orders/workers")
        assert not fence.admits(session.connection(), database.message(1, 0))
    engine.dispose()


@pytest.mark.parametrize("way", [ON_MARIADB[0]])
async def test_the_program_for_mysql(database):
    with closing(database.server.connect(database="test")) as connection:
        async with Account(database.writer(is_autocommit=True)) as account:
            names = {"database": connection, "pymysql": pymysql}
            cents = await account.run_twice(database, "MySQL and MariaDB", **names)
    assert cents == 5
