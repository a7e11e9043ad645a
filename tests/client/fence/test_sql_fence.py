"""The fence for SQL sinks: each message once, no late writer, whatever the order of events."""

import sqlite3
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st

from partq import AsyncSqlFence, BadRequestError, FencedError, SettingsError, SqlFence, Token


def message(epoch, offset, *, key="k", generation=1, broker_epoch=1, append=1):
    token = Token(generation, broker_epoch, epoch, offset)
    return SimpleNamespace(key=key, token=token, append_broker_epoch=append)


class Sink:
    """A database with a fence and a list of effects."""

    def __init__(self, path=":memory:", scope="orders/workers"):
        self.database = sqlite3.connect(path, timeout=30)
        self.fence = SqlFence(scope, paramstyle=sqlite3.paramstyle)
        with self.database:
            self.database.execute("CREATE TABLE IF NOT EXISTS effects (name TEXT, place TEXT)")
            self.fence.create(self.database.cursor())

    def write(self, delivered, **kwargs):
        with self.database:
            is_admitted = self.fence.admits(self.database.cursor(), delivered, **kwargs)
            if is_admitted:
                place = str(delivered.token.offset)
                self.database.execute("INSERT INTO effects VALUES (?, ?)", (delivered.key, place))
        return is_admitted

    def effects(self):
        return [int(place) for (place,) in self.database.execute("SELECT place FROM effects")]


@pytest.fixture
def sink():
    made = Sink()
    with closing(made.database):
        yield made


def test_a_message_is_admitted_once(sink):
    assert sink.write(message(1, 0))
    assert not sink.write(message(1, 0))
    assert not sink.write(message(2, 0)), "a repeat under a higher epoch"
    assert sink.write(message(2, 1))
    assert sink.effects() == [0, 1]


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(message(4, 9), id="epoch"),
        pytest.param(message(9, 9, broker_epoch=1), id="broker epoch"),
        pytest.param(message(9, 9, generation=0, broker_epoch=9), id="generation"),
    ],
)
def test_a_former_owner_is_refused(sink, late):
    assert sink.write(message(5, 3, broker_epoch=2))
    with pytest.raises(FencedError, match=r"fence orders/workers: 'k' belongs to another by now"):
        sink.write(late)
    assert sink.effects() == [3]


def test_a_former_owner_is_refused_as_soon_as_the_next_has_repeated_a_message(sink):
    assert sink.write(message(1, 0))
    assert not sink.write(message(2, 0))
    with pytest.raises(FencedError):
        sink.write(message(1, 1))
    assert sink.write(message(2, 1))


def test_a_former_owner_is_refused_even_for_what_is_done(sink):
    assert sink.write(message(2, 5))
    with pytest.raises(FencedError):
        sink.write(message(1, 5))


@pytest.mark.req("PUL-12")
def test_an_offset_that_the_store_has_lost_and_given_again_is_another_message(sink):
    assert sink.write(message(1, 7, append=1))
    assert sink.write(message(2, 6, broker_epoch=2, append=2)), "stored after the roll back"
    assert not sink.write(message(2, 9, broker_epoch=2, append=1)), "stored before it"


def test_offsets_begin_anew_with_each_generation(sink):
    assert sink.write(message(5, 900))
    assert sink.write(message(1, 0, generation=2))
    with pytest.raises(FencedError):
        sink.write(message(6, 901))


def test_keys_scopes_and_names_do_not_touch_each_other(sink):
    assert sink.write(message(5, 5))
    assert sink.write(message(1, 1, key="other"))
    assert sink.write(message(1, 1), name="partition 1.0")
    other = SqlFence("payments/workers", paramstyle="qmark")
    assert other.admits(sink.database.cursor(), message(1, 1))


def test_what_is_rolled_back_was_not_admitted(sink):
    assert sink.fence.admits(sink.database.cursor(), message(3, 0))
    sink.database.rollback()
    assert sink.write(message(2, 0)), "nothing of it is left, the token neither"


def test_writers_of_the_same_message_at_once_have_one_effect(tmp_path):
    path = tmp_path / "sink.db"
    keys, writers = 20, 4
    with closing(Sink(path).database):
        start = threading.Barrier(writers)
        admitted = []

        def write():
            own = Sink(path)
            with closing(own.database):
                start.wait(timeout=60)
                admitted.extend(
                    key for key in range(keys) if own.write(message(1, 0, key=f"key-{key}"))
                )

        threads = [threading.Thread(target=write) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert sorted(admitted) == list(range(keys))
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM effects").fetchone() == (keys,)


HANDOFF = st.tuples(st.just("handoff"), st.integers(0, 4))
STEP = st.tuples(st.just("step"), st.integers(0, 7))


@given(st.lists(st.one_of(HANDOFF, STEP, STEP, STEP), min_size=5, max_size=60))
def test_any_interleaving_of_owners_has_each_effect_once_and_in_order(actions):
    """Every owner goes through the messages in order, from where acks ended, at any time."""
    sink = Sink()
    next_offset = [0]
    """By owner: the message that it writes next. A former owner continues until it is refused."""
    refused = set()
    newest_writer = done = 0
    with closing(sink.database):
        for kind, number in actions:
            if kind == "handoff":
                # What was written and not acknowledged comes again at the next owner.
                next_offset.append(max(0, done - number))
                continue
            owner = number % len(next_offset)
            if owner in refused:
                continue
            offset = next_offset[owner]
            try:
                is_admitted = sink.write(message(owner, offset))
            except FencedError:
                assert owner < newest_writer, "only those whom another has followed are refused"
                refused.add(owner)
                continue
            assert owner >= newest_writer, "a former owner was let in"
            newest_writer = owner
            assert is_admitted == (offset == done)
            done += is_admitted
            next_offset[owner] += 1
        assert sink.effects() == list(range(done))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"scope": ""}, "scope: got 0 characters, expected 1 to 512"),
        ({"paramstyle": "named"}, "paramstyle: got 'named', expected one of qmark, format"),
        ({"table": "fence; DROP TABLE x"}, "table: got 'fence; DROP TABLE x', expected letters"),
    ],
)
def test_settings_that_cannot_be_used_are_named(arguments, error):
    with pytest.raises(SettingsError, match=error):
        SqlFence(**{"scope": "s", "paramstyle": "qmark", **arguments})


@pytest.mark.parametrize("name", [None, "", "x" * 1025])
def test_a_message_without_a_usable_name_is_refused(sink, name):
    with pytest.raises(BadRequestError, match=r"expected 1 to 1,024 characters"):
        sink.write(message(1, 0, key=None), name=name)


@pytest.mark.parametrize("paramstyle", ["format", "pyformat"])
def test_drivers_of_postgresql_get_their_placeholders(paramstyle):
    said = []

    class Recorder:
        rowcount = 1

        def execute(self, operation, parameters=()):
            said.append((operation, parameters))

    assert SqlFence("s", paramstyle=paramstyle, table="app.fence").admits(Recorder(), message(1, 0))
    ((statement, values),) = said
    assert statement.count("%s") == len(values) == 8
    assert "INSERT INTO app.fence AS held" in statement


@pytest.mark.parametrize("connection", [sqlite3.connect, object])
def test_what_is_neither_a_cursor_nor_a_known_connection_is_refused(connection):
    made = connection(":memory:") if connection is sqlite3.connect else connection()
    with pytest.raises(BadRequestError, match="expected a cursor of DB-API 2 or of Django, or a"):
        SqlFence("s", paramstyle="qmark").admits(made, message(1, 0))
    if connection is sqlite3.connect:
        made.close()


def test_a_cursor_needs_the_paramstyle_of_its_driver(sink):
    with pytest.raises(BadRequestError, match=r"paramstyle None; .* of its driver's module"):
        SqlFence("s").admits(sink.database.cursor(), message(1, 0))


def test_a_connection_that_commits_each_statement_is_refused(sink):
    sink.database.isolation_level = None
    with pytest.raises(BadRequestError, match="commits each statement; expected one in a trans"):
        sink.fence.admits(sink.database.cursor(), message(1, 0))
    sink.database.execute("BEGIN")
    assert sink.write(message(1, 0))


class AwaitedCursor:
    """A cursor as those of asynchronous drivers are."""

    rowcount = 1

    def __init__(self):
        self.ran = 0

    async def execute(self, operation, parameters=()):
        self.ran += 1


async def test_each_fence_refuses_the_connections_of_the_other(sink):
    awaited = AwaitedCursor()
    with pytest.raises(BadRequestError, match=r"calls are awaited; expected .* or AsyncSqlFence"):
        SqlFence("s", paramstyle="qmark").admits(awaited, message(1, 0))
    assert awaited.ran == 0
    fence = AsyncSqlFence("s", paramstyle="qmark")
    assert await fence.admits(awaited, message(1, 0))
    with pytest.raises(BadRequestError, match=r"calls block; expected .* or SqlFence"):
        await fence.admits(sink.database.cursor(), message(1, 0))


def test_sqlalchemy_says_what_its_database_is():
    engine = sqlalchemy.create_engine("sqlite://")
    fence = SqlFence("orders/workers")
    with engine.begin() as connection:
        fence.create(connection)
        assert fence.admits(connection, message(2, 0))
    with engine.connect() as connection, pytest.raises(FencedError):
        fence.admits(connection, message(1, 1))
    engine.dispose()
    connection = SimpleNamespace(
        dialect=SimpleNamespace(name="oracle", paramstyle="qmark"),
        get_execution_options=dict,
        exec_driver_sql=None,
    )
    with pytest.raises(BadRequestError, match="got the database 'oracle'; expected one of sqlite"):
        fence.admits(connection, message(1, 0))
