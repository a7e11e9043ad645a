"""Queues that are found in a directory, as in a mounted Secret."""

import json
import re

import pytest

from partq import ConnectionOptions, SettingsError, queues_in_directory
from partq.client.queues import queue_directory

URL = "http://127.0.0.1:7411"


async def test_each_file_is_a_queue(tmp_path):
    find = queues_in_directory(str(tmp_path))
    assert await find() == []
    (tmp_path / "orders.json").write_text(json.dumps({"url": URL, "token": "t"}))
    (tmp_path / "..data.json").write_text("what a mounted Secret has beside its entries")
    (tmp_path / "README").write_text("no queue")
    assert await find() == [ConnectionOptions(URL, "orders", token="t")]
    fields = {"url": URL, "namespace": "shop", "ca_file": "ca.crt"}
    (tmp_path / "audit.json").write_text(json.dumps(fields))
    audit = ConnectionOptions(URL, "audit", namespace="shop", ca_file=tmp_path / "ca.crt")
    assert (await find())[0] == audit
    (tmp_path / "orders.json").unlink()
    assert await find() == [audit]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "expected a JSON object with url and token"),
        ("[]", "expected a JSON object with url and token"),
        ('{"url": 7}', "url: got int, expected text"),
        ("{}", "expected one or more broker URLs"),
        ('{"url": "ftp://h"}', "expected one or more broker URLs"),
        (f'{{"url": "{URL}", "tokens": "t"}}', "got 'tokens', expected no field but ca_file, "),
        (f'{{"url": "{URL}", "token": ""}}', "token: got an empty text"),
        (" " * (queue_directory.MAX_FILE_BYTES + 1), "more than 65536 bytes"),
    ],
)
async def test_a_file_that_says_no_queue_is_named(tmp_path, text, says):
    (tmp_path / "orders.json").write_text(text)
    with pytest.raises(SettingsError, match=re.escape(says)) as caught:
        await queues_in_directory(tmp_path)()
    assert caught.value.message.startswith(f"{tmp_path / 'orders.json'}: ")


async def test_what_is_no_directory_is_told(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="expected a directory"):
        await queues_in_directory(tmp_path / "none")()
    with pytest.raises(SettingsError, match="path: got int, expected a path"):
        queues_in_directory(7)
    monkeypatch.setattr(queue_directory, "MAX_FILES", 1)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"url": URL}))
    with pytest.raises(SettingsError, match="got 2 files of queues, expected 1 at most"):
        await queues_in_directory(tmp_path)()
