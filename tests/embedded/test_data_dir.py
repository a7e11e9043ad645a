"""A data directory has one holder, keeps uid and tokens, and hides them."""

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace

import pytest

from partq.embedded import data_dir as data_dir_module
from partq.embedded.data_dir import DataDir, QueueState, QueueTokens, read_state
from partq.errors import SettingsError


@pytest.fixture
def held(tmp_path):
    data_dir = DataDir(tmp_path / "data")
    data_dir.hold()
    yield data_dir
    data_dir.let_go()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_second_holder_is_refused(held):
    with pytest.raises(SettingsError, match=rf"process {os.getpid()} is using it; stop that"):
        DataDir(held.path).hold()


@pytest.fixture
def looked_at(tmp_path):
    """A directory whose lock another command shares, as it does to see whether it is held."""
    data_dir = DataDir(tmp_path)
    data_dir.lock_file.touch()
    with data_dir.lock_file.open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        yield data_dir, look


def test_a_start_waits_for_a_command_that_looks(looked_at, monkeypatch):
    data_dir, look = looked_at
    monkeypatch.setattr(data_dir_module, "sleep", lambda _: look.close())
    data_dir.hold()
    assert data_dir.read_pid() == os.getpid()
    data_dir.let_go()


def test_a_start_does_not_wait_for_ever(looked_at, monkeypatch):
    data_dir, _ = looked_at
    monkeypatch.setattr(data_dir_module, "LOOKS_TIMEOUT_S", 0.0)
    with pytest.raises(SettingsError, match="other commands have looked at it for 0 s"):
        data_dir.hold()


def test_the_state_of_a_runtime_that_was_killed_goes_at_the_next_start(tmp_path):
    data_dir = DataDir(tmp_path)
    data_dir.state_file.write_text('{"queues": []}')
    data_dir.hold()
    assert not data_dir.state_file.exists()
    data_dir.let_go()


def test_dead_holder_holds_nothing(tmp_path):
    program = (
        "import os, pathlib, sys; from partq.embedded.data_dir import DataDir;"
        "d = DataDir(pathlib.Path(sys.argv[1])); d.hold(); d.publish_state([]); os._exit(137)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60)
    assert (tmp_path / "dev.json").exists()

    assert read_state(tmp_path) == []
    data_dir = DataDir(tmp_path)
    data_dir.hold()
    data_dir.let_go()


def test_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"data directory .*/file/data: Not a directory"):
        DataDir(tmp_path / "file" / "data").hold()


def test_identity_is_kept(held):
    first = held.identity("default", "orders")
    assert held.identity("default", "orders") == first
    assert held.identity("shop", "orders").uid != first.uid
    tokens = {first.tokens.produce, first.tokens.consume, first.tokens.admin}
    assert len(tokens) == 3
    # None may begin with a dash: a shell hands it to a program as an option.
    assert all(re.fullmatch("[0-9a-f]{48}", token) for token in tokens)


def test_files_of_the_brokers_and_the_coordinator(held):
    identity = held.identity("default", "orders")

    assert json.loads(identity.tokens_file.read_text()) == [
        {"token": identity.tokens.produce, "queue": "orders", "role": "produce"},
        {"token": identity.tokens.consume, "queue": "orders", "role": "consume"},
        {"token": identity.tokens.admin, "queue": "orders", "role": "admin"},
    ]
    assert identity.admin_token_file.read_text().strip() == identity.tokens.admin


def test_tokens_that_were_added_by_hand_stay(held):
    identity = held.identity("default", "orders")
    rows = json.loads(identity.tokens_file.read_text())
    added = {"token": "added-by-hand-0123", "queue": "orders", "role": "consume", "groups": ["a"]}
    identity.tokens_file.write_text(json.dumps([added, *rows]))
    again = held.identity("default", "orders")
    held.grant(again, "orders", ["workers"])
    granted = json.loads(identity.tokens_file.read_text())
    assert granted[: len(rows)] == rows
    own = {"token": identity.tokens.consume, "queue": "orders", "role": "consume"}
    assert granted[len(rows) :] == [{**own, "groups": ["workers"]}, added]
    held.grant(again, "orders", [])
    assert json.loads(identity.tokens_file.read_text()) == [*rows, added], "no group is left"


def test_a_tokens_file_that_cannot_be_read_is_not_overwritten(held):
    identity = held.identity("default", "orders")
    broken = identity.tokens_file.read_text() + ","
    identity.tokens_file.write_text(broken)
    with pytest.raises(SettingsError, match=r"tokens\.json: .*; mend the file, or remove it"):
        held.identity("default", "orders")
    assert identity.tokens_file.read_text() == broken
    identity.tokens_file.unlink()
    assert held.identity("default", "orders") == identity


def test_tokens_of_an_earlier_life_are_void(held):
    identity = held.identity("default", "orders")
    identity.tokens_file.with_name("identity.json").unlink()
    again = held.identity("default", "orders")
    tokens = {row["token"] for row in json.loads(identity.tokens_file.read_text())}
    assert tokens == {again.tokens.produce, again.tokens.consume, again.tokens.admin}
    assert tokens.isdisjoint({identity.tokens.consume})


def test_secrets_are_for_the_owner_only(held):
    identity = held.identity("default", "orders")
    held.redis_password()
    held.publish_state([])

    assert {mode(directory) for directory in (held.path, identity.tokens_file.parent)} == {0o700}
    secrets = [
        identity.tokens_file,
        identity.admin_token_file,
        identity.tokens_file.with_name("identity.json"),
        held.redis / "password",
        held.path / "dev.json",
    ]
    assert {mode(file) for file in secrets} == {0o600}


def test_password_is_kept(held):
    assert held.redis_password() == held.redis_password()


@pytest.mark.parametrize("text", ["", "[]", '{"uid": "1"}', '{"uid": "1", "tokens": 3}'])
def test_damaged_identity(held, text):
    held.identity("default", "orders")
    (held.path / "queues" / "default.orders" / "identity.json").write_text(text)
    with pytest.raises(SettingsError, match=r"identity\.json: got no "):
        held.identity("default", "orders")


def test_state_is_what_was_published_while_it_is_held(held):
    state = QueueState(
        "default", "orders", "http://a:1,http://b:2", ("w",), QueueTokens("p", "c", "a")
    )
    created = replace(state, name="orders-w-dlq", groups=(), is_created=True)
    held.publish_state([state, created])

    assert read_state(held.path) == [state, created]
    held.let_go()
    assert read_state(held.path) == []


def test_damaged_state(held):
    (held.path / "dev.json").write_text('{"queues": [{}]}')
    with pytest.raises(SettingsError, match=r"dev\.json: got no 'namespace', expected the state"):
        read_state(held.path)
