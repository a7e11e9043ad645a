"""A PostgreSQL and a MariaDB for the tests of the fence, and writers that reach them by each way.

Both servers are made in a moment, in a directory of their own, listen on a socket there alone, and
go away with it. Where a server is not installed its tests are skipped.
"""

import asyncio
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import django
import psycopg
import pymysql
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from pymysql.constants import CLIENT
from sqlalchemy.ext.asyncio import create_async_engine

from partq import AsyncSqlFence, SqlFence
from partq.testing import eventually_blocking

SCOPE = "orders/workers"
EFFECTS = "CREATE TABLE IF NOT EXISTS effects (name VARCHAR(100), place BIGINT)"


def postgresql_programs():
    """Return the folder of PostgreSQL's programs: the system's, or those of the wheel; or None."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if on_path := shutil.which("initdb"):
        found.append(Path(on_path).parent)
    wheel = find_spec("pgserver")  # not imported: it would look for a directory of the user
    if not found and wheel is not None:
        found.append(Path(wheel.origin).parent / "pginstall" / "bin")
    is_root = os.geteuid() == 0  # then it runs as nobody, who has to get there
    reached = [path for path in found if not is_root or all(is_open(each) for each in path.parents)]
    return reached[-1] if reached else None


def is_open(folder):
    """Tell whether every user may enter a folder."""
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def mariadb_program():
    """Return the server of MariaDB, or None."""
    return shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")


class Server:
    """One process of a database, in a directory that is short enough for the path of a socket."""

    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="fence"))
        self.process = None
        self.identity = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self.directory, nobody.pw_uid, nobody.pw_gid)
            self.identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def __enter__(self):
        try:
            self.start()
            eventually_blocking(self.answers, f"{type(self).__name__} answers")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def run(self, *words):
        """Start the process."""
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, cwd=self.directory, **self.identity
            )

    def answers(self):
        """Tell whether it takes connections."""
        if self.process.poll() is not None:
            raise RuntimeError((self.directory / "log").read_text(encoding="utf-8"))
        try:
            self.query("SELECT 1")
        except (psycopg.OperationalError, pymysql.err.OperationalError):
            return False
        return True

    def query(self, sql):
        """Run a statement in a transaction of its own; return its rows."""
        with closing(self.connect(is_autocommit=True)) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else ()

    def waiting(self):
        """Return how many transactions wait for another one."""
        return int(self.query(self.WAITING)[0][0])


class PostgreSql(Server):
    WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

    def start(self):
        programs = postgresql_programs()
        data = self.directory / "data"
        subprocess.run(
            [programs / "initdb", "--pgdata", data, "--username=postgres", "--auth=trust",
             "--no-sync", "--encoding=UTF8", "--locale=C", "--no-instructions"],
            stdout=subprocess.DEVNULL, cwd=self.directory, check=True, **self.identity,
        )  # fmt: skip
        options = {
            "listen_addresses": "",
            "unix_socket_directories": self.directory,
            "fsync": "off",
            "deadlock_timeout": "20ms",
            "shared_buffers": "16MB",
        }
        given = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        self.run(programs / "postgres", "-D", data, *given)

    @property
    def host(self):
        return str(self.directory)

    @property
    def address(self):
        """As asyncpg takes it."""
        return {"host": self.host, "user": "postgres", "database": "postgres"}

    def connect(self, *, is_autocommit=False):
        return psycopg.connect(
            host=self.host, user="postgres", dbname="postgres", autocommit=is_autocommit
        )


class MariaDb(Server):
    # Not from innodb_trx, which shows the same for as long as it is asked every 100 ms.
    WAITING = (
        "SELECT variable_value FROM information_schema.global_status "
        "WHERE variable_name = 'innodb_row_lock_current_waits'"
    )

    def start(self):
        data = self.directory / "data"
        data.mkdir()
        if self.identity:
            os.chown(data, self.identity["user"], self.identity["group"])
        self.socket = str(self.directory / "socket")
        # Without tables of privileges it needs no mariadb-install-db, which takes seconds.
        self.run(
            mariadb_program(), "--no-defaults", "--skip-grant-tables", "--skip-networking",
            f"--datadir={data}", f"--socket={self.socket}", f"--tmpdir={self.directory}",
            f"--pid-file={self.directory / 'pid'}", "--innodb-log-file-size=4M",
            "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip

    def connect(self, *, is_autocommit=False, database=None, client_flag=0):
        return pymysql.connect(
            unix_socket=self.socket, user="root", database=database, autocommit=is_autocommit,
            client_flag=client_flag,
        )  # fmt: skip

    def answers(self):
        # PyMySQL leaves its socket open when it finds none on the other side.
        if self.process.poll() is None and not Path(self.socket).exists():
            return False
        if not super().answers():
            return False
        self.query("CREATE DATABASE IF NOT EXISTS test")
        return True


def configure_django(postgresql, mariadb):
    """Tell Django where the databases are; once in a process."""
    pymysql.install_as_MySQLdb()
    databases = {"default": {}}
    if postgresql:
        databases["postgresql"] = {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": postgresql.host, "USER": "postgres", "NAME": "postgres",
        }  # fmt: skip
    if mariadb:
        databases["mysql"] = {
            "ENGINE": "django.db.backends.mysql",
            "USER": "root", "NAME": "test", "OPTIONS": {"unix_socket": mariadb.socket},
        }  # fmt: skip
    settings.configure(DATABASES=databases, USE_TZ=True)
    django.setup()


class DbApiWriter:
    """Writes through a cursor of a driver."""

    def __init__(self, server, *, is_autocommit=False, **options):
        self.connection = server.connect(is_autocommit=is_autocommit, **options)
        module = sys.modules[type(self.connection).__module__.partition(".")[0]]
        dialect = "mysql" if module is pymysql else None
        self.fence = SqlFence(SCOPE, paramstyle=module.paramstyle, dialect=dialect)

    def create(self):
        self.fence.create(self.connection.cursor())

    def admits(self, message, name=None):
        return self.fence.admits(self.connection.cursor(), message, name=name)

    def run(self, sql):
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else ()

    def commit(self):
        self.connection.commit()

    def rollback(self):
        self.connection.rollback()

    def close(self):
        self.connection.close()


class SqlAlchemyWriter:
    """Writes through a `Connection` of SQLAlchemy, which begins by itself."""

    def __init__(self, url, *, is_autocommit=False, **arguments):
        options = {"isolation_level": "AUTOCOMMIT"} if is_autocommit else {}
        self.engine = sqlalchemy.create_engine(url, connect_args=arguments, **options)
        self.connection = self.engine.connect()
        self.fence = SqlFence(SCOPE)

    def create(self):
        self.fence.create(self.connection)

    def admits(self, message, name=None):
        return self.fence.admits(self.connection, message, name=name)

    def run(self, sql):
        result = self.connection.exec_driver_sql(sql)
        return result.all() if result.returns_rows else ()

    def commit(self):
        self.connection.commit()

    def rollback(self):
        self.connection.rollback()

    def close(self):
        self.connection.close()
        self.engine.dispose()


class DjangoWriter:
    """Writes through a cursor of Django; each thread has a connection."""

    def __init__(self, alias, *, is_autocommit=False):
        self.alias, self.is_autocommit = alias, is_autocommit
        self.fence = SqlFence(SCOPE)
        self.block = None

    def create(self):
        with connections[self.alias].cursor() as cursor:
            self.fence.create(cursor)

    def admits(self, message, name=None):
        self._begin()
        with connections[self.alias].cursor() as cursor:
            return self.fence.admits(cursor, message, name=name)

    def run(self, sql):
        self._begin()
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else ()

    def _begin(self):
        if self.block is None and not self.is_autocommit:
            self.block = transaction.atomic(using=self.alias)
            self.block.__enter__()

    def commit(self):
        block, self.block = self.block, None
        if block is not None:
            block.__exit__(None, None, None)

    def rollback(self):
        if self.block is not None:
            transaction.set_rollback(True, using=self.alias)
            self.commit()

    def close(self):
        self.rollback()
        connections[self.alias].close()


class InThread:
    """A writer that blocks, in a thread: its methods are awaited."""

    def __init__(self, kind, *args, **kwargs):
        self.thread = ThreadPoolExecutor(1)
        self.made = self.thread.submit(kind, *args, **kwargs).result()

    def __getattr__(self, name):
        method = getattr(self.made, name)
        return lambda *args: asyncio.wrap_future(self.thread.submit(method, *args))


class AsyncpgWriter:
    """Writes through a connection of a pool of asyncpg."""

    def __init__(self, server, *, is_autocommit=False):
        self.server, self.is_autocommit = server, is_autocommit
        self.fence = AsyncSqlFence(SCOPE)
        self.pool = self.transaction = None

    async def _connection(self):
        if self.pool is None:
            self.pool = await asyncpg.create_pool(
                **self.server.address, min_size=1, max_size=1
            )  # fmt: skip
            self.connection = await self.pool.acquire()
        if self.transaction is None and not self.is_autocommit:
            self.transaction = self.connection.transaction()
            await self.transaction.start()
        return self.connection

    async def create(self):
        await self.fence.create(await self._connection())

    async def admits(self, message, name=None):
        return await self.fence.admits(await self._connection(), message, name=name)

    async def run(self, sql):
        return [tuple(row) for row in await (await self._connection()).fetch(sql)]

    async def _end(self, is_commit):
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            await (transaction.commit() if is_commit else transaction.rollback())

    async def commit(self):
        await self._end(True)

    async def rollback(self):
        await self._end(False)

    async def close(self):
        await self.rollback()
        if self.pool is not None:
            await self.pool.release(self.connection)
            await self.pool.close()


class AsyncSqlAlchemyWriter:
    """Writes through an `AsyncConnection` of SQLAlchemy."""

    def __init__(self, url, *, is_autocommit=False, **arguments):
        options = {"isolation_level": "AUTOCOMMIT"} if is_autocommit else {}
        self.engine = create_async_engine(url, connect_args=arguments, **options)
        self.connection = self.engine.connect()
        self.fence = AsyncSqlFence(SCOPE)

    async def _started(self):
        if self.connection.sync_connection is None:
            await self.connection.start()
        return self.connection

    async def create(self):
        await self.fence.create(await self._started())

    async def admits(self, message, name=None):
        return await self.fence.admits(await self._started(), message, name=name)

    async def run(self, sql):
        result = await (await self._started()).exec_driver_sql(sql)
        return result.all() if result.returns_rows else ()

    async def commit(self):
        await self.connection.commit()

    async def rollback(self):
        if self.connection.sync_connection is not None:
            await self.connection.rollback()

    async def close(self):
        if self.connection.sync_connection is not None:
            await self.connection.close()
        await self.engine.dispose()


class AsyncCursorWriter:
    """Writes through the cursor of an `AsyncConnection` of psycopg."""

    def __init__(self, server, *, is_autocommit=False):
        self.server, self.is_autocommit = server, is_autocommit
        self.fence = AsyncSqlFence(SCOPE, paramstyle=psycopg.paramstyle)
        self.connection = None

    async def _cursor(self):
        if self.connection is None:
            self.connection = await psycopg.AsyncConnection.connect(
                host=self.server.host, user="postgres", dbname="postgres",
                autocommit=self.is_autocommit,
            )  # fmt: skip
        return self.connection.cursor()

    async def create(self):
        await self.fence.create(await self._cursor())

    async def admits(self, message, name=None):
        return await self.fence.admits(await self._cursor(), message, name=name)

    async def run(self, sql):
        cursor = await self._cursor()
        await cursor.execute(sql)
        return await cursor.fetchall() if cursor.description else ()

    async def commit(self):
        await self.connection.commit()

    async def rollback(self):
        if self.connection is not None:
            await self.connection.rollback()

    async def close(self):
        if self.connection is not None:
            await self.connection.close()


POSTGRESQL = {
    "psycopg": lambda at, **how: InThread(DbApiWriter, at, **how),
    "psycopg, async": lambda at, **how: AsyncCursorWriter(at, **how),
    "asyncpg": lambda at, **how: AsyncpgWriter(at, **how),
    "SQLAlchemy": lambda at, **how: InThread(
        SqlAlchemyWriter, "postgresql+psycopg://postgres@/postgres", host=at.host, **how
    ),
    "SQLAlchemy, async": lambda at, **how: AsyncSqlAlchemyWriter(
        "postgresql+asyncpg://postgres@/postgres", host=at.host, **how
    ),
    "Django": lambda at, **how: InThread(DjangoWriter, "postgresql", **how),
}
MARIADB = {
    "PyMySQL": lambda at, **how: InThread(DbApiWriter, at, database="test", **how),
    "PyMySQL, rows found": lambda at, **how: InThread(
        DbApiWriter, at, database="test", client_flag=CLIENT.FOUND_ROWS, **how
    ),
    "SQLAlchemy": lambda at, **how: InThread(
        SqlAlchemyWriter, "mysql+pymysql://root@/test", unix_socket=at.socket, **how
    ),
    "Django": lambda at, **how: InThread(DjangoWriter, "mysql", **how),
}
"""By their names: what makes a writer on a server."""
